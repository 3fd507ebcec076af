"""configs/profiling.yaml with tiny weights: its profiled steps, and a tuning on its data set."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.demo import copy_configs
from tests.end_to_end.driver import Driver
from tests.end_to_end.recipe_models import on_cpus, write_recipe_models

SPEC = "configs/profiling.yaml"


@pytest.mark.slow
def test_a_profile_has_its_operators_and_a_tuning_begins_without_data(
    local: Driver, tmp_path: Path
) -> None:
    copy_configs(local)
    few = {
        "stages.chats.config.num_train": 160,
        "stages.chats.config.num_heldout": 8,
        "stages.train.resources.tasks_per_node": 1,
        "stages.train.config.strategy": "single",
        "stages.train.config.num_steps": 40,
        "stages.train.config.profile.steps": "[30, 34]",
    }
    small = on_cpus(write_recipe_models(tmp_path / "models"), **few)
    run_dir = local.submit(SPEC, *small)
    assert local.wait(run_dir, timeout_s=600)["status"] == "completed"
    profile = local.json("profile", str(run_dir))
    assert [step["step"] for step in profile["steps"]] == list(range(30, 35))
    assert profile["operators"]

    tuned = local.run("tune", SPEC, *small, "--data", str(run_dir), "--budget", "12", check=None)
    (found,) = local.folder.glob("runs/profiling-tune-*/data/train/tuning.json")
    without = json.loads(found.read_text())["data"]["without"]
    assert without["num_repeats"] >= 3, tuned.stdout
