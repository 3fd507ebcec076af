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
from contextlib import suppress
from pathlib import Path
from typing import Any

import slurm_jobs
from slurm_jobs.base.files import make_private_dir
from slurm_jobs.base.regular_files import read_bytes
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.used_code import WHOLE_CODE, record_used_files

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
    """Hook that lists the opened files of one process and of those that it forks."""

    def __init__(self, folder: Path, user_dir: Path) -> None:
        self._prefix = f"{user_dir}{os.sep}"
        self._folder = folder
        self._seen: set[str] = set()
        self._unsent: list[str] = []
        """Names that could not be written yet, as on a full disk."""
        words = [rf"(?:(?<![\w/])(?:\./)?|-m){re.escape(p.stem)}(?!\w)" for p in user_dir.glob("*")]
        self._command_of_ours = re.compile("|".join([re.escape(self._prefix), *words]))

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Take an event of Python; this runs inside of what the function does, and is fast."""
        try:
            if event == "open":
                self._note_open(arguments[0])
            elif event in _PROGRAM_STARTS and WHOLE_CODE not in self._seen:
                self._note_program(arguments, _PROGRAM_STARTS[event])
        except Exception:  # noqa: BLE001 - an argument's own code failed; the function must go on
            self._write(WHOLE_CODE, WHOLE_CODE)

    def _note_open(self, path: Any) -> None:
        if type(path) is not str or not path.startswith("/") or ".." in path:
            if not isinstance(path, (str, bytes, os.PathLike)):
                return  # a descriptor
            path = os.path.abspath(os.fsdecode(path))  # noqa: PTH100 - no look at the file system
        if path.startswith(self._prefix) and path not in self._seen:
            self._write(path.removeprefix(self._prefix), path)

    def _note_program(self, arguments: tuple[Any, ...], num_words: int) -> None:
        """Take the start of a program, which may use the code by its words, place or PYTHONPATH."""
        given = arguments[num_words] if len(arguments) > num_words else None
        search_path = (os.environ if given is None else given).get("PYTHONPATH", "")
        places = [*search_path.split(os.pathsep), os.getcwd()]  # noqa: PTH109 - as text
        if any(f"{place}{os.sep}".startswith(self._prefix) for place in places) or (
            self._command_of_ours.search(repr(arguments[:num_words]))
        ):
            self._write(WHOLE_CODE, WHOLE_CODE)

    def _write(self, name: str, key: str) -> None:
        self._seen.add(key)
        self._unsent.append(name)
        # A process has its own list, because appends of several nodes to one file on NFS collide.
        path = self._folder / f"{socket.gethostname()}.{os.getpid()}"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        with suppress(OSError):  # the next file that is opened tries again
            stream = os.open(path, flags, 0o600)
            try:
                lines = "".join(f"{unsent}\n" for unsent in self._unsent)
                os.write(stream, lines.encode(errors="surrogateescape"))
                self._unsent.clear()
            finally:
                os.close(stream)


def record_used_code(paths: RunPaths, stage: str, task_dirs: Iterable[Path]) -> str | None:
    """Store which of the user's files some attempts used, and return the id of that list.

    Returns:
        None if no attempt recorded nothing, as a `shell:` or built-in stage does.

    Raises:
        OSError: the run folder cannot be read or written.
    """
    folders = [task_dir / "used_code" for task_dir in task_dirs]
    if not any(folder.is_dir() for folder in folders):
        return None
    files = set()
    for folder in folders:
        for path in folder.glob("*"):
            lines = read_bytes(path).decode(errors="surrogateescape").split("\n")
            files.update(lines[:-1])  # a killed process may have left half a line
    return record_used_files(paths, stage, {_source(name) for name in files})


def _source(name: str) -> str:
    """Return the source of a module that was read as bytecode, and any other name as it is."""
    folder, _, file = name.rpartition("/")
    if file.endswith(".pyc") and folder.rpartition("/")[2] == "__pycache__":
        package = folder.rpartition("/")[0]
        source = f"{file.partition('.')[0]}.py"
        return f"{package}/{source}" if package else source
    return name
