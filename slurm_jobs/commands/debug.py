"""Repetition of a stage's function in one process, for a debugger."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.files import make_private_dir, read_json, write_json_atomic
from slurm_jobs.base.index_ranges import ranges_text
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.formats.records.task_context import TaskContext, read_context
from slurm_jobs.run.snapshot import CodeSnapshot, renew_ours, take_snapshot, user_sources
from slurm_jobs.run_folder.orders import JobOrder, read_order
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.resolved_spec import read_resolved_values
from slurm_jobs.run_folder.run_records import read_stage_records
from slurm_jobs.run_folder.run_values import stages_named
from slurm_jobs.schedulers.batch_script import setup_lines
from slurm_jobs.worker.rank import context_path
from slurm_jobs.worker.rank_command import rank_environment

_TIME_S = 7 * 86400.0
"""Time until the end that the function sees, because a person at a debugger has no time limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DebuggedSlice:
    """Slice whose function is called again, and the script that calls it."""

    stage: str
    slice_index: int
    attempt: int
    """Attempt whose config, parents and `setup:` are used."""
    num_ranks: int
    """Ranks of that attempt; the function is called as the only rank."""
    output_dir: Path
    """Folder that the function writes to, instead of the one in the run."""
    script: str
    """Bash script with the stage's environment and `setup:`."""


def prepare_debugging(
    run_dir: Path,
    stage: str,
    slice_index: int | None,
    scratch: Path,
    *,
    takes_present_code: bool,
    stops_first: bool,
) -> DebuggedSlice:
    """Copy the code into `scratch`, and return the slice and the script that calls its function.

    Args:
        run_dir: the run's folder, in which nothing is written.
        stage: name of a stage that runs a function.
        slice_index: None for the first failed slice, else the first that has started.
        scratch: existing private folder for the code, the output and the timing.
        takes_present_code: call the user's code of now, not the copy in the run.
        stops_first: stop before the first line of the function, not only at an exception.

    Raises:
        InputError: there is no such stage, it is a shell command, or the slice has not started.
    """
    paths = RunPaths(run_dir)
    index, attempt = _choose(paths, stage, slice_index)
    order = read_order(paths.job_json(read_json(paths.attempt(stage, index, attempt))["token"]))
    if order.shell is not None:
        message = (
            f"`{stage}` is a shell command, and the debugger is Python's; "
            f"`slurm-jobs logs {run_dir} {stage}` shows its output, and `slurm-jobs plan` its text"
        )
        raise InputError(message)
    stored = paths.task_dir(stage, index, attempt) / "context.json"
    if not stored.exists():
        message = (
            f"attempt {attempt} of {stage} slice {index} ended before its function was called; "
            f"`slurm-jobs logs {run_dir} {stage} --supervisor` shows why"
        )
        raise InputError(message)
    before = read_context(stored)
    context = _as_only_rank(before, scratch)
    for folder in (
        context.output_dir,
        context.timing_dir,
        context.task_dir,
        context.node_local_dir,
    ):
        make_private_dir(folder)
    start_script = _snapshot(paths, order, scratch / "code", takes_present_code=takes_present_code)
    file = context_path(context.task_dir, 0)
    write_json_atomic(file, record_to_json(context))
    ranks = {"cpus_per_task": order.resources.cpus_per_task, "num_gpus": 0}
    variables = rank_environment(context, ranks, file)
    variables["SLURM_JOBS_ENTRY_POINT"] = str(order.run)
    words = [
        order.python,
        str(start_script),
        "debug",
        str(file),
        *(["stop"] if stops_first else []),
    ]
    return DebuggedSlice(
        stage=stage,
        slice_index=index,
        attempt=attempt,
        num_ranks=before.num_ranks,
        output_dir=context.output_dir,
        script=_script(order, variables, words),
    )


def _choose(paths: RunPaths, stage: str, slice_index: int | None) -> tuple[int, int]:
    """Return the slice and its newest attempt."""
    records = read_stage_records(paths, stage)
    started = {index: max(numbers) for index, numbers in records.attempts.items() if numbers}
    if not started:
        stages_named(stage, dict.fromkeys(read_resolved_values(paths)["stages"], ""))
        message = f"no slice of `{stage}` has started yet, so there is no call to repeat"
        raise InputError(message)
    if slice_index is None:
        failed = []
        for index in started:
            endings = records.endings.get(index, {})
            if endings and endings[max(endings)].outcome == "failed":
                failed.append(index)
        slice_index = min(failed or started)
    if slice_index not in started:
        message = (
            f"--slice {slice_index}: no attempt at it has started; "
            f"of `{stage}` these slices have: {ranges_text(sorted(started))}"
        )
        raise InputError(message)
    return slice_index, started[slice_index]


def _as_only_rank(context: TaskContext, scratch: Path) -> TaskContext:
    return replace(
        context,
        rank=0,
        num_ranks=1,
        local_rank=0,
        num_local_ranks=1,
        node_rank=0,
        num_nodes=1,
        main_addr="127.0.0.1",
        output_dir=scratch / "output",
        timing_dir=scratch / "timing",
        task_dir=scratch / "task",
        node_local_dir=scratch / "node_local",
        deadline_unix_s=time.time() + _TIME_S,
    )


def _snapshot(
    paths: RunPaths, order: JobOrder, code_dir: Path, *, takes_present_code: bool
) -> Path:
    """Copy our own packages of now, and the user's code; return the copy's start script."""
    if takes_present_code:
        code = read_resolved_values(paths).get("code", [])
        sources = user_sources([str(order.run)], code, Path(order.spec_dir))
        return take_snapshot(code_dir, sources).start_script
    used = CodeSnapshot(folder=Path(order.start_script).parent, user_fingerprint="")
    return renew_ours(code_dir, used).start_script


def _script(order: JobOrder, variables: Mapping[str, str], words: Sequence[str]) -> str:
    """Return the script; variables that bash inherits stay as the stage's `setup:` leaves them."""
    exports = [
        f"export {name}={shlex.quote(value)}"
        for name, value in variables.items()
        if os.environ.get(name) != value
    ]
    return "\n".join([*setup_lines(order), *exports, f"exec {shlex.join(words)}", ""])
