"""Slurm through submitit: renders the batch script, submits, queries, cancels.

submitit's pickle is not used: the job runs our supervisor in the batch step (`use_srun=False`), and
all files that it needs exist before sbatch is called.

squeue knows every living job, and ended jobs for some minutes. sacct knows ended jobs, unless the
site keeps no accounts, its database is down, or it lags behind. So squeue decides about living
jobs, or the controller where squeue is behind (`agreement`). A missing answer of sacct is reported,
and never read as success or failure.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from slurm_jobs.base.errors import SchedulerError, SubmissionUnknownError
from slurm_jobs.base.files import write_bytes_atomic
from slurm_jobs.base.json_values import CLOCKS_APART_S
from slurm_jobs.cluster.slurm_output import parse_config
from slurm_jobs.formats.records.attempt_records import TaskAccounting
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.run_folder.orders import JobOrder
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.schedulers.agreement import JobSources, answer_of, to_confirm
from slurm_jobs.schedulers.batch_script import sbatch_options, setup_lines, supervisor_command
from slurm_jobs.schedulers.controller import (
    NoControllerError,
    ask_controller,
    ask_controller_for_all,
    entries,
    parse_jobs,
)
from slurm_jobs.schedulers.job_rows import (
    SACCT_FIELDS,
    SQUEUE_FORMAT,
    is_refusal,
    parse_sacct,
    parse_squeue,
    split_rows,
)
from slurm_jobs.schedulers.protocol import (
    Answer,
    JobDependencies,
    Question,
    SourceProblem,
    is_of,
)
from slurm_jobs.schedulers.slurm_commands import ask
from slurm_jobs.schedulers.slurm_environment import sbatch_environment

MAX_IDS_NAMED = 8000
"""Limit for ids in a sacct call: Linux takes 128 KiB per argument, and an id up to 12 bytes."""
SWITCHED_OFF = "accounting storage is disabled"
"""Output of sacct, with varying capitals, if `AccountingStorageType` is unset or none."""
NO_ACCOUNTS = (
    "this cluster keeps no accounts (sacct is switched off): Slurm reports an ended job only for "
    "some minutes; after that only the job's own records show how it ended"
)
_SQUEUE = ["squeue", "--all", "--states=all"]
"""`--all` includes jobs in partitions that a site hides. The header shows that squeue has used the
format even if there is no job."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Accounts:
    """Answer of sacct, or the reason why there is none."""

    tasks: list[TaskAccounting] = field(default_factory=list)
    problems: tuple[SourceProblem, ...] = ()
    notes: tuple[str, ...] = ()


def find(job_names: Sequence[str]) -> Mapping[str, str]:
    """Return the ids of the jobs with these names, by name, except of jobs that Slurm refused.

    1. squeue is asked for the names.
    2. If it lacks some, it may be behind. So the controller is asked, and for all of its jobs,
       because it cannot search by name.
    3. A job that the controller lacks, too, may have ended. sacct is asked for it.

    If sacct fails, such a job counts as not submitted. No work is done twice by that: the
    controller knows each living job, an ended job has left records, and a job that appears later
    exits because a newer intent supersedes it.

    Raises:
        SchedulerError: squeue or the controller failed.
    """
    text = ask([*_SQUEUE, "--me", "--name", ",".join(job_names), "-o", "%i|%T|%N|%j"])
    ids = _accepted(split_rows(text, 4, "squeue"))
    missing = [name for name in job_names if name not in ids]
    if missing:
        known = entries(ask_controller_for_all())
        rows = [[job["job_id"], job["JobState"], job["NodeList"], job["name"]] for job in known]
        accepted = _accepted(rows)
        ids.update({name: accepted[name] for name in missing if name in accepted})
        missing = [name for name in missing if name not in ids]
    if missing:
        command = [*_sacct_of_cluster(), "-X", "-S", "now-30days", "--name", ",".join(missing)]
        try:
            text = ask([*command, "--format", "JobID,State,NodeList,JobName"])
            ids.update(_accepted(split_rows(text, 4, "sacct")))
        except SchedulerError:
            return ids
    return ids


def _accepted(rows: Sequence[Sequence[str]]) -> dict[str, str]:
    """Return ids by name from rows of id, state, nodes and name, without refused jobs.

    Some refusals ("Requested node configuration is not available") leave a record of a job that has
    FAILED and never had a node.
    """
    taken = {}
    for job_id, state, nodes, name in rows:
        if state != "FAILED" or nodes not in {"", "(null)", "None assigned"}:
            taken[name] = job_id.partition("_")[0]
    return taken


def query(question: Question) -> Answer:
    """Query states with one squeue and one sacct call in parallel, however many tasks there are.

    The controller is asked about the jobs for which the other two prove nothing, see `agreement`.
    """
    asked_unix_s = time.time()
    with ThreadPoolExecutor(max_workers=1) as pool:  # each waits a minute for a dead daemon
        queue = pool.submit(
            ask, [*_SQUEUE, f"--user={_users(question)}", "--array", "-o", SQUEUE_FORMAT]
        )
        accounts = _sacct(question, details=False)
        try:
            queued: dict[JobKey, TaskAccounting] | None = parse_squeue(
                queue.result(), question.jobs
            )
            problems = accounts.problems
        except SchedulerError as error:
            queued = None
            problems = (*accounts.problems, SourceProblem("squeue", str(error)))
    accounted = newest_starts(accounts.tasks)
    if queued is None:
        return Answer(
            tasks=accounted,
            problems=problems,
            notes=accounts.notes,
            asked_unix_s=asked_unix_s,
            knows_the_living=False,
        )
    sources = JobSources(queued=queued, accounted=accounted)
    jobs = to_confirm(question, sources, asked_unix_s)
    if jobs:
        try:
            text = ask_controller([job.job_id for job in jobs])
            controlled = parse_jobs(text, question.jobs)
            sources = replace(sources, controlled=controlled, answered=frozenset(jobs))
        except NoControllerError as error:
            sources = replace(sources, without_controller=frozenset(jobs))
            problems = (*problems, SourceProblem("scontrol", str(error)))
        except SchedulerError as error:
            sources = replace(sources, silent=frozenset(jobs))
            problems = (*problems, SourceProblem("scontrol", str(error)))
    answer = answer_of(question, sources, asked_unix_s)
    return replace(answer, problems=problems, notes=accounts.notes)


def newest_starts(starts: Sequence[TaskAccounting]) -> dict[JobKey, TaskAccounting]:
    """Return the newest start of each job or array task; a requeue gives it a later submit time."""
    newest: dict[JobKey, TaskAccounting] = {}
    for start in starts:
        known = newest.get(start.key)
        if known is None or (known.submit_unix_s or 0.0) <= (start.submit_unix_s or 0.0):
            newest[start.key] = start
    return newest


def accounting(question: Question) -> Answer:
    """Query every start of every task and its usage, with one sacct call."""
    asked_unix_s = time.time()
    accounts = _sacct(question, details=True)
    # Here sacct is the only source, so a cluster without accounts is one that fails.
    without_accounts = tuple(SourceProblem("sacct", note) for note in accounts.notes)
    return Answer(
        tasks=newest_starts(accounts.tasks),
        starts=tuple(accounts.tasks),
        problems=accounts.problems + without_accounts,
        asked_unix_s=asked_unix_s,
    )


def _sacct(question: Question, *, details: bool) -> _Accounts:
    try:
        tasks = parse_sacct(ask(_sacct_command(question, details=details)))
    except SchedulerError as error:
        if SWITCHED_OFF in str(error).lower():
            return _Accounts(notes=(NO_ACCOUNTS,))
        return _Accounts(problems=(SourceProblem("sacct", str(error)),))
    return _Accounts(tasks=[task for task in tasks if is_of(task, question.jobs)])


def _sacct_command(question: Question, *, details: bool) -> list[str]:
    # Without -S the window starts at midnight (in older versions also with -j), and an open window
    # exceeds MaxQueryTimeRange. Slurm's times are by the controller's clock, `since_unix_s` by
    # another.
    begin_s = max(0.0, question.since_unix_s - CLOCKS_APART_S)
    since = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(begin_s))
    ids = list(dict.fromkeys(question.jobs.values()))
    which = ["-j", ",".join(ids)] if len(ids) <= MAX_IDS_NAMED else ["-u", _users(question)]
    # Of two jobs with one id, sacct reports only the later one without `--duplicates`.
    scope = ["--duplicates"] if details else ["--duplicates", "-X"]
    return [*_sacct_of_cluster(), "-S", since, *which, *scope, "--format", ",".join(SACCT_FIELDS)]


def _sacct_of_cluster() -> list[str]:
    """Return sacct for the cluster of the other commands: it alone ignores SLURM_CLUSTERS."""
    clusters = os.environ.get("SLURM_CLUSTERS")
    return ["sacct", "-P", *([f"--clusters={clusters}"] if clusters else [])]


def _users(question: Question) -> str:
    """Return the owners of the jobs; so an administrator can query them, too."""
    return ",".join(str(uid) for uid in sorted(question.uids or {os.getuid()}))


def cluster_settings() -> Mapping[str, str]:
    """Return the settings of this machine's cluster, by Slurm's names.

    Raises:
        SchedulerError: the controller could not be reached.
    """
    return parse_config(ask(["scontrol", "show", "config"]))


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

        # submitit would rename and round options that it knows, so all are passed raw. To replace
        # its defaults they need the same keys: `a_b` for `--a-b`, but `open-mode` with a hyphen.
        raw_options: dict[str, Any] = {}
        for name, value in sbatch_options(order, dependencies).items():
            key = name if name == "open-mode" else name.replace("-", "_")
            raw_options[key] = value
        parameters: dict[str, Any] = {
            "setup": setup_lines(order),
            "use_srun": False,
            "stderr_to_stdout": True,
            "wckey": None,  # or submitit sets its own
            "additional_parameters": raw_options,
        }
        text: str = submitit_slurm._make_sbatch_string(  # noqa: SLF001 - no public function
            command=supervisor_command(order),
            folder=RunPaths(Path(order.run_dir)).job_dir(order.token),
            **parameters,
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
            message = f"{_unknown(order.stage)}: {error}"
            raise SubmissionUnknownError(message) from error
        if result.returncode != 0:
            raise _failure(order.stage, result)
        match = _SUBMITTED.search(result.stdout)
        if match is None:
            output = " ".join(result.stdout.split()) or "nothing"
            message = (
                f"{_unknown(order.stage)}: sbatch exited with 0, but printed no job id, only: "
                f"{output}"
            )
            raise SubmissionUnknownError(message)
        return match[1]

    def start(self) -> None:
        """Do nothing: Slurm starts the jobs, and no process stays here."""

    def settle(self) -> None:
        """Do nothing: Slurm's daemons supervise the jobs."""

    find = staticmethod(find)
    query = staticmethod(query)
    accounting = staticmethod(accounting)

    def cancel(self, jobs: Sequence[JobKey]) -> None:
        """Cancel jobs with scancel; jobs that have ended are not an error."""
        ids = [job.job_id for job in jobs]
        for start in range(0, len(ids), _IDS_A_CALL):
            ask(["scancel", "--quiet", *ids[start : start + _IDS_A_CALL]])


def _unknown(stage: str) -> str:
    return f"the job of stage `{stage}` may or may not have been submitted"


def _failure(stage: str, result: subprocess.CompletedProcess[str]) -> SchedulerError:
    text = result.stderr.strip() or result.stdout
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if "sbatch: error" in line or "sbatch: fatal" in line]
    messages = errors or [line for line in lines if line.startswith("sbatch: ")]
    reason = (messages or lines or ["no reason given"])[-1]
    if result.returncode > 0 and is_refusal(text):  # a killed one may have submitted
        return SchedulerError(f"sbatch refused the job of stage `{stage}`: {reason}")
    message = f"{_unknown(stage)}: {reason}"
    return SubmissionUnknownError(message)
