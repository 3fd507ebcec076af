"""Rows of squeue and sacct as values."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping

from slurm_jobs.base.errors import SchedulerError
from slurm_jobs.base.index_ranges import parse_ranges
from slurm_jobs.base.texts.truncation import truncated
from slurm_jobs.formats.records.attempt_records import TaskAccounting
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.run_folder.paths import token_of_script
from slurm_jobs.spec.durations import parse_duration_s

_FIRST_COLUMN = "JOBID"
"""Header of the first column of every queried table: `%i` of squeue, JobID of sacct."""

SQUEUE_FORMAT = "%i|%F|%T|%r|%V|%S|%N|%j|%o"
"""Job id (with array index), array id, state, reason, submit and start time (or expected start),
nodes, name, command. The command is the path of the batch script, which may contain a `|`.

The name is complete: only a width (`%.8j`) would truncate it.
"""

SACCT_FIELDS = (
    "JobID",
    "State",
    "ExitCode",
    "Submit",
    "Eligible",
    "Start",
    "End",
    "NodeList",
    "AllocCPUS",
    "ReqMem",
    "MaxRSS",
    "TotalCPU",
    "TimelimitRaw",
    "AllocTRES",
    "Reason",
    "JobName",
)
"""Fields of sacct; the name comes last, because a user may have put a `|` into it.

Times are seconds since 1970, because the commands run with `SLURM_TIME_FORMAT=%s`."""

_ARRAY_ID = re.compile(r"(\d+)_\[([^\]]+)\](?:%\d+)?")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40, "P": 2**50}


_OWN_REFUSAL = re.compile(
    r"sbatch: fatal: |try \"sbatch --help\"|sbatch: (?:unrecognized|invalid|ambiguous) option"
    r"|sbatch: option '[^']*' (?:requires|doesn't allow|is ambiguous)"
)
_UNCERTAIN = ("timed out", "zero bytes were transmitted", "unable to contact", "connection")


def is_refusal(text: str) -> bool:
    """Check whether the error output of sbatch means that it certainly refused the job.

    `Socket timed out` may occur although the controller took the job (nextflow#970), and only a
    look-up by job name can tell. Errors that sbatch finds before it contacts the controller
    (`fatal`, an unknown option) are refusals.
    """
    lowered = text.lower()
    if _OWN_REFUSAL.search(lowered):
        return True
    return "sbatch: error" in lowered and not any(words in lowered for words in _UNCERTAIN)


def split_rows(text: str, num_fields: int, command: str) -> list[list[str]]:
    """Return the fields of each job in a table; the last field may contain a `|`.

    The header, a banner above it and text of the site below it are left out. A table without jobs
    still has a header, so output with neither header nor jobs is not an answer.

    Raises:
        SchedulerError: there is neither a header nor a job with this number of fields, or the
            header is of another table, or a line may be a job in another format. A site's
            wrapper of a command may ignore the format, or fail with exit code 0.
    """
    rows: list[list[str]] | None = None
    for line in text.splitlines():
        row = line.split("|", maxsplit=num_fields - 1)
        is_header = row[0].strip().upper() == _FIRST_COLUMN
        if is_header and line.count("|") != num_fields - 1:
            raise _not_in_format(line, num_fields, command)
        if len(row) == num_fields:
            rows = [] if rows is None else rows
            if not is_header:
                rows.append(row)
        elif rows is not None and ("|" in line or line.lstrip()[:1].isdigit()):
            raise _not_in_format(line, num_fields, command)
    if rows is None:
        lines = [line for line in text.splitlines() if line.strip()]
        example = next((line for line in lines if "|" in line), lines[0] if lines else "")
        raise _not_in_format(example, num_fields, command)
    return rows


def _not_in_format(line: str, num_fields: int, command: str) -> SchedulerError:
    printed = f"but: {truncated(line, 200)}" if line else "and no header: it printed nothing"
    return SchedulerError(
        f"`{command}` did not print the {num_fields} fields that it was asked for, {printed}"
    )


def parse_squeue(text: str, wanted: Mapping[str, str]) -> dict[JobKey, TaskAccounting]:
    """Return the rows of our jobs; `wanted` maps each submitted name to a job id.

    A user or a site may have renamed a job: it is recognised by the folder of its batch script,
    and gets its submitted name.
    """
    by_folder = {(job_id, name.rpartition(".")[2]): name for name, job_id in wanted.items()}
    tasks = {}
    for row in split_rows(text, 9, "squeue"):
        job_id, plain_id, state, reason, submit, start, nodes, name, command = row
        if wanted.get(name) != plain_id:
            name = by_folder.get((plain_id, token_of_script(command)), "")
        if not name:
            continue
        for task_id in _expand(job_id):
            task = TaskAccounting(
                job_id=task_id,
                state=state,
                source="squeue",
                job_name=name,
                reason="" if reason == "None" else reason,
                submit_unix_s=_time(submit),
                start_unix_s=_time(start),
                node_list=nodes,
            )
            tasks[task.key] = task
    return tasks


def parse_sacct(text: str) -> list[TaskAccounting]:
    """Parse one entry per start of a task, in sacct's order, with the memory of its steps."""
    tasks: list[TaskAccounting] = []
    newest: dict[str, int] = {}
    for row in split_rows(text, len(SACCT_FIELDS), "sacct"):
        values = dict(zip(SACCT_FIELDS, row, strict=True))
        job_id, _, step = values["JobID"].partition(".")
        if not step:
            for task_id in _expand(job_id):
                newest[task_id] = len(tasks)
                tasks.append(_accounting(task_id, values))
        elif job_id in newest:
            task = tasks[newest[job_id]]
            used = (task.max_rss_bytes, parse_bytes(values["MaxRSS"]))
            largest = max((rss for rss in used if rss is not None), default=None)
            tasks[newest[job_id]] = dataclasses.replace(task, max_rss_bytes=largest)
    return tasks


def _accounting(task_id: str, values: dict[str, str]) -> TaskAccounting:
    code, _, signal = values["ExitCode"].partition(":")
    limit_min = _number(values["TimelimitRaw"])
    return TaskAccounting(
        job_id=task_id,
        state=values["State"].split(" ")[0].rstrip("+"),
        source="sacct",
        job_name=values["JobName"],
        submit_unix_s=_time(values["Submit"]),
        eligible_unix_s=_time(values["Eligible"]),
        start_unix_s=_time(values["Start"]),
        end_unix_s=_time(values["End"]),
        exit_code=int(code) if code.isdecimal() else None,
        signal=int(signal) if signal.isdecimal() and signal != "0" else None,
        reason="" if values["Reason"] == "None" else values["Reason"],
        node_list="" if values["NodeList"] == "None assigned" else values["NodeList"],
        num_cpus=int(values["AllocCPUS"]) if values["AllocCPUS"].isdecimal() else None,
        num_gpus=_num_gpus(values["AllocTRES"]),
        requested_mem_bytes=_node_mem_bytes(values),
        cpu_time_s=parse_duration_s(values["TotalCPU"]),
        time_limit_s=limit_min * 60 if limit_min is not None else None,
    )


def _expand(job_id: str) -> list[str]:
    """Expand `12_[0-2%4]`, the id of a pending array whose elements have no records yet."""
    match = _ARRAY_ID.fullmatch(job_id)
    if match is None:
        return [job_id]
    if "..." in match[2]:  # squeue shortens long lists, so not all elements are known
        return []
    return [f"{match[1]}_{index}" for index in parse_ranges(match[2])]


def _time(text: str) -> float | None:
    return float(text) if text.isdecimal() and text != "0" else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _node_mem_bytes(values: dict[str, str]) -> float | None:
    """Return the memory requested on each node; None if it was all of it or is unknown.

    Until Slurm 20.11 ReqMem ends in `n` (per node) or `c` (per core). From 21.08 on it is the job's
    whole request and has neither (`PRINT_REQ_MEM` in Slurm's src/sacct/print.c prints `req_mem`,
    then the `mem` of ReqTRES).
    """
    requested_bytes = parse_bytes(values["ReqMem"])
    if not requested_bytes:
        return None
    if values["ReqMem"].endswith("n"):
        return requested_bytes
    num_nodes = _tres(values["AllocTRES"]).get("node")
    if values["ReqMem"].endswith("c"):
        requested_bytes *= _number(values["AllocCPUS"]) or 0.0
    return requested_bytes / num_nodes if requested_bytes and num_nodes else None


def _tres(text: str) -> dict[str, int]:
    """Parse the whole numbers in `cpu=4,mem=8G,node=1`."""
    parts = (part.partition("=") for part in text.split(","))
    return {name: int(number) for name, _, number in parts if number.isdecimal()}


def _num_gpus(tres: str) -> int:
    """Count the GPUs in `cpu=4,gres/gpu:a100=2,gres/gpu=2`; some sites count only typed ones."""
    counts = _tres(tres)
    typed = sum(number for name, number in counts.items() if name.startswith("gres/gpu:"))
    return counts.get("gres/gpu", typed)


def parse_bytes(text: str) -> float | None:
    """Parse `1.5G`, `512M` or `1000K`; older versions append `n` or `c` (node, core)."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTP]?)[nc]?", text)
    if match is None:
        return None
    return float(match[1]) * _UNITS[match[2]]
