"""Slurm through submitit: renders the batch script, submits, cancels.

What is asked of squeue and sacct stands in `slurm_questions`.

submitit is used without its pickle: the job runs our own supervisor in the
batch step (`use_srun=False`), and what it needs exists before sbatch is called.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slurm_jobs.common.errors import SchedulerError, SubmissionUnknownError
from slurm_jobs.run.orders import JobOrder
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.schedulers import slurm_questions
from slurm_jobs.schedulers.batch_script import sbatch_options, setup_lines, supervisor_command
from slurm_jobs.schedulers.protocol import Answer, JobDependencies, Question
from slurm_jobs.schedulers.slurm_output import is_refusal
from slurm_jobs.schedulers.surrounding_job import of_surrounding_job

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
            with _without_surrounding_job():
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
                f"whether sbatch took the job of stage `{order.stage}` is not known: it ended well "
                f"and named no job, but said: {_quoted(error)}"
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

    def settle(self) -> None:
        """Nothing to do: Slurm's daemons look after its jobs."""

    def find(self, job_names: Sequence[str]) -> Mapping[str, str]:
        """Ids of jobs by name, from squeue and, where it has forgotten them, sacct."""
        return slurm_questions.find(job_names)

    def query(self, question: Question) -> Answer:
        """One squeue call and one sacct call, however many tasks."""
        return slurm_questions.query(question)

    def accounting(self, question: Question) -> Answer:
        """One sacct call: every start of every task, with what its steps used."""
        return slurm_questions.accounting(question)

    def cancel(self, job_ids: Sequence[str]) -> None:
        """scancel; jobs that have ended already are no error."""
        for start in range(0, len(job_ids), _IDS_A_CALL):
            slurm_questions.ask(["scancel", "--quiet", *job_ids[start : start + _IDS_A_CALL]])


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


@contextmanager
def _without_surrounding_job() -> Iterator[None]:
    """Call sbatch without the variables of the job that this process runs in, if it does.

    sbatch passes them on, and the new job's srun, supervisor and ranks would take another job's
    tasks, memory, restarts and ranks for their own. What a user sets for sbatch (SBATCH_...) stays,
    but for the name: sbatch prefers it to the script's, by which a job without an id is looked up,
    and told from strangers with the same id.
    """
    names = of_surrounding_job(os.environ, in_slurm_job="SLURM_JOB_ID" in os.environ)
    foreign = {name: os.environ[name] for name in {*names, "SBATCH_JOB_NAME"} & os.environ.keys()}
    for name in foreign:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(foreign)


def _quoted(error: Exception) -> str:
    """What sbatch said, which submitit quotes among advice on its own objects; in one line."""
    text = str(error)
    said = text[text.find('"') + 1 : text.rfind('"')]
    return " ".join(said.split()) or "nothing"


def _last_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    wanted = [line for line in lines if "sbatch: error" in line] or [
        line for line in lines if line.startswith("sbatch: ")
    ]
    return (wanted or lines or ["no reason given"])[-1]
