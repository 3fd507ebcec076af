"""Many small runs, the command of each killed at another of its writes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.cluster import Cluster, wait_until
from tests.end_to_end.driver import Driver

SPEC = """\
name: doomed
cluster: auto
stages:
  a:
    shell: >-
      test ! -e fails && echo $SLURM_JOBS_SLICE >> ran
      && echo $RANDOM$RANDOM > $SLURM_JOBS_OUTPUT_DIR/$SLURM_JOBS_SLICE
    array: {num_slices: 2}
  b:
    shell: echo b >> ran && cat $SLURM_JOBS_A_OUTPUT_DIR/? > $SLURM_JOBS_OUTPUT_DIR/all
    after: a
"""
"""What a task did stands in `ran`; the file `fails` beside the spec makes `a` fail.

Each run of a slice of `a` makes something else, which `b` puts together.
"""
_DOOMED = Path(__file__).with_name("doomed.py")


@dataclass(frozen=True)
class SmallRun:
    """A folder of the user's with one spec, and one run of it at most that has a plan."""

    driver: Driver

    @property
    def run_dir(self) -> Path | None:
        """The run, once there is something to resume."""
        plans = list(self.driver.folder.glob("runs/*/plans/0001.json"))
        return plans[0].parents[1] if plans else None

    def dies_at(self, number: int, *words: str) -> int | None:
        """Run the command to its death; how many writes it made if it came to its end."""
        argv = [sys.executable, str(_DOOMED), str(number), "/runs/", *words]
        assert self.driver.cluster is not None
        done = self.driver.cluster.run_as_user(argv, cwd=self.driver.folder, check=False)
        found = re.search(r"^writes: (\d+)$", done.stderr, re.MULTILINE)
        assert done.returncode == (-9 if found is None else 0), done.stdout + done.stderr
        return None if found is None else int(found[1])

    def mend(self) -> None:
        """What its user types next: `resume`, or `submit` again where that is the advice."""
        run_dir = self.run_dir
        if run_dir is not None:
            self.driver.run("resume", str(run_dir))
            return
        for half_made in self.driver.folder.glob("runs/*/run.json"):
            said = self.driver.run("resume", str(half_made.parent), check=2).stderr
            assert "submit the spec again" in said
        self.driver.run("submit", "spec.yaml")

    def is_of_one_piece(self) -> bool:
        """Whether what `b` made is of what `a` made last."""
        assert self.run_dir is not None
        made, joined = (self.run_dir / "data" / stage for stage in "ab")
        parts = [(made / str(index)).read_text() for index in range(2)]
        return (joined / "all").read_text() == "".join(parts)

    def ran(self) -> list[str]:
        """What the tasks did, sorted."""
        return sorted((self.driver.folder / "ran").read_text().split())


def small_run(parent: Driver, name: str) -> SmallRun:
    """A folder with the spec in it."""
    parent.write(f"{name}/spec.yaml", SPEC)
    return SmallRun(Driver(parent.folder / name, parent.cluster))


def ended_runs(parent: Driver, names: Iterable[str], *, failed: bool) -> list[SmallRun]:
    """Runs that are complete, or whose first stage has failed, and would not any more."""
    runs = [small_run(parent, name) for name in names]
    for run in runs:
        if failed:
            run.driver.write("fails", "")
        run.driver.run("submit", "spec.yaml")
    for run in runs:
        assert run.run_dir is not None
        run.driver.wait(run.run_dir, timeout_s=600)
        (run.driver.folder / "fails").unlink(missing_ok=True)
    # Slurm takes stranded jobs away in its own time, and `resume` makes three writes more for one
    # that it still has to cancel: only on an empty queue do all runs count the same writes.
    assert parent.cluster is not None
    wait_for_queue(parent.cluster)
    return runs


def wait_for_queue(cluster: Cluster) -> None:
    """Wait until nothing is queued."""
    wait_until(lambda: cluster.squeue() == [], "an empty queue", timeout_s=600)
