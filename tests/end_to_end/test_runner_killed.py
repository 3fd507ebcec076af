"""The local runner is killed: what is said at once, and one `resume` that ends the run well.

Its tasks hear of it by SIGTERM and come to their end all the same, when the test lets them.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from slurm_jobs.schedulers.local import LocalBook, LocalScheduler
from tests.end_to_end.driver import (
    COMMAND,
    Driver,
    kill,
    processes_naming,
    runner_pid,
    stage_of,
    wait_for,
    words_of,
)

SPEC = """
name: orphans
cluster: local
stages:
  count:
    run: user_stages:until_released
    array: {num_slices: 6, max_running: 2}
    config: {fails: FAILS}
  total:
    shell: "cat $SLURM_JOBS_RUN_DIR/data/count/out-* > $SLURM_JOBS_OUTPUT_DIR/sum"
    after: count
"""
NO_RUNNER = "the local runner has ended; `resume` starts one"


def _killed(local: Driver, fails: str = "[]") -> Path:
    """A run whose runner was killed while two slices were at work, which go on."""
    run_dir = local.submit_text(SPEC.replace("FAILS", fails))
    for index in (0, 1):
        wait_for((run_dir / f"data/count/at-work-{index}").exists, f"slice {index} at work")
    kill(runner_pid(run_dir))
    wait_for(lambda: not LocalBook(run_dir / "local").has_runner(), "the runner's end")
    return run_dir


def _release(run_dir: Path) -> None:
    (run_dir / "data/count/released").touch()


def _assert_all_right(local: Driver, run_dir: Path, *, twice: tuple[int, ...] = ()) -> None:
    assert words_of(local.wait(run_dir)) == {"count": "completed", "total": "completed"}
    assert (run_dir / "data/total/sum").read_text() == "012345"
    for index in range(6):
        begun = (run_dir / f"data/count/log-{index}").read_text()
        assert begun == "begins\n" * (2 if index in twice else 1)
    assert not list((run_dir / "data/count").glob("beside-*"))
    wait_for(lambda: not processes_naming(str(run_dir)), "the end of all")


def test_status_says_at_once_that_the_runner_was_killed(local: Driver) -> None:
    run_dir = _killed(local)
    status = local.status(run_dir)
    count = stage_of(status, "count")
    assert count["slices_by_status"] == {"running": "0-1", "stranded": "2-5"}
    assert count["slices"][2]["reason"] == NO_RUNNER
    assert words_of(status)["total"] == "stranded"
    said = local.run("status", str(run_dir)).stdout
    assert "the local runner has ended, and tasks that it left are still ending" in said
    assert f"resume {run_dir.relative_to(local.folder)}" in said
    _release(run_dir)
    watched = local.run("watch", str(run_dir), check=1).stdout
    assert "count: stranded (2/6, 4 stranded)" in watched
    assert watched.splitlines()[-1].startswith("next: ")
    assert "resume" in watched.splitlines()[-1]


def test_a_resume_right_after_the_kill_runs_again_only_what_fails(local: Driver) -> None:
    run_dir = _killed(local, fails="[1]")
    resume = subprocess.Popen([*COMMAND, "resume", str(run_dir)], cwd=local.folder)
    wait_for(LocalBook(run_dir / "local").has_runner, "the resume to wait for what was left")
    _release(run_dir)
    assert resume.wait(timeout=60) == 0
    _assert_all_right(local, run_dir, twice=(1,))


def test_a_resume_after_what_was_left_has_completed_keeps_it(local: Driver) -> None:
    run_dir = _killed(local)
    _release(run_dir)
    records = run_dir / "completions/count"
    wait_for(lambda: len(list(records.glob("*.completed.json"))) == 2, "two records")
    resumed = local.json("resume", str(run_dir))
    assert [(job["stage"], job["slices"]) for job in resumed["jobs"]] == [
        ("count", "2-5"),
        ("total", "0"),
    ]
    _assert_all_right(local, run_dir)


def test_a_new_runner_starts_what_waits_for_work_completed_before_a_kill(
    local: Driver,
) -> None:
    """As if the kill had come between a `resume`'s check and its start."""
    run_dir = _killed(local)
    _release(run_dir)
    LocalScheduler(run_dir=run_dir).start()
    _assert_all_right(local, run_dir)
    assert LocalBook(run_dir / "local").state("1_0").state == "COMPLETED"
