"""Slurm through submitit: renders the batch script, submits, cancels.

Queries of squeue and sacct are in `slurm_questions`.

submitit's pickle is not used: the job runs our supervisor in the batch step (`use_srun=False`), and
all files that it needs exist before sbatch is called.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slurm_jobs.common.errors import SchedulerError, SubmissionUnknownError
from slurm_jobs.common.files import write_bytes_atomic
from slurm_jobs.run.orders import JobOrder
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.schedulers import slurm_questions
from slurm_jobs.schedulers.batch_script import sbatch_options, setup_lines, supervisor_command
from slurm_jobs.schedulers.protocol import Answer, JobDependencies, Question
from slurm_jobs.schedulers.slurm_environment import sbatch_environment
from slurm_jobs.schedulers.slurm_output import is_refusal

_SUBMITTED = re.compile(r"^Submitted batch job (\d+)", re.MULTILINE)
_IDS_A_CALL = 400
"""Job ids in one scancel call: command lines and requests have a maximum size."""


class SlurmScheduler:
    """Scheduler for the cluster of this login node."""

    name = "slurm"

    def __init__(self, shell_variables: Mapping[str, str] | None = None) -> None:
        """Create it with the SBATCH_... variables of the submission, used where none is set now."""
        self._shell_variables = dict(shell_variables or {})

    def render(self, order: JobOrder, dependencies: JobDependencies) -> str:
        """Return the exact text of the batch script, rendered by submitit."""
        import submitit.slurm.slurm as submitit_slurm

        folder = RunPaths(Path(order.run_dir)).job_dir(order.token)
        text: str = submitit_slurm._make_sbatch_string(  # noqa: SLF001 - no public function
            command=supervisor_command(order),
            folder=folder,
            **_submitit_parameters(order, dependencies),
        )
        return text

    def submit(self, order: JobOrder, dependencies: JobDependencies) -> str:
        """Call sbatch with the rendered script and return the job's id.

        submitit's own call is not used: it passes the whole environment of this process to sbatch,
        and fails on output that is not UTF-8.
        """
        script = RunPaths(Path(order.run_dir)).job_dir(order.token) / "submission.sh"
        options = sbatch_options(order, dependencies)
        try:
            write_bytes_atomic(script, os.fsencode(self.render(order, dependencies)))
        except OSError as error:
            message = f"cannot write the batch script of stage `{order.stage}`: {error}"
            raise SchedulerError(message) from error
        try:
            result = subprocess.run(
                ["sbatch", str(script)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                encoding="utf-8",
                errors="replace",
                check=False,
                env=sbatch_environment({**self._shell_variables, **os.environ}, options),
            )
        except (FileNotFoundError, PermissionError) as error:
            message = f"sbatch could not be run for stage `{order.stage}`: {error}"
            raise SchedulerError(message) from error
        except OSError as error:
            message = f"whether sbatch took the job of stage `{order.stage}` is not known: {error}"
            raise SubmissionUnknownError(message) from error
        if result.returncode != 0:
            raise _failure(order.stage, result)
        match = _SUBMITTED.search(result.stdout)
        if match is None:
            output = " ".join(result.stdout.split()) or "nothing"
            message = (
                f"whether sbatch took the job of stage `{order.stage}` is not known: it ended well "
                f"and named no job, but said: {output}"
            )
            raise SubmissionUnknownError(message)
        return match[1]

    def start(self) -> None:
        """Do nothing: Slurm starts the jobs, and no process stays here."""

    def settle(self) -> None:
        """Do nothing: Slurm's daemons supervise the jobs."""

    def find(self, job_names: Sequence[str]) -> Mapping[str, str]:
        """Return ids by name, from squeue and, for jobs that it has dropped, from sacct."""
        return slurm_questions.find(job_names)

    def query(self, question: Question) -> Answer:
        """Query states with one squeue and one sacct call, however many tasks there are."""
        return slurm_questions.query(question)

    def accounting(self, question: Question) -> Answer:
        """Query every start of every task and its usage, with one sacct call."""
        return slurm_questions.accounting(question)

    def cancel(self, job_ids: Sequence[str]) -> None:
        """Cancel jobs with scancel; jobs that have ended are no error."""
        for start in range(0, len(job_ids), _IDS_A_CALL):
            slurm_questions.ask(["scancel", "--quiet", *job_ids[start : start + _IDS_A_CALL]])


def _submitit_parameters(order: JobOrder, dependencies: JobDependencies) -> dict[str, Any]:
    # submitit would rename and round options that it knows, so they are passed raw through
    # additional_parameters. wckey=None drops its hard-coded one.
    return {
        "setup": setup_lines(order),
        "use_srun": False,
        "stderr_to_stdout": True,
        "wckey": None,
        "additional_parameters": _underscored(sbatch_options(order, dependencies)),
    }


def _underscored(options: Mapping[str, Any]) -> dict[str, Any]:
    """Rename options for submitit, which prints `a_b` as `--a-b` and stores its defaults so."""
    return {
        key if key == "open-mode" else key.replace("-", "_"): value
        for key, value in options.items()
    }


def _failure(stage: str, result: subprocess.CompletedProcess[str]) -> SchedulerError:
    text = result.stderr.strip() or result.stdout
    reason = _last_line(text)
    if result.returncode > 0 and is_refusal(text):  # a killed one may have submitted
        return SchedulerError(f"sbatch refused the job of stage `{stage}`: {reason}")
    message = f"sbatch left open whether it took the job of stage `{stage}`: {reason}"
    return SubmissionUnknownError(message)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    wanted = [line for line in lines if "sbatch: error" in line or "sbatch: fatal" in line] or [
        line for line in lines if line.startswith("sbatch: ")
    ]
    return (wanted or lines or ["no reason given"])[-1]
