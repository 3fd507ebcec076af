"""Call of a Slurm command that only asks."""

from __future__ import annotations

import os
import subprocess

from slurm_jobs.base.errors import SchedulerError
from slurm_jobs.schedulers.slurm_environment import query_environment

COMMAND_TIMEOUT_S = 60


def ask(command: list[str]) -> str:
    """Return the standard output of a Slurm command, independent of the shell's settings.

    Times are seconds since 1970; bytes that are not UTF-8 are replaced.

    Raises:
        SchedulerError: the command is missing, failed, or did not answer in time.
    """
    try:
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=COMMAND_TIMEOUT_S,
            check=False,
            env=query_environment(os.environ),
        )
    except FileNotFoundError as error:
        message = f"`{command[0]}` was not found; is this a login node of the cluster?"
        raise SchedulerError(message) from error
    except subprocess.TimeoutExpired as error:
        message = f"`{command[0]}` did not answer within {COMMAND_TIMEOUT_S} s"
        raise SchedulerError(message) from error
    if result.returncode != 0:
        reason = result.stderr.strip().splitlines()[-1:] or ["no reason given"]
        why = reason[0].removeprefix(f"{command[0]}: error: ")
        message = f"`{command[0]}` failed with exit code {result.returncode}: {why}"
        raise SchedulerError(message)
    return result.stdout
