"""Array tasks that work through several slices, on this machine, driven by the command alone."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.driver import Driver, stage_of, wait_for, words_of

PACKED = """
name: packed
cluster: local
stages:
  first:
    run: user_stages:work
    array: {num_slices: 5, slices_per_task: 2, max_running: 2}
    resources: {timeout_min: 1}
    config: {CONFIG}
  second: {run: "user_stages:work", after: first}
"""


def _submit(local: Driver, config: str = "") -> Path:
    local.write("spec.yaml", PACKED.replace("CONFIG", config))
    return local.submit("spec.yaml")


def _job_ids(run_dir: Path) -> list[str]:
    paths = sorted((run_dir / "attempts" / "first").iterdir())
    return [json.loads(path.read_text())["job_id"] for path in paths]


def test_each_task_works_through_its_slices_in_order(local: Driver) -> None:
    run_dir = _submit(local)
    status = local.wait(run_dir)
    assert words_of(status) == {"first": "completed", "second": "completed"}
    assert stage_of(status, "first")["slices_by_status"] == {"completed": "0-4"}
    assert _job_ids(run_dir) == ["1_0", "1_0", "1_1", "1_1", "1_2"]


def test_a_slice_that_fails_is_named_and_the_task_goes_on_with_the_next(local: Driver) -> None:
    run_dir = _submit(local, 'fail: {"2": 1}')
    status = local.wait(run_dir)
    assert stage_of(status, "first")["slices_by_status"] == {"completed": "0-1,3-4", "failed": "2"}
    assert words_of(status)["second"] == "stranded"
    resumed = local.json("resume", str(run_dir))
    assert [(job["stage"], job["slices"]) for job in resumed["jobs"]] == [
        ("first", "2"),
        ("second", "0"),
    ]
    assert local.wait(run_dir)["status"] == "completed"


@pytest.mark.slow
def test_slices_that_wait_for_their_turn_are_waiting_and_not_running(local: Driver) -> None:
    run_dir = _submit(local, "hang: [2]")
    wait_for((run_dir / "tasks/first/s00002.a0001/hangs-0").exists, "slice 2 at work")

    def others_ended() -> dict[str, str] | None:
        found: dict[str, str] = stage_of(local.status(run_dir), "first")["slices_by_status"]
        return found if found.get("completed") == "0-1,4" else None

    by_status = wait_for(others_ended, "the other tasks' end")
    assert (by_status["running"], by_status["waiting"]) == ("2", "3")
    local.run("cancel", str(run_dir), "--yes")
    status = local.wait(run_dir)
    assert stage_of(status, "first")["slices_by_status"]["cancelled"] == "2-3"


WAITS = """
name: waits
cluster: local
stages:
  a:
    shell: |
      cd $SLURM_JOBS_OUTPUT_DIR
      touch on-$SLURM_JOBS_SLICE
      [ $SLURM_JOBS_SLICE = FAILS ] && exit 1
      until [ -e go ]; do sleep 0.02; done
    array: {num_slices: 3, slices_per_task: 3}
  b: {shell: "true", after: a}
"""
"""Slices wait for the file `go`; one may fail."""


def _stop_during(local: Driver, run_dir: Path, slice_index: int) -> Any:
    """Signal that the time limit is near while a slice is at work, let that end, and wait."""
    wait_for((run_dir / f"data/a/on-{slice_index}").exists, f"slice {slice_index} at work")
    attempt = run_dir / f"attempts/a/s0000{slice_index}.a0001.json"
    os.kill(json.loads(attempt.read_text())["pid"], signal.SIGUSR2)
    (run_dir / "data/a/go").touch()
    return local.wait(run_dir)


def _starts(run_dir: Path) -> list[tuple[int, int, int]]:
    """Slice, attempt and how often the job had been requeued, of each attempt."""
    records = [json.loads(p.read_text()) for p in sorted((run_dir / "attempts/a").iterdir())]
    return [(r["slice_index"], r["attempt"], r["restart"]) for r in records]


def _num_requeues(local: Driver, run_dir: Path) -> int:
    said = local.run("logs", str(run_dir), "a", "--slice", "1", "--supervisor").stdout
    return said.count("requeued")


def test_a_task_that_is_stopped_between_slices_is_requeued_for_the_rest(
    local: Driver,
) -> None:
    run_dir = local.submit_text(WAITS.replace("FAILS", "none"))
    assert _stop_during(local, run_dir, 0)["status"] == "completed"
    assert _starts(run_dir) == [(0, 1, 0), (1, 1, 1), (2, 1, 1)]
    assert _num_requeues(local, run_dir) == 1


@pytest.mark.slow
def test_a_slice_that_failed_for_good_is_not_tried_again_after_a_requeue(local: Driver) -> None:
    run_dir = local.submit_text(WAITS.replace("FAILS", "0"))
    status = _stop_during(local, run_dir, 1)
    assert _starts(run_dir) == [(0, 1, 0), (1, 1, 0), (2, 1, 1)]
    assert stage_of(status, "a")["slices_by_status"] == {"completed": "1-2", "failed": "0"}
    assert words_of(status)["b"] == "stranded"


@pytest.mark.slow
def test_a_task_with_a_failed_slice_fails_even_when_it_is_stopped(
    local: Driver,
) -> None:
    run_dir = local.submit_text(
        WAITS.replace("FAILS", "0").replace("num_slices: 3", "num_slices: 2")
    )
    status = _stop_during(local, run_dir, 1)
    assert stage_of(status, "a")["slices_by_status"] == {"completed": "1", "failed": "0"}
    assert words_of(status)["b"] == "stranded"
    assert _num_requeues(local, run_dir) == 0


def test_a_slice_that_stopped_is_requeued_once_and_goes_on(local: Driver) -> None:
    run_dir = local.submit_stages(
        """\
  a:
    run: user_stages:stops_once
    array: {num_slices: 2, slices_per_task: 2}
"""
    )
    for index in (0, 1):
        attempt = run_dir / f"attempts/a/s0000{index}.a0001.json"
        wait_for(attempt.exists, f"slice {index}")
        os.kill(json.loads(attempt.read_text())["pid"], signal.SIGUSR2)
    assert local.wait(run_dir)["status"] == "completed"
    assert _starts(run_dir) == [(0, 1, 0), (0, 2, 1), (1, 1, 1), (1, 2, 2)]
    assert _num_requeues(local, run_dir) == 2
