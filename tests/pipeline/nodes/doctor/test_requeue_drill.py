"""The counter of a drill: saved on request, gone on from, and never made up."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.nodes.doctor import requeue_drill
from slurm_jobs.base.errors import StageConfigError, StageStoppedError
from slurm_jobs.base.files import read_json
from slurm_jobs.formats.node_records.doctor_facts import drill_name
from tests.contexts import make_context


@pytest.fixture
def context(tmp_path: Path) -> Any:
    return make_context("drill", tmp_path, deadline_unix_s=time.time() + 60)


def _stop_after(monkeypatch: pytest.MonkeyPatch, looks: int) -> None:
    left = iter(range(looks))
    monkeypatch.setattr(requeue_drill, "stop_requested", lambda: next(left, None) is None)


def test_the_counter_is_saved_on_request_and_the_next_attempt_goes_on(
    context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _stop_after(monkeypatch, 3)
    with pytest.raises(StageStoppedError, match="the counter is 3"):
        requeue_drill.run_drill({}, context)
    assert requeue_drill.run_drill({}, replace(context, attempt=2)) == {"count": 4}
    kept = read_json(context.output_dir / drill_name(0))
    assert (kept["started"]["attempt"], kept["returned"]["attempt"]) == (1, 2)
    assert kept["asked_unix_s"] <= kept["saved_unix_s"] <= kept["returned"]["unix_s"]
    assert kept["by"] == "SIGUSR2"


def test_a_time_limit_that_comes_unannounced_is_a_failure(context: Any) -> None:
    with pytest.raises(StageConfigError, match="no signal before it"):
        requeue_drill.run_drill({}, replace(context, deadline_unix_s=time.time() + 1))


def test_an_attempt_without_its_saved_state_fails(context: Any) -> None:
    with pytest.raises(StageConfigError, match="is gone"):
        requeue_drill.run_drill({}, replace(context, attempt=2))
