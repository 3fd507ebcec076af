"""A submit needs Slurm."""

from pathlib import Path

from tests.slurm_jobs.cli.command import Command
from tests.slurm_jobs.cli.specs.far_spec import spec

__all__ = ["spec"]


def test_a_submit_needs_slurm_and_says_so(spec: Path, command: Command) -> None:
    ended = command("submit", str(spec))
    assert ended.code == 3
    assert "`sbatch` was not found" in ended.err
    assert not (spec.parent / "runs").exists()
