"""Python API of the commands: functions and one class, for notebooks and scripts.

    from slurm_jobs.api import Run, plan, submit

    run = submit("train.yaml", overrides=["stages.train.resources.nodes=1"])
    run.wait()
    print(run.status().status)

Errors are those of `slurm_jobs.base.errors`; a spec with problems raises
`SpecError`, whose `problems` have file, line and column.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_jobs.commands import cancel as _cancel
from slurm_jobs.commands import submit as _submit
from slurm_jobs.commands.cluster_limits import limits_if_near
from slurm_jobs.commands.plan_preview import plan_spec
from slurm_jobs.commands.resume import ResumeRequest, Resumption, resume
from slurm_jobs.commands.run_search.find_run import find_run
from slurm_jobs.commands.spec_reading.read_spec import load, profile_anywhere
from slurm_jobs.formats.expand import expand_typed
from slurm_jobs.plan.planned import Plan
from slurm_jobs.run.observe import status_of
from slurm_jobs.run.polling import in_doubt, views_until_over
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_meta
from slurm_jobs.status.run_status import RunStatus

__all__ = ["Plan", "ResumeRequest", "Resumption", "Run", "RunStatus", "plan", "submit"]

PathText = str | os.PathLike[str]


def plan(spec: PathText, *, overrides: Sequence[str] = (), limit: int | None = None) -> Plan:
    """Return the jobs of a spec without submitting anything.

    Raises:
        SpecError: with every problem of the spec.
    """
    loaded = load(Path(expand_typed(os.fspath(spec))), overrides=overrides, limit=limit)
    profile = profile_anywhere(loaded)
    return plan_spec(loaded, profile, limits_if_near(profile))


def submit(spec: PathText, *, overrides: Sequence[str] = (), limit: int | None = None) -> Run:
    """Submit all jobs of a spec and return at once.

    Raises:
        SpecError: with every problem of the spec, or what the cluster could never run.
        SchedulerError: a job was refused, or the scheduler could not be queried.
    """
    loaded = load(Path(expand_typed(os.fspath(spec))), overrides=overrides, limit=limit)
    return Run(_submit.submit(loaded).paths.run_dir)


@dataclass(frozen=True, slots=True)
class Run:
    """One run and its folder."""

    run_dir: Path

    @classmethod
    def find(cls, text: str | None = None) -> Run:
        """Return the run of a folder, the start of an id, or a spec file; the newest for None.

        Raises:
            InputError: there is no such run.
        """
        return cls(find_run(text))

    def status(self) -> RunStatus:
        """Return the status of the run, from its records and one query of the scheduler."""
        return status_of(self.run_dir, fresh=False)

    def wait(self) -> RunStatus:
        """Wait until nothing runs and nothing waiting can start; return the final status.

        Raises:
            OSError: the run's files cannot be read, for a minute (2 s on this machine).
        """
        scheduler = read_meta(RunPaths(self.run_dir)).scheduler
        views = views_until_over(self.status, lambda status: status, in_doubt, scheduler)
        (last,) = deque(views, maxlen=1)
        return last

    def resume(self, request: ResumeRequest | None = None) -> Resumption:
        """Submit the missing work and nothing else; see `ResumeRequest`.

        Raises:
            RunFailedError: another command is submitting for this run.
            SchedulerError: the scheduler could not be queried, or refused a job.
        """
        return resume(self.run_dir, request or ResumeRequest())

    def cancel(self, stage: str | None = None) -> list[str]:
        """Cancel all unfinished work of one stage or of all stages; return the cancelled ids.

        Raises:
            SchedulerError: the scheduler could not be queried.
        """
        return _cancel.cancel(self.run_dir, stage=stage)

    def report(self) -> Path:
        """Write the report again from the records, and return the path of its page.

        Raises:
            OSError: the page cannot be written, or the run is another user's.
        """
        from slurm_jobs.report.stage import ask, build_and_write

        paths = RunPaths(self.run_dir)
        answers = ask(paths)
        build_and_write(paths, answers.accounting, answer=answers.answer)
        return paths.report_html
