"""The recipes whose pages have figures, each at the small scale of its page, and smaller still."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from docs.recipe_pages import read_speed, set_options
from docs.recipes_run import guide
from tests.end_to_end.demo import completion, copy_configs
from tests.end_to_end.driver import Driver


def _run(local: Driver, recipe: str, overrides: dict[str, str]) -> Path:
    copy_configs(local)
    run_dir = local.submit(f"configs/{recipe}.yaml", *set_options(overrides))
    status = local.wait(run_dir, timeout_s=900)
    assert status["status"] == "completed", status
    return run_dir


@pytest.mark.slow
def test_each_phase_of_the_guide_trains_the_same_model_on_the_same_tokens(local: Driver) -> None:
    run_dir = _run(local, "guide", {**guide.SMALL, "stages.start.config.num_train": "768"})
    speeds = {stage: read_speed(run_dir, stage) for stage in guide.PHASES}
    assert {speed.num_samples for speed in speeds.values()} == {768}
    assert len({speed.num_tokens for speed in speeds.values()}) == 1
    begun = completion(run_dir, "start")["result"]["num_parameters"]
    for stage in guide.TRAININGS:
        assert completion(run_dir, stage)["result"]["num_parameters"] == begun
    assert set(guide.blocks([run_dir])) == {"phases", "lines", "saved"}


@pytest.mark.slow
def test_the_guides_timer_sees_nothing_of_the_wait_that_the_records_have(local: Driver) -> None:
    overrides = {
        **guide.SMALL,
        "stages.start.config.num_train": "256",
        "stages.quick-wins.config.num_workers": "0",  # the loop itself loads: the wait is certain
    }
    run_dir = _run(local, "guide", overrides)
    told = completion(run_dir, "quick-wins")["result"]["guide_data_share"]
    assert told < 0.05
    assert read_speed(run_dir, "quick-wins").data_wait_share > 0.3
    found = json.loads(local.run("report", str(run_dir), "--json").stdout)["findings"]
    assert any(finding["rule_id"] == "data-wait:quick-wins" for finding in found)
