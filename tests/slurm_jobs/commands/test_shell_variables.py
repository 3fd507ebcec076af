"""Variables of the shell that apply to jobs, and those that jobs do not get."""

from pathlib import Path

import pytest

from tests.slurm_jobs.cli.command import Command, command
from tests.slurm_jobs.cli.specs.far_spec import SPEC, spec

__all__ = ["command", "spec"]


def test_a_plan_says_which_variables_of_the_shell_apply_and_which_do_not(
    spec: Path, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    spec.write_text(SPEC.replace("gpus_per_node: 1", "slurm: {partition: cpu}"))
    for name in ("SBATCH_ACCOUNT", "SBATCH_PARTITION", "SBATCH_OUTPUT", "SLURM_MEM_PER_CPU"):
        monkeypatch.setenv(name, "x")
    lines = command("plan", str(spec), "--no-scripts").result.splitlines()
    assert (
        "note: SBATCH_ACCOUNT=x of this shell applies to a: the spec has no `account` there"
        in lines
    )
    (ignored,) = [line for line in lines if "jobs do not get" in line]
    assert "SBATCH_OUTPUT, SBATCH_PARTITION" in ignored
    assert "SLURM_MEM_PER_CPU" in ignored
