"""configs/tinyvlm.yaml with tiny weights: what `scaling`, `compare` and `profile` read of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.demo import completion, copy_configs
from tests.end_to_end.driver import Driver
from tests.end_to_end.recipe_models import on_cpus, write_recipe_models

SPEC = "configs/tinyvlm.yaml"
SMALL = {
    "stages.chats.config.num_train": 160,
    "stages.chats.config.num_heldout": 8,
    "stages.train.config.phases.0.num_steps": 8,
    "stages.train.config.phases.1.num_steps": 24,
    "stages.train.config.profile.steps": "[28, 29]",
}
ONE_RANK = {
    "stages.train.resources.tasks_per_node": 1,
    "stages.train.config.strategy": "single",
    "stages.train.config.num_microbatches": 8,
}


def finished(driver: Driver, models: Path, **more: Any) -> Path:
    """The folder of a run that is complete."""
    run_dir = driver.submit(SPEC, *on_cpus(models, **SMALL, **more))
    assert driver.wait(run_dir, timeout_s=600)["status"] == "completed"
    return run_dir


@pytest.mark.slow
def test_one_and_two_ranks_are_a_series_and_a_prefetch_is_compared(
    local: Driver, tmp_path: Path
) -> None:
    copy_configs(local)
    models = write_recipe_models(tmp_path / "models")
    one = finished(local, models, **ONE_RANK)
    two = finished(local, models)
    prefetch = finished(local, models, **{"stages.train.config.sharding.forward_prefetch": 1})
    result = completion(two, "train")["result"]
    assert [phase["name"] for phase in result["phases"]] == ["projector", "lora"]
    assert result["strategy"] == "fsdp2"

    scaled = local.json("scaling", str(one), str(two))
    (series,) = scaled["series"]
    assert series["kind"] == "strong"
    assert [point["num_ranks"] for point in series["as_given"]] == [1, 2]

    said = local.run("compare", str(two), str(prefetch), check=None).stdout
    assert "train.config.sharding.forward_prefetch" in said
    assert len(local.json("profile", str(prefetch))["steps"]) == 2
