"""The command `slurm-jobs`, run in this process so that only its words and files matter.

What a machine, its user and the day add to the output is fixed here or replaced by `normalised`.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slurm_jobs import __version__
from slurm_jobs.__main__ import main

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
REGENERATE = "python -m tests.golden.regenerate"

_VARIABLES = {
    "COLUMNS": "80",
    "HOME": "/home/ada",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "LOGNAME": "ada",
    "NO_COLOR": "1",
    "SHELL": "/bin/bash",
    "TERM": "dumb",
    "TZ": "UTC",
    "USER": "ada",
}
"""The whole environment of the command besides PATH, on which there is no program of Slurm."""
_PROGRAMS = ("git", "sh", "bash", "env", "uname", "nice")


@dataclass(frozen=True, kw_only=True)
class Output:
    """What a command left behind."""

    exit_code: int
    stdout: str
    stderr: str


@contextlib.contextmanager
def fixed_surroundings(folder: Path) -> Iterator[None]:
    """Replace environment, working folder and umask; `folder` gets a PATH without Slurm."""
    programs = folder / "programs"
    programs.mkdir()
    for name in _PROGRAMS:
        found = next((p for p in (Path("/usr/bin", name), Path("/bin", name)) if p.exists()), None)
        if found is not None:
            (programs / name).symlink_to(found)
    (programs / "slurm-jobs").write_text("#!/bin/sh\n")
    (programs / "slurm-jobs").chmod(0o755)
    before, here, arguments = dict(os.environ), Path.cwd(), sys.argv
    umask = os.umask(0o077)
    interrupt = signal.getsignal(signal.SIGINT)
    os.environ.clear()
    os.environ.update(_VARIABLES, PATH=str(programs))
    time.tzset()
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        time.tzset()
        os.chdir(here)
        os.umask(umask)
        signal.signal(signal.SIGINT, interrupt)
        sys.argv = arguments


def run(folder: Path, *words: str) -> Output:
    """Run one command line in `folder`, inside `fixed_surroundings`."""
    os.chdir(folder)
    program = Path(os.environ["PATH"]) / "slurm-jobs"
    stdout, stderr = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(stdout), contextlib.redirect_stderr(stderr):
        sys.argv = [str(program), *words]
        try:
            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return Output(
        exit_code=code,
        stdout=normalised(stdout.getvalue(), folder),
        stderr=normalised(stderr.getvalue(), folder),
    )


def normalised(text: str, folder: Path) -> str:
    """Replace what depends on the machine, the checkout and the version of slurm-jobs."""
    for found, written in {
        sys.executable: "@PYTHON@",
        str(folder): "@FOLDER@",
        str(ROOT): "@ROOT@",
        f"slurm-jobs {__version__}": "slurm-jobs @VERSION@",
    }.items():
        text = text.replace(found, written)
    return re.sub(r"0x[0-9a-f]{9,}", "@ADDRESS@", text)


def require_equal(found: str, path: Path) -> None:
    """Compare an output with the stored one, and say what differs and how to renew it."""
    import difflib

    name = path.relative_to(ROOT)
    stored = path.read_text(encoding="utf-8") if path.exists() else ""
    if found == stored:
        return
    lines = difflib.unified_diff(
        stored.splitlines(),
        found.splitlines(),
        f"{name} (stored)",
        f"{name} (now)",
        lineterm="",
        n=2,
    )
    shown = "\n".join([*lines][:120])
    raise AssertionError(
        f"{name} differs. If the change is meant, run `{REGENERATE}` and read the diff.\n{shown}"
    )
