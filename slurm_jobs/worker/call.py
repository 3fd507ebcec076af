"""Search for a stage's function, and its call, with our packages before all others.

A built-in stage must use our `pipeline` even if the user has a package of that name; a user's own
stage must use the user's.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from slurm_jobs.base.errors import (
    STOPPED_EXIT_CODE,
    MissingPackageError,
    SlurmJobsError,
    StageCodeError,
    StageConfigError,
    StageStoppedError,
)
from slurm_jobs.base.files import write_json_atomic, write_text_atomic
from slurm_jobs.base.processes.stop_requests import install_stop_handler, stop_requested
from slurm_jobs.base.regular_files import MOST_RECORD_BYTES
from slurm_jobs.base.texts.truncation import truncated_lines
from slurm_jobs.formats.records.stage_outputs import are_outputs, file_bytes
from slurm_jobs.formats.records.task_context import TaskContext, read_context
from slurm_jobs.worker.code_watch import user_code_dir, watch_used_code
from slurm_jobs.worker.late_exit import (
    FAILED_PATIENCE_S,
    end_if_late,
    note_return,
    patience_s,
    read_returned,
)
from slurm_jobs.worker.rank import asked_path, result_path, write_error
from slurm_jobs.worker.stacks import register_stacks

BUILTIN_ENTRY_POINTS = {
    "download": "pipeline.download.stage:run",
    "preprocess": "pipeline.preprocess.stage:run",
    "consolidate": "pipeline.consolidate.stage:run",
    "train": "pipeline.train:run",
    "report": "slurm_jobs.report.stage:run",
    "probe": "pipeline.nodes.probe_stage:run",
    "measure": "pipeline.train.measure:run",
}
"""Entry points of built-in stages. Specs cannot use `measure`, a trial of `slurm-jobs tune`."""

StageFunction = Callable[[dict[str, Any], TaskContext], Any]


def call_stage(context_path: Path) -> int:
    """Call the stage's function once, and write its result or its error."""
    os.umask(0o077)
    context = read_context(context_path)
    task_dir = context_path.parent
    run = os.environ["SLURM_JOBS_ENTRY_POINT"]
    install_stop_handler()
    with suppress(OSError):  # without stacks the work still counts
        register_stacks(task_dir, context.rank)
    patience, code = FAILED_PATIENCE_S, 1
    try:
        result_patience = patience_s()
        result = call_function(run, context)
        text = result_text(run, result, context)
        write_text_atomic(result_path(task_dir, context.rank), text)
        patience, code = result_patience, 0
    except StageStoppedError as error:
        print(f"stopped: {error}", file=sys.stderr, flush=True)
        _note_request(task_dir, context.rank)
        code = error.exit_code
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
        _note_request(task_dir, context.rank)
        note_return(task_dir, context.rank, code & 0xFF, patience)
        raise
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - every error is recorded, also those that are
        # no Exception (torch's CheckpointException), and ends the stage
        _print_failure(error, is_ours=run in BUILTIN_ENTRY_POINTS)
        write_error(task_dir, context.rank, error)
        code = error.exit_code if isinstance(error, StageConfigError) else 1
    note_return(task_dir, context.rank, code, patience)
    return code


def _print_failure(error: BaseException, *, is_ours: bool) -> None:
    """Print a failure, with its traceback unless a built-in stage refuses its input or config."""
    if isinstance(error, SlurmJobsError):
        print(f"error: {error}", file=sys.stderr, flush=True)
    if is_ours and isinstance(error, StageConfigError) and error.__cause__ is None:
        return
    text = truncated_lines("".join(traceback.format_exception(error)))
    print(text, end="", file=sys.stderr, flush=True)


def _note_request(task_dir: Path, rank: int) -> None:
    """Record for the keeper that this process got a stop signal, also one sent past the keeper."""
    if stop_requested():
        write_json_atomic(asked_path(task_dir, rank), {})


def run_stage(context_path: Path) -> int:
    """Call the stage's function in its own process, which ends in time after it.

    Raises:
        SystemExit: the function raised it.
    """
    rank = read_context(context_path).rank
    if os.environ["SLURM_JOBS_ENTRY_POINT"] not in BUILTIN_ENTRY_POINTS:
        watch_used_code(context_path.parent)
    try:
        return call_stage(context_path)
    finally:
        _end_with_group(context_path.parent, rank)
        end_if_late(context_path.parent, rank)


def _end_with_group(task_dir: Path, rank: int) -> None:
    """End this process at once if its function failed and left a torch process group.

    Python would shut down with live communicators whose other ranks wait for this one. That may
    hang, and then the others fail first and are blamed. The failure is already recorded.
    """
    returned = read_returned(task_dir, rank)
    dist = sys.modules.get("torch.distributed")
    if returned is None or returned["exit_code"] in {0, STOPPED_EXIT_CODE} or dist is None:
        return
    if dist.is_available() and dist.is_initialized():
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(returned["exit_code"])


def call_function(run: str, context: TaskContext) -> Any:
    """Return the result of the stage's function; a built-in stage may import its needs only now."""
    function = find_function(run)
    pid = os.getpid()
    try:
        return function(dict(context.config), context)
    except ModuleNotFoundError as error:
        if run not in BUILTIN_ENTRY_POINTS:
            raise
        raise _missing_module(run, error) from error
    finally:
        if os.getpid() != pid:
            _end_forked_child()


def _end_forked_child() -> NoReturn:
    """End a child that the function forked and that leaves the function itself.

    Only the stage's own process may record how the function ended.
    """
    error, code = sys.exc_info()[1], 0
    if isinstance(error, SystemExit):
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    elif error is not None:
        traceback.print_exception(error)
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code & 0xFF)


_MOST_RESULT_BYTES = MOST_RECORD_BYTES // 4
"""The record of the attempt's end has it with line breaks and blanks, and is held to a limit."""


def result_text(run: str, result: Any, context: TaskContext) -> str:
    """Return the result of a stage's function as JSON; NumPy and torch scalars are numbers.

    NaN and the infinities stay as Python's JSON has them, until the supervisor records the result.

    Raises:
        StageCodeError: the result is neither a mapping of JSON values nor None, or lists outputs
            that are not there.
    """
    if result is None:
        result = {}
    if isinstance(result, Mapping):
        problem = _outputs_problem(result.get("outputs", {}), context)
    else:
        problem = f"it returned {type(result).__name__}"
    try:
        text = json.dumps(result, default=_plain_number, sort_keys=True)
    except (TypeError, ValueError) as error:
        problem = problem or f"its result is not valid JSON: {error}"
    else:
        if len(text) > _MOST_RESULT_BYTES and problem is None:
            problem = (
                f"its result has {len(text) / 2**20:,.0f} MiB as JSON, and every command that "
                f"shows the run reads it: write what is over {_MOST_RESULT_BYTES >> 20} MiB into "
                "files below `context.output_dir`"
            )
    if problem is not None:
        message = f"`run: {run}`: a stage returns a dict of JSON values, or None; {problem}"
        raise StageCodeError(message)
    return text


def _outputs_problem(outputs: Any, context: TaskContext) -> str | None:
    """Return why a resume would not find the files that a result lists; None if it would.

    Only the result of rank 0 is kept, so files that other ranks list may not be complete yet.
    """
    if not are_outputs(outputs):
        return (
            "`outputs` in a stage's result gives the size in bytes of each file, a whole number, "
            "by its path below output_dir"
        )
    if context.rank != 0:
        return None
    for name, num_bytes in outputs.items():
        if Path(name).is_absolute() or ".." in Path(name).parts:
            return f"its `outputs` has {name!r:.300}: write it relative to output_dir, without `..`"
        actual_bytes = file_bytes(context.output_dir / name)
        if actual_bytes == num_bytes:
            continue
        has = "no file of this name"
        if actual_bytes is not None:
            has = f"this file with {actual_bytes} bytes"
        return (
            f"its `outputs` has {name!r:.300} with {num_bytes} bytes, but {context.output_dir} has "
            f"{has}: give the path and size of a file that the function wrote"
        )
    return None


def _plain_number(value: Any) -> Any:
    """Return the number in a NumPy or torch scalar."""
    item = getattr(value, "item", None)
    if item is None or getattr(value, "ndim", 0) != 0:
        message = f"a {type(value).__name__} is not a JSON value"
        raise TypeError(message)
    return item()


def find_function(run: str) -> StageFunction:
    """Return the function that a stage's `run:` names.

    Raises:
        MissingPackageError: there is no such module here.
        StageCodeError: there is no such function in it.
    """
    user_dir = user_code_dir()
    if run in BUILTIN_ENTRY_POINTS:
        sys.path.append(str(user_dir))
    else:
        sys.path.insert(0, str(user_dir))
    module_name, _, function_name = BUILTIN_ENTRY_POINTS.get(run, run).partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise _missing_module(run, error) from error
    function: StageFunction | None = getattr(module, function_name, None)
    if function is None:
        message = f"`run: {run}`: {module.__file__} has no function `{function_name}`"
        raise StageCodeError(message)
    return function


def _missing_module(run: str, error: ModuleNotFoundError) -> MissingPackageError:
    """Return an error with the remedy for a missing module; built-in stages need one install."""
    remedy = (
        "install it there, put it next to the spec or name its path in the spec's `code:`, or name "
        "the stage's `python:`"
    )
    if run in BUILTIN_ENTRY_POINTS:
        remedy = (
            "install `slurm-jobs[train]` in that Python (`pip install '.[train]'` in its "
            "checkout), or name the stage's `python:`"
        )
    return MissingPackageError(f"`run: {run}`: {error} in {sys.executable}; {remedy}")
