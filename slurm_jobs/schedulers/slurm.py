"""Slurm through submitit: renders the batch script, submits, asks squeue and sacct, cancels.

submitit is used without its pickle: the job runs our own supervisor in the
batch step (`use_srun=False`), and what it needs exists before sbatch is called.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from slurm_jobs.common.errors import SchedulerError, SubmissionUnknownError
from slurm_jobs.common.records import TaskAccounting
from slurm_jobs.run.orders import JobOrder
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.schedulers.batch_script import sbatch_options, setup_lines, supervisor_command
from slurm_jobs.schedulers.protocol import Answer, JobDependencies
from slurm_jobs.schedulers.slurm_output import (
    SACCT_FIELDS,
    SQUEUE_FORMAT,
    is_refusal,
    parse_sacct,
    parse_squeue,
)

COMMAND_TIMEOUT_S = 60
_SQUEUE = ["squeue", "--me", "--noheader", "--array", "--states=all", "-o", SQUEUE_FORMAT]
_IDS_A_CALL = 400
"""Job ids of one scancel; a command line has its limits, and a request its size."""


class SlurmScheduler:
    """The cluster that this machine is a login node of."""

    name = "slurm"

    def render(self, order: JobOrder, dependencies: JobDependencies) -> str:
        """The exact text of the batch script, made by submitit."""
        import submitit.slurm.slurm as submitit_slurm

        folder = RunPaths(Path(order.run_dir)).job_dir(order.token)
        text: str = submitit_slurm._make_sbatch_string(  # noqa: SLF001 - no public way to the text
            command=supervisor_command(order),
            folder=folder,
            **_submitit_parameters(order, dependencies),
        )
        return text

    def submit(self, order: JobOrder, dependencies: JobDependencies) -> str:
        """Call sbatch through submitit and return the job's id."""
        import submitit
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        folder = RunPaths(Path(order.run_dir)).job_dir(order.token)
        try:
            executor = submitit.SlurmExecutor(folder)
            executor.update_parameters(**_submitit_parameters(order, dependencies))
            job = executor._submit_command(supervisor_command(order))  # noqa: SLF001 - see above
        except FailedJobError as error:
            reason = _last_line(error)
            if is_refusal(str(error)):
                message = f"sbatch refused the job of stage `{order.stage}`: {reason}"
                raise SchedulerError(message) from error
            message = f"sbatch left open whether it took the job of stage `{order.stage}`: {reason}"
            raise SubmissionUnknownError(message) from error
        except FailedSubmissionError as error:
            message = (
                f"sbatch's answer for stage `{order.stage}` makes no sense: {_last_line(error)}"
            )
            raise SubmissionUnknownError(message) from error
        except (FileNotFoundError, RuntimeError) as error:
            message = f"sbatch could not be run for stage `{order.stage}`: {error}"
            raise SchedulerError(message) from error
        except OSError as error:  # such as a full disk, when the job may be in the queue already
            message = f"whether sbatch took the job of stage `{order.stage}` is not known: {error}"
            raise SubmissionUnknownError(message) from error
        return str(job.job_id)

    def start(self) -> None:
        """Nothing to do: the jobs are in Slurm's hands, and no process stays here."""

    def find(self, job_names: Sequence[str]) -> Mapping[str, str]:
        """Ids of jobs by name, from squeue and, where it has forgotten them, sacct."""
        names = ",".join(job_names)
        found: dict[str, str] = {}
        text = _ask(
            ["squeue", "--me", "--noheader", "--states=all", "--name", names, "-o", "%F|%j"]
        )
        for line in text.splitlines():
            job_id, _, name = line.partition("|")
            found[name] = job_id
        missing = [name for name in job_names if name not in found]
        if missing:
            text = _ask(
                [
                    *("sacct", "-X", "-n", "-P", "-S", "now-30days"),
                    *("--name", ",".join(missing), "--format", "JobID,JobName"),
                ]
            )
            for line in text.splitlines():
                job_id, _, name = line.partition("|")
                found[name] = job_id.partition("_")[0]
        return found

    def query(self, job_ids: Sequence[str], *, since_unix_s: float) -> Answer:
        """One squeue call and one sacct call, however many tasks."""
        with ThreadPoolExecutor(max_workers=1) as pool:  # each waits a minute for a dead daemon
            queue = pool.submit(_ask, _SQUEUE)
            tasks, problems = self._sacct(job_ids, since_unix_s, details=False)
            newest = {task.job_id: task for task in tasks}
            knows_the_living = True
            try:
                living = parse_squeue(queue.result(), set(job_ids))
                newest.update({k: v for k, v in living.items() if _is_newer(v.state, k, newest)})
            except SchedulerError as error:
                problems.append(f"squeue: {error}")
                knows_the_living = False
        return Answer(
            tasks=newest,
            problems=tuple(problems),
            asked_unix_s=time.time(),
            knows_the_living=knows_the_living,
        )

    def accounting(self, job_ids: Sequence[str], *, since_unix_s: float) -> Answer:
        """One sacct call: every start of every task, with what its steps used."""
        tasks, problems = self._sacct(job_ids, since_unix_s, details=True)
        return Answer(
            tasks={task.job_id: task for task in tasks},
            starts=tuple(tasks),
            problems=tuple(problems),
            asked_unix_s=time.time(),
        )

    def _sacct(
        self, job_ids: Sequence[str], since_unix_s: float, *, details: bool
    ) -> tuple[list[TaskAccounting], list[str]]:
        try:
            return parse_sacct(_ask(_sacct_command(job_ids, since_unix_s, details=details))), []
        except SchedulerError as error:
            return [], [f"sacct: {error}"]

    def cancel(self, job_ids: Sequence[str]) -> None:
        """scancel; jobs that have ended already are no error."""
        for start in range(0, len(job_ids), _IDS_A_CALL):
            _ask(["scancel", "--quiet", *job_ids[start : start + _IDS_A_CALL]])


_LIVE_STATES = {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "REQUEUED"}


def _is_newer(queue_state: str, job_id: str, accounted: Mapping[str, Any]) -> bool:
    """Squeue is right about what lives; about what has ended, sacct knows more where it has it."""
    if queue_state in _LIVE_STATES:
        return True
    return job_id not in accounted or accounted[job_id].state in _LIVE_STATES


def _submitit_parameters(order: JobOrder, dependencies: JobDependencies) -> dict[str, Any]:
    # submitit's own words where it has them would be renamed and rounded; the raw
    # options go through additional_parameters, wckey=None drops its hard-coded one.
    return {
        "setup": setup_lines(order),
        "use_srun": False,
        "stderr_to_stdout": True,
        "wckey": None,
        "additional_parameters": _underscored(sbatch_options(order, dependencies)),
    }


def _underscored(options: Mapping[str, Any]) -> dict[str, Any]:
    """Submitit prints `a_b` as `--a-b`; its defaults, to be replaced, stand under such names."""
    return {
        key if key == "open-mode" else key.replace("-", "_"): value
        for key, value in options.items()
    }


def _sacct_command(job_ids: Sequence[str], since_unix_s: float, *, details: bool) -> list[str]:
    # sacct's default window starts at midnight; an hour's grace covers clocks that differ.
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(since_unix_s - 3600))
    command = ["sacct", "-n", "-P", "-S", since, "-j", ",".join(job_ids)]
    scope = ["--duplicates"] if details else ["-X"]
    return [*command, *scope, "--format", ",".join(SACCT_FIELDS)]


def _ask(command: list[str]) -> str:
    """Standard output of a Slurm command; times come as seconds since 1970.

    Raises:
        SchedulerError: it is missing, failed, or did not answer in time.
    """
    try:
        result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
            env=_environment(),
        )
    except FileNotFoundError as error:
        message = f"`{command[0]}` was not found; is this a login node of the cluster?"
        raise SchedulerError(message) from error
    except subprocess.TimeoutExpired as error:
        message = f"`{command[0]}` did not answer within {COMMAND_TIMEOUT_S} s"
        raise SchedulerError(message) from error
    if result.returncode != 0:
        reason = result.stderr.strip().splitlines()[-1:] or ["no reason given"]
        message = f"`{command[0]}` failed with exit code {result.returncode}: {reason[0]}"
        raise SchedulerError(message)
    return result.stdout


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "SLURM_TIME_FORMAT": "%s"}


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    wanted = [line for line in lines if "sbatch: error" in line]
    return (wanted or lines or ["no reason given"])[-1]
