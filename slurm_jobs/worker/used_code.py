"""Record of the user's files that a stage's function opened, its imports among them.

A resume with changed code repeats only the slices that used a changed file. So every process of the
function writes the names of the files that it opens below the snapshot's `user/`: Python reports
each opened file to audit hooks (PEP 578). A forked child inherits the hook; a child that
multiprocessing starts afresh continues by an environment variable.

A program that the function starts is not watched. If its command line names something of the user's
code, the whole code counts as used.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import slurm_jobs
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.used_code import WHOLE_CODE, record_used_files
from slurm_jobs.shared.files import make_private_dir
from slurm_jobs.shared.regular_files import read_bytes

_FOLDER_VARIABLE = "SLURM_JOBS_USED_CODE"
"""Variable with the folder of the lists, for children that multiprocessing starts afresh."""
_PROGRAM_STARTS = {
    "subprocess.Popen": 3,
    "os.system": 1,
    "os.exec": 2,
    "os.posix_spawn": 2,
    "os.spawn": 3,
}
"""Events that report the start of a program, with the number of their arguments before `env`."""


def user_code_dir() -> Path:
    """Return the folder of the user's code in the snapshot that this process runs."""
    return Path(slurm_jobs.__file__).resolve().parent.parent.parent / "user"


def watch_used_code(task_dir: Path) -> None:
    """Record from now on which files of the user's code this process and its children open."""
    folder = task_dir / "used_code"
    make_private_dir(folder)
    os.environ[_FOLDER_VARIABLE] = str(folder)
    sys.addaudithook(_Watch(folder, user_code_dir()).note)


def continue_watch() -> None:
    """Do the same in a child that multiprocessing started afresh, if its parent does."""
    folder = os.environ.get(_FOLDER_VARIABLE)
    if folder is not None:
        sys.addaudithook(_Watch(Path(folder), user_code_dir()).note)


class _Watch:
    def __init__(self, folder: Path, user_dir: Path) -> None:
        self._prefix = f"{user_dir}{os.sep}"
        self._folder = folder
        self._seen: set[str] = set()
        words = [rf"(?<!\w){re.escape(path.stem)}(?!\w)" for path in user_dir.glob("*")]
        self._command_of_ours = re.compile("|".join([re.escape(self._prefix), *words]))

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take an event of Python; this runs inside of what the function does, and is fast."""
        if event == "open":
            path = arguments[0]
            if type(path) is str and path.startswith(self._prefix) and path not in self._seen:
                self._write(path, path.removeprefix(self._prefix))
        elif event in _PROGRAM_STARTS:
            command = repr(arguments[: _PROGRAM_STARTS[event]])
            if WHOLE_CODE not in self._seen and self._command_of_ours.search(command):
                self._write(WHOLE_CODE, WHOLE_CODE)

    def _write(self, key: str, name: str) -> None:
        self._seen.add(key)
        # A process has its own list, because appends of several nodes to one file on NFS collide.
        path = self._folder / f"{socket.gethostname()}.{os.getpid()}"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        try:
            stream = os.open(path, flags, 0o600)
            try:
                os.write(stream, f"{name}\n".encode(errors="surrogateescape"))
            finally:
                os.close(stream)
        except OSError:
            self._seen.discard(key)  # the next open of the file tries again


def record_used_code(paths: RunPaths, stage: str, task_dir: Path) -> str | None:
    """Store which of the user's files an attempt used, and return the id of that list.

    Returns:
        None if the attempt recorded nothing, as a `shell:` or built-in stage does.

    Raises:
        OSError: the run folder cannot be read or written.
    """
    folder = task_dir / "used_code"
    if not folder.is_dir():
        return None
    files = {line for path in folder.iterdir() for line in _lines(path)}
    return record_used_files(paths, stage, {_source(name) for name in files})


def _lines(path: Path) -> Iterable[str]:
    """Return the complete lines of a list: a killed process may have left half a line."""
    text = read_bytes(path).decode(errors="surrogateescape")
    return text.split("\n")[:-1]


def _source(name: str) -> str:
    """Return the source of a module that was read as bytecode, and any other name as it is."""
    folder, _, file = name.rpartition("/")
    if file.endswith(".pyc") and folder.rpartition("/")[2] == "__pycache__":
        package = folder.rpartition("/")[0]
        source = f"{file.partition('.')[0]}.py"
        return f"{package}/{source}" if package else source
    return name
