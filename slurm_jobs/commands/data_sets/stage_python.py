"""Calls of a function in `pipeline` from a command, in a process of the stage's Python.

Only that Python has the packages that read data and models. The code is the `pipeline` next to
this package, not one installed in that Python, and not the run's snapshot. So both sides of a
call are of one version, and new commands work on old runs. The formats of the run's files must
be readable by it in any case.

`commands/data_sets/entry_process.py` is the other side, and defines the messages in the pipes.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from slurm_jobs.base.errors import FileError, InputError, RunFailedError
from slurm_jobs.base.processes.python_commands import script_command
from slurm_jobs.base.written_values import printable
from slurm_jobs.run.home import anothers_folder
from slurm_jobs.run_folder.ledger import intents, latest_intents, read_ledger
from slurm_jobs.run_folder.orders import read_order
from slurm_jobs.run_folder.paths import RunPaths

_PACKAGE_DIR = Path(__file__).resolve().parents[2]
_SCRIPT = Path(__file__).with_name("entry_process.py")
_LAST_WORDS_BYTES = 2000
_ANSWERS = frozenset({"progress", "result", "error"})
_GRACE_S = 5.0
"""Time for an orderly exit, before SIGKILL."""
OnProgress = Callable[[int, int, str], None]
"""Arguments: done, total, and their unit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StagePython:
    """Python interpreter, and where it comes from."""

    program: str
    whose: str
    """Text such as ``the Python of stage `consolidate` `` for messages."""


def own_python(program: str | None = None) -> StagePython:
    """Return the Python that a user named, or the current one."""
    if program is not None:
        return StagePython(program=program, whose="from --python")
    return StagePython(program=sys.executable, whose="the Python of slurm-jobs itself")


def stage_python(paths: RunPaths, stage: str) -> StagePython:
    """Return the Python of a stage's newest job; ours if there was no job.

    Raises:
        InputError: the run is another user's, whose program must not be started unasked.
    """
    newest = latest_intents(intents(read_ledger(paths.ledger_dir)), stage)
    if not newest:
        return own_python()
    order = read_order(paths.job_json(max(newest.values(), key=lambda i: i.number).token))
    owner = "" if order.python == sys.executable else anothers_folder(paths.run_dir)
    if owner:
        message = (
            f"{paths.run_dir} is {owner}, and names the Python {printable(order.python)}, which "
            "would run as you; choose one with --python: `python3`, or that one if you trust it"
        )
        raise InputError(message)
    return StagePython(program=order.python, whose=f"the Python of stage `{stage}`")


def call_entry_point(
    entry_point: str,
    arguments: Mapping[str, Any],
    *,
    python: StagePython,
    on_progress: OnProgress = lambda _done, _total, _unit: None,
) -> Any:
    """Return the result of `entry_point` (`pipeline.tools.verify:run`); all values are JSON.

    The function is called as `function(arguments, report)`, and says by `report(done, total,
    unit)` how far it is. Ctrl-C, or any exception here, ends the process. The Python may
    print a greeting, or not be Python at all; a killed one leaves half a line.

    Raises:
        InputError: the Python is not there, or lacks a package.
        RunFailedError: the function refused, with a message for the user.
        FileError: a file could not be read, or the process ended without an answer.
    """
    request = {
        "packages": {
            "slurm_jobs": str(_PACKAGE_DIR),
            "pipeline": str(_PACKAGE_DIR.parent / "pipeline"),
        },
        "entry_point": entry_point,
        "arguments": arguments,
    }
    answer: dict[str, Any] = {}
    with tempfile.TemporaryFile() as log, _started(python, log) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):  # it has ended already, and its last output has the reason
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        for line in process.stdout:
            value = None
            with suppress(ValueError):
                value = json.loads(line)
            if not isinstance(value, dict) or _ANSWERS.isdisjoint(value):
                os.write(log.fileno(), line)
                continue
            answer = value
            if "progress" in answer:
                progress = answer["progress"]
                on_progress(progress["done"], progress["total"], progress["unit"])
        code = process.wait()
        if "result" in answer:
            return answer["result"]
        log.seek(0, 2)
        log.seek(max(0, log.tell() - _LAST_WORDS_BYTES))
        last_words = log.read().decode(errors="replace").strip()
    raise _error(answer.get("error"), python, code, last_words)


@contextmanager
def _started(python: StagePython, log: IO[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Yield the process; it has ended after the block, in any case."""
    command = [python.program, str(_SCRIPT)]  # of any version
    if python.program == sys.executable:
        command = script_command(_SCRIPT)
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=log)
    except OSError as error:
        message = (
            f"{python.program}: {error.strerror} ({python.whose}); name one that this machine has "
            "by --python"
        )
        raise InputError(message) from error
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_GRACE_S)
        if process.poll() is None:
            process.kill()
            process.wait()
        for stream in filter(None, (process.stdin, process.stdout)):
            with suppress(BrokenPipeError):
                stream.close()


def _error(
    error: Mapping[str, str] | None, python: StagePython, code: int, last_words: str
) -> InputError | RunFailedError | FileError:
    who = f"{python.program} ({python.whose})"
    if error is None:
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        with suppress(ValueError):  # of no signal with a name
            how = f"signal {signal.Signals(-code).name}"
        hint = ": probably out of memory" if code == -signal.SIGKILL else ""
        last = f"; its last output:\n{last_words}" if last_words else ""
        return FileError(f"{who} ended without an answer ({how}{hint}){last}")
    if error["kind"] == "module":
        install = f"{shlex.quote(python.program)} -m pip install 'slurm-jobs[train]'"
        return InputError(
            f"{who} lacks a package: {error['message']}; install what the built-in stages need "
            f"({install}), or name a Python that has it by --python"
        )
    return (RunFailedError if error["kind"] == "stage" else FileError)(error["message"])
