"""A run that a stage of another run submits: its jobs are none of the stage's own."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.end_to_end.driver import COMMAND, Driver, words_of

OUTER = """
name: outer
cluster: SCHEDULER
stages:
  before: {shell: "true", resources: {mem_gb: 0.2 WHERE}}
  outer:
    shell: SLURM_JOBS_RUNS_DIR=kept COMMAND inner.yaml
    after: before
    matrix: {x: [1]}
    resources: {mem_gb: 0.2 WHERE}
"""
INNER = """
name: inner
cluster: SCHEDULER
runs_dir: inner-runs
stages:
  inner:
    shell: env > "$SLURM_JOBS_OUTPUT_DIR/env-$RANK"
    resources: {nodes: 2, tasks_per_node: 2, cpus_per_task: 2, mem_gb: 0.2 WHERE}
"""


def _submit(driver: Driver, verb: str, scheduler: str, where: str = "") -> Path:
    """Submit the outer run, wait for its end and that of the inner one, and return its folder."""
    command = shlex.join([*COMMAND, verb])
    for name, text in (("inner.yaml", INNER), ("outer.yaml", OUTER)):
        placed = text.replace("SCHEDULER", scheduler).replace("WHERE", where)
        driver.write(name, placed.replace("COMMAND", command))
    assert driver.wait(driver.submit("outer.yaml"))["status"] == "completed"
    (run_dir,) = (driver.folder / "inner-runs").iterdir()
    assert words_of(driver.wait(run_dir)) == {"inner": "completed"}
    return run_dir


def _variables(run_dir: Path, rank: int) -> dict[str, str]:
    lines = (run_dir / f"data/inner/env-{rank}").read_text().splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def _require_its_own(run_dir: Path) -> None:
    """Every rank was told of its own stage alone, and kept what the user had set."""
    for rank in range(4):
        found = _variables(run_dir, rank)
        assert (found["SLURM_JOBS_STAGE"], found["SLURM_JOBS_RUN_DIR"]) == ("inner", str(run_dir))
        assert (found["LOCAL_RANK"], found["GROUP_RANK"]) == (str(rank % 2), str(rank // 2))
        assert found["OMP_NUM_THREADS"] == "2"
        assert found["SLURM_JOBS_RUNS_DIR"] == "kept"
        assert found.keys().isdisjoint({"SLURM_JOBS_BEFORE_OUTPUT_DIR", "SLURM_JOBS_MATRIX_X"})


def test_ranks_of_a_local_run_inside_a_stage_hear_of_their_own_stage_alone(
    local: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    _require_its_own(_submit(local, "run", "local"))


@pytest.mark.cluster
def test_ranks_of_a_job_that_a_stage_submits_know_who_they_are(on_slurm: Driver) -> None:
    _require_its_own(_submit(on_slurm, "submit", "auto", ", slurm: {partition: cpu}"))
