"""Calls of Slurm commands that only ask: their environment and their errors."""

from pathlib import Path

import pytest

from slurm_jobs.base.errors import SchedulerError
from slurm_jobs.schedulers.slurm_commands import ask
from tests.slurm_jobs.schedulers.commands_folder import commands

__all__ = ["commands"]


def _write_command(folder: Path, name: str, lines: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("command", ["squeue", "sacct", "scancel", "scontrol", "sacctmgr"])
def test_a_question_does_not_see_the_options_of_the_shell(
    command: str, commands: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SQUEUE_PARTITION", "SACCT_LOCAL", "SCANCEL_STATE", "SLURM_DEBUG_FLAGS"):
        monkeypatch.setenv(name, "hidden")
    _write_command(commands, command, "env; printf 'caf\\351\\n'")
    lines = ask([command]).splitlines()
    names = {line.partition("=")[0] for line in lines}
    of_slurm = ("SLURM_", "SQUEUE_", "SACCT_", "SCANCEL_")
    assert {name for name in names if name.startswith(of_slurm)} == {
        "SLURM_TIME_FORMAT",
        "SLURM_BITSTR_LEN",
    }
    assert lines[-1] == "caf\ufffd"


def test_an_error_that_is_not_utf_8_is_reported_in_a_line(commands: Path) -> None:
    _write_command(commands, "squeue", "printf 'squeue: error: caf\\351\\n' >&2; exit 1")
    with pytest.raises(SchedulerError, match="exit code 1: caf\ufffd"):
        ask(["squeue"])
