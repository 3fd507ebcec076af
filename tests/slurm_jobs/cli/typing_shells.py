"""What a TAB offers, and real shells on a pseudo-terminal, in which a test types, TABs included."""

from __future__ import annotations

import os
import pty
import shlex
import shutil
import subprocess
import time
from pathlib import Path

from slurm_jobs.base.processes.python_commands import module_command
from tests.cluster.processes import is_readable

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = tuple(module_command("slurm_jobs"))
_READY = "at-your-service"
_WAIT_S = 20.0

_COMMANDS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
_WRITES_WORDS = f"""#!/bin/sh
[ -z "$_ARGCOMPLETE" ] || exec {shlex.join(PROGRAM)} "$@"
printf '%s\\0' "$@" > words.new
mv words.new words
"""
"""`slurm-jobs` of a test: it completes, and writes its words instead of running them."""


def asked(line: str, program: tuple[str, ...] = PROGRAM) -> subprocess.CompletedProcess[str]:
    """A process that is asked as argcomplete's script for bash does; it writes to descriptor 8."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SHELL": "bash",
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    command = ["bash", "-c", 'exec "$@" 8>&1', "-", *program]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True)


def offered(line: str) -> list[str]:
    result = asked(line)
    assert result.stderr == ""
    return result.stdout.splitlines()


def is_there(shell: str) -> bool:
    return shutil.which(shell) is not None


def words_typed(shell: str, keys: str, folder: Path, home: Path) -> list[str]:
    """The words that `slurm-jobs` is called with once `keys` and Return are typed in `folder`."""
    home.mkdir(exist_ok=True)
    setup = home / f"setup.{shell}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with setup.open("wb") as script:
        command = [*PROGRAM, "completion", shell]
        subprocess.run(command, env=environment, stdout=script, check=True)
    program = home / "slurm-jobs"
    program.write_text(_WRITES_WORDS)
    program.chmod(0o755)
    written = folder / "words"
    written.unlink(missing_ok=True)
    environment = {
        **{k: v for k, v in os.environ.items() if k in ("LANG", "LD_LIBRARY_PATH")},
        "PATH": f"{home}:{os.environ['PATH']}",
        "HOME": str(home),
        "TERM": "xterm",
        "PYTHONPATH": str(ROOT),
        "LC_ALL": "C.UTF-8",
        "PS1": "> ",
    }
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(folder)
        os.execvpe(_COMMANDS[shell][0], _COMMANDS[shell], environment)
    try:
        if shell == "fish":
            ready = f"function fish_prompt; echo {_READY[:4]}''{_READY[4:]}; end"
        else:
            ready = f"echo {_READY[:4]}''{_READY[4:]}"
        os.write(terminal, f"source {setup}; {ready}\r".encode())
        _read_until(terminal, _READY)
        os.write(terminal, f"{keys}\r".encode())
        end_s = time.monotonic() + _WAIT_S
        while not written.exists():
            assert time.monotonic() < end_s, f"{shell} ran nothing: {_read(terminal)!r}"
            _read(terminal)
        os.write(terminal, b"exit\r")
        while _read(terminal, 5.0):
            pass
        return written.read_text().split("\0")[:-1]
    finally:
        os.close(terminal)
        os.kill(child, 9)
        os.waitpid(child, 0)


def _read(terminal: int, wait_s: float = 0.05) -> str:
    ready = is_readable(terminal, wait_s)
    try:
        return os.read(terminal, 65536).decode(errors="replace") if ready else ""
    except OSError:  # Linux's end of a pseudo-terminal
        return ""


def _read_until(terminal: int, text: str) -> None:
    seen = ""
    end_s = time.monotonic() + _WAIT_S
    while text not in seen:
        assert time.monotonic() < end_s, seen
        seen += _read(terminal)
