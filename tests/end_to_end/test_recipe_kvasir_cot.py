"""configs/kvasir-cot.yaml with tiny weights: four tasks, and the slow configuration beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.demo import completion, copy_configs
from tests.end_to_end.driver import Driver
from tests.end_to_end.recipe_models import on_cpus, write_recipe_models

SPEC = "configs/kvasir-cot.yaml"
SLOW = {
    "stages.train.config.num_microbatches": 16,
    "stages.train.config.activation_checkpointing": "true",
    "stages.train.config.num_loader_threads": 1,
    "stages.train.config.num_prefetch_batches": 1,
}
"""As docs/recipes/kvasir-cot.md has it."""


def overrides(models: Path, **more: Any) -> list[str]:
    """CPUs, and few pictures."""
    return on_cpus(models, **{"stages.chats.config.num_heldout": 8, **more})


@pytest.mark.slow
def test_four_tasks_train_from_one_spec_in_the_tuned_configuration(
    local: Driver, tmp_path: Path
) -> None:
    copy_configs(local)
    models = write_recipe_models(tmp_path / "models")
    few = {"stages.chats.config.num_train": 32, "stages.train.config.num_epochs": 1}
    run_dir = local.submit(SPEC, *overrides(models, **few))
    assert local.wait(run_dir, timeout_s=600)["status"] == "completed"
    for task in ("colour-shape", "shape-colour", "size-colour", "shape-size"):
        result = completion(run_dir, f"train-{task}")["result"]
        assert (result["strategy"], result["num_steps"]) == ("single", 2)
        assert set(result["evaluation"]["levels"]) == {"first", "second", "description"}


@pytest.mark.slow
def test_the_slow_configuration_learns_the_same_and_compare_names_changes(
    local: Driver, tmp_path: Path
) -> None:
    copy_configs(local)
    one = {
        "stages.chats.matrix.task": "[colour-shape]",
        "stages.chats.config.num_train": 224,
        "stages.train.config.num_epochs": 2,
    }
    models = write_recipe_models(tmp_path / "models")
    run_dirs = []
    for more in (SLOW, {}):
        run_dir = local.submit(SPEC, *overrides(models, **one, **more))
        assert local.wait(run_dir, timeout_s=600)["status"] == "completed"
        run_dirs.append(run_dir)
    slow, tuned = (completion(run_dir, "train-colour-shape")["result"] for run_dir in run_dirs)
    assert slow["final_loss"] == pytest.approx(tuned["final_loss"], rel=1e-3)
    assert slow["spread"]["num_recomputed"] > 0
    assert not tuned["spread"].get("num_recomputed")
    compared = json.dumps(local.json("compare", *map(str, run_dirs), check=None))
    for key in SLOW:
        assert key.removeprefix("stages.") in compared
