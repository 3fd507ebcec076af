"""The recipes whose pages have figures, each at the small scale of its page, and smaller still."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.tools.recipe_pages import read_speed, set_options
from docs.tools.recipes_run import guide, packing
from tests.end_to_end.demo import completion, copy_configs
from tests.end_to_end.driver import Driver


def _run(local: Driver, recipe: str, overrides: dict[str, str]) -> Path:
    copy_configs(local)
    run_dir = local.submit(f"configs/{recipe}.yaml", *set_options(overrides))
    status = local.wait(run_dir, timeout_s=900)
    assert status["status"] == "completed", status
    return run_dir


@pytest.mark.slow
def test_all_phases_of_the_guide_train_one_model_and_record_the_wait(
    local: Driver,
) -> None:
    """The same samples and tokens in each phase; the guide's timer sees nothing of the wait."""
    overrides = {
        **guide.SMALL,
        "stages.start.config.num_train": "256",
        "stages.quick-wins.config.num_workers": "0",  # the loop itself loads: the wait is certain
    }
    run_dir = _run(local, "guide", overrides)
    speeds = {stage: read_speed(run_dir, stage) for stage in guide.PHASES}
    polished = speeds.pop("polished")  # grouped, or packed without a last batch not filled up
    assert {speed.num_samples for speed in speeds.values()} == {256}
    assert 0.9 * 256 < polished.num_samples <= 256
    assert len({speed.num_tokens for speed in speeds.values()}) == 1
    begun = completion(run_dir, "start")["result"]["num_parameters"]
    for stage in guide.TRAININGS:
        assert completion(run_dir, stage)["result"]["num_parameters"] == begun
    told = completion(run_dir, "quick-wins")["result"]["guide_data_share"]
    waited = speeds["quick-wins"].data_wait_share
    assert waited > 0.3
    assert told < waited / 3  # not nothing: on a busy machine any moment may be long


@pytest.mark.slow
def test_packed_rows_teach_the_same_samples_in_fewer_slots(local: Driver) -> None:
    config = "{num_train: 512, num_pictures: 48, image_size: 64}"
    run_dir = _run(local, "packing", {**packing.SMALL, "stages.chats.config": config})
    padded, grouped, packed = (read_speed(run_dir, stage) for stage in packing.TRAININGS)
    assert padded.num_samples == grouped.num_samples == 512
    assert 0.9 * 512 < packed.num_samples <= 512  # without a last batch that does not fill up
    assert packed.padding_share < grouped.padding_share < padded.padding_share
    assert packed.padding_share < 0.05
    assert padded.padding_share > 0.3
