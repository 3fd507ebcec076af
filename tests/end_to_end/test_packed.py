"""Array tasks that work through several slices, on this machine, driven by the command alone."""

from __future__ import annotations

import json
from pathlib import Path

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


@pytest.mark.slow
def test_a_stop_between_slices_requeues_the_task_which_goes_on_with_the_rest(
    local: Driver,
) -> None:
    local.write(
        "spec.yaml",
        """
name: stops
cluster: local
stages:
  a:
    shell: "sleep 2.5; touch $SLURM_JOBS_OUTPUT_DIR/$SLURM_JOBS_SLICE"
    array: {num_slices: 3, slices_per_task: 3}
    resources: {timeout_min: 0.05, signal_lead_s: 100}
""",
    )
    run_dir = local.submit("spec.yaml")
    assert local.wait(run_dir)["status"] == "completed"
    records = [json.loads(p.read_text()) for p in sorted((run_dir / "attempts/a").iterdir())]
    assert [(r["slice_index"], r["attempt"]) for r in records] == [(0, 1), (1, 1), (2, 1)]
    assert records[0]["restart"] == 0
    assert records[-1]["restart"] > 0


@pytest.mark.slow
def test_a_task_with_a_failed_slice_fails_also_when_a_stop_came_during_the_last(
    local: Driver,
) -> None:
    local.write(
        "spec.yaml",
        """
name: worst
cluster: local
stages:
  a:
    shell: "[ $SLURM_JOBS_SLICE = 1 ] && sleep 7"
    array: {num_slices: 2, slices_per_task: 2}
    resources: {timeout_min: 0.1, signal_lead_s: 100}     # 12 s, stopped after 6
  b: {shell: "true", after: a}
""",
    )
    status = local.wait(local.submit("spec.yaml"))
    assert stage_of(status, "a")["slices_by_status"] == {"failed": "0", "completed": "1"}
    assert words_of(status)["b"] == "stranded"
