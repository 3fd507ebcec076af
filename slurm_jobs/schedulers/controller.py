"""Jobs as the controller knows them: `scontrol show job`.

squeue may be answered from a site's cache, and the accounting lags. The controller is asked about
single jobs, all in one call, which costs it one small request for each.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence

from slurm_jobs.base.errors import SchedulerError
from slurm_jobs.base.index_ranges import parse_ranges
from slurm_jobs.formats.records.attempt_records import TaskAccounting
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.run_folder.paths import token_of_script
from slurm_jobs.schedulers.slurm_commands import COMMAND_TIMEOUT_S
from slurm_jobs.schedulers.slurm_environment import query_environment

MOST_SINGLE_REQUESTS = 30
"""Most jobs that are asked for one by one, each with a request of its own, because sites limit the
rate of requests (`SlurmctldParameters=rl_enable` allows a user 30 at once by default)."""
_UNKNOWN = re.compile(r"Invalid job id specified|Job \d+ not found")
"""Error of scontrol about an id that the controller does not know, one line for each."""
_NO_JOBS = "No jobs in the system"
"""Output of scontrol where the controller knows no job at all."""
_IS_ENTRY = re.compile(r"JobId=\d")
_FIRST_LINE = re.compile(
    r"JobId=(?P<id>\d+)"
    r"(?: ArrayJobId=(?P<array>\d+) ArrayTaskId=(?P<element>[^ ]+))?"
    r"(?: ArrayTaskThrottle=\d+)?(?: HetJob\w+=[^ ]+)* JobName=(?P<name>.*)"
)


class NoControllerError(SchedulerError):
    """The program that asks the controller is not installed here."""


def ask_controller(job_ids: Sequence[str]) -> str:
    """Return what the controller prints about these jobs; nothing about those it does not know.

    For more than `MOST_SINGLE_REQUESTS` ids it prints all jobs of all users.

    Raises:
        NoControllerError: this machine has no `scontrol`.
        SchedulerError: it did not answer for each of them, or in a form that is not known.
    """
    if len(job_ids) > MOST_SINGLE_REQUESTS:
        return ask_controller_for_all()
    result = _ask([f"show job {job_id}" for job_id in job_ids])
    ids_printed: set[str] = set()
    for entry in entries(result.stdout):
        # The id of a lost job may be that of an element of another array now.
        ids_printed |= {entry["job_id"], entry["own_id"]}
    num_known = len(ids_printed.intersection(job_ids))
    num_unknown = len(_UNKNOWN.findall(result.stderr))
    num_answered = num_known + num_unknown
    if num_answered < len(set(job_ids)):
        raise _no_answer(result, f"it answered for {num_answered} of {len(job_ids)} jobs")
    return result.stdout


def ask_controller_for_all() -> str:
    """Return what the controller prints about the jobs of all users.

    Raises:
        NoControllerError: this machine has no `scontrol`.
        SchedulerError: it did not answer, or in a form that is not known.
    """
    result = _ask(["show job"])
    if result.returncode != 0 or not (entries(result.stdout) or _NO_JOBS in result.stdout):
        raise _no_answer(result, "it listed no job")
    return result.stdout


def _no_answer(result: subprocess.CompletedProcess[str], what: str) -> SchedulerError:
    lines = [line.strip() for line in result.stderr.splitlines() if not _UNKNOWN.search(line)]
    reason = next((line for line in reversed(lines) if line), "no reason given")
    message = f"`scontrol show job`: {what} (exit code {result.returncode}: {reason})"
    return SchedulerError(message)


def _ask(requests: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            ["scontrol", "--all"],
            input="".join(f"{request}\n" for request in requests),
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            timeout=COMMAND_TIMEOUT_S,
            check=False,
            # Lists of array elements are shortened by default.
            env={**query_environment(os.environ), "SLURM_BITSTR_LEN": "0"},
        )
    except FileNotFoundError as error:
        message = "`scontrol` was not found; is this a login node of the cluster?"
        raise NoControllerError(message) from error
    except subprocess.TimeoutExpired as error:
        message = f"`scontrol` did not answer within {COMMAND_TIMEOUT_S} s"
        raise SchedulerError(message) from error


def parse_jobs(text: str, submitted: Mapping[str, str]) -> dict[JobKey, TaskAccounting]:
    """Return the entries of our jobs in the output of `scontrol show job`.

    `submitted` maps each job's name to a job id. A job that was renamed is recognised by the
    folder of its batch script, as in `parse_squeue`.

    Raises:
        SchedulerError: a list of array elements is shortened.
    """
    by_id_and_token: dict[tuple[str, str], str] = {}
    for name, job_id in submitted.items():
        token = name.rpartition(".")[2]
        by_id_and_token[job_id, token] = name
    tasks = {}
    for entry in entries(text):
        job_id, name = entry["job_id"], entry["name"]
        if submitted.get(name) != job_id:
            name = by_id_and_token.get((job_id, token_of_script(entry["Command"])), "")
        if not name:  # another user's job
            continue
        for task_id in _task_ids(job_id, entry["element"]):
            task = TaskAccounting(
                job_id=task_id,
                state=entry["JobState"],
                source="scontrol",
                job_name=name,
                reason="" if entry["Reason"] == "None" else entry["Reason"],
                submit_unix_s=_time(entry["SubmitTime"]),
                start_unix_s=_time(entry["StartTime"]),
                node_list="" if entry["NodeList"] == "(null)" else entry["NodeList"],
            )
            tasks[task.key] = task
    return tasks


def entries(text: str) -> list[dict[str, str]]:
    """Return the fields of each job or array element; an entry without a state is left out.

    Four keys are ours. `job_id` is the id of the job, or of the whole array; `own_id` is the same,
    or the id that the element has of its own. `element` is the index or the indices in the array,
    and empty without an array. `name` is the job's name. The other keys are named as Slurm prints
    them, and a field that it does not print is empty.

    Raises:
        SchedulerError: the first line of a job is not of a known form.
    """
    jobs: list[dict[str, str]] = []
    for printed in text.splitlines():
        line = printed.removeprefix("scontrol: ")  # the prompt, where it is not on its own line
        first = _FIRST_LINE.fullmatch(line)
        if first is not None:
            names = ("JobState", "Reason", "SubmitTime", "StartTime", "NodeList", "Command")
            entry = dict.fromkeys(names, "")
            entry["job_id"] = first["array"] or first["id"]
            entry["own_id"] = first["id"]
            entry["name"] = first["name"]
            entry["element"] = first["element"] or ""
            jobs.append(entry)
        elif _IS_ENTRY.match(line):
            message = f"`scontrol show job` printed a line of another form: {line[:200]}"
            raise SchedulerError(message)
        elif jobs and line.startswith("   "):
            _add_fields(jobs[-1], line)
    return [entry for entry in jobs if entry["JobState"]]


def _add_fields(entry: dict[str, str], line: str) -> None:
    """Add the fields of a line; a command is the rest of its line, and may contain blanks."""
    line = line.strip()
    if line.startswith("Command="):
        entry["Command"] = entry["Command"] or line.removeprefix("Command=")
        return
    for word in line.split(" "):
        name, equals, value = word.partition("=")
        if equals and name in entry and not entry[name]:
            entry[name] = value


def _task_ids(job_id: str, element: str) -> list[str]:
    """Return the ids of one entry; that of a pending array is for several elements.

    Raises:
        SchedulerError: the list of elements is shortened.
    """
    if not element:
        return [job_id]
    if "..." in element:
        message = f"`scontrol show job {job_id}` shortened its list of elements: {element}"
        raise SchedulerError(message)
    return [f"{job_id}_{index}" for index in parse_ranges(element.partition("%")[0])]


def _time(text: str) -> float | None:
    return float(text) if text.isdecimal() and text != "0" else None
