"""`submit` and `resume` killed at each of their writes: nothing is lost, nothing runs twice."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from tests.cluster.cluster import Cluster
from tests.end_to_end.driver import Driver, wait_for
from tests.end_to_end.faults.killed_commands import SmallRun, ended_runs, small_run, wait_for_queue
from tests.end_to_end.faults.page import note
from tests.end_to_end.faults.scene import Scene

pytestmark = [pytest.mark.cluster]

SEED = 20261121
NUM_CHOSEN = 3
"""Of the writes of each command, those that the short part tries."""
COMMANDS = {
    "submit": ["submit", "spec.yaml"],
    "resume": ["resume"],
    "resume --again": ["resume", "--again", "a"],
}


def _runs(verb: str, on_slurm: Driver, names: Sequence[str]) -> list[SmallRun]:
    """Runs that this verb is the next for."""
    if verb == "submit":
        return [small_run(on_slurm, name) for name in names]
    return ended_runs(on_slurm, names, failed=verb == "resume")


def _num_writes(verb: str, on_slurm: Driver) -> int:
    (run,) = _runs(verb, on_slurm, ["whole"])
    number = run.dies_at(0, *COMMANDS[verb])
    assert number is not None
    assert number > NUM_CHOSEN
    return number


def _kill_at(verb: str, numbers: Sequence[int], on_slurm: Driver, cluster: Cluster) -> None:
    runs = _runs(verb, on_slurm, [f"write-{number}" for number in numbers])
    for number, run in zip(numbers, runs, strict=True):
        assert run.dies_at(number, *COMMANDS[verb]) is None
        run.mend()
    wait_for_queue(cluster)
    for run in runs:
        _require_work(run, cluster, is_again=verb == "resume --again")


def _require_work(run: SmallRun, cluster: Cluster, *, is_again: bool = False) -> None:
    """Each task ran once; what was to run again did so with what comes after it, or not at all."""
    run_dir = run.run_dir
    assert run_dir is not None
    status = run.driver.wait(run_dir)
    assert status["status"] == "completed", status
    once = ["0", "1", "b"]
    assert run.ran() in ([once, sorted([*once, *once])] if is_again else [once]), run.driver.folder
    assert run.is_of_one_piece(), run.driver.folder
    scene = Scene(driver=run.driver, cluster=cluster, chance=random.Random(0), run_dir=run_dir)
    scene.require_clean_queue()


@pytest.mark.slow
@pytest.mark.parametrize("verb", COMMANDS)
def test_a_command_killed_at_a_random_write_is_repaired_by_the_next(
    verb: str, on_slurm: Driver, cluster: Cluster
) -> None:
    """A short part of the slow test below."""
    writes = range(1, _num_writes(verb, on_slurm) + 1)
    chosen = random.Random(f"{SEED} {verb}").sample(writes, NUM_CHOSEN)
    _kill_at(verb, sorted(chosen), on_slurm, cluster)


def _submit_dies_with_sbatch_at_work(run: SmallRun, sbatch: str) -> None:
    """Submit with this in place of sbatch, which kills the command, its parent."""
    assert run.driver.cluster is not None
    version = "test $1 = --version && exec /usr/bin/sbatch --version"  # asked for provenance
    run.driver.write("bin/sbatch", f"#!/bin/bash\n{version}\n{sbatch}\n").chmod(0o755)
    path = f"{run.driver.folder}/bin:{run.driver.cluster.env()['PATH']}"
    argv = [*run.driver.command, "submit", "spec.yaml"]
    done = run.driver.cluster.run_as_user(
        argv, cwd=run.driver.folder, env={"PATH": path}, check=False
    )
    assert done.returncode == -9, done.stdout + done.stderr


def test_a_job_whose_id_was_never_written_down_is_adopted(
    on_slurm: Driver, cluster: Cluster
) -> None:
    run = small_run(on_slurm, "adopted")
    _submit_dies_with_sbatch_at_work(run, '/usr/bin/sbatch "$@" && touch taken && kill -9 $PPID')
    wait_for((run.driver.folder / "taken").exists, "sbatch to be answered")
    run.mend()
    wait_for_queue(cluster)
    _require_work(run, cluster)
    assert run.run_dir is not None
    assert len(list(run.run_dir.glob("jobs/*"))) == 2  # a and b, once each


def test_a_job_that_slurm_accepts_after_its_resubmission_does_no_work(
    on_slurm: Driver, cluster: Cluster
) -> None:
    run = small_run(on_slurm, "late")
    late = "kill -9 $PPID; for _ in {1..1200}; do test -e go && break; sleep 0.05; done"
    sbatch = '/usr/bin/sbatch "$@" > /dev/null && touch handed-in'
    _submit_dies_with_sbatch_at_work(run, f"{late}; {sbatch}")
    run.mend()
    run.driver.write("go", "")
    wait_for((run.driver.folder / "handed-in").exists, "the late sbatch")
    wait_for_queue(cluster)
    assert run.run_dir is not None
    assert len(list(run.run_dir.glob("jobs/*"))) == 3  # a, a again, b
    _require_work(run, cluster)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("verb", COMMANDS)
def test_a_command_killed_at_any_of_its_writes_is_repaired_by_the_next(
    verb: str, on_slurm: Driver, cluster: Cluster
) -> None:
    number = _num_writes(verb, on_slurm)
    _kill_at(verb, range(1, number + 1), on_slurm, cluster)
    note(f"`{verb}` killed before each of its writes", number, "each task ran once")
