"""Programs run in parallel for facts, with a time limit and bounded output.

If a program is missing, fails, hangs or prints too much, its answer holds the problem.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from slurm_jobs.common.stop import STOP_SIGNAL

_MAX_ERROR_BYTES = 4096
_CHUNK_BYTES = 65536
_AFTER_KILL_S = 0.2
"""Patience for killed processes; one that is stuck in the kernel (a dead file system or device) is
left."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandAnswer:
    """Output of a program."""

    output: bytes = b""
    """Standard output; the part so far if the program was ended early."""
    is_cut: bool = False
    """True if the program printed more than the limit."""
    problem: str = ""
    """Reason why the answer is missing or incomplete; empty if it is complete."""

    @property
    def text(self) -> str:
        """Return the output as text; bytes that are not UTF-8 become replacement characters."""
        return self.output.decode(errors="replace")


@dataclass(slots=True)
class _Running:
    """Program that was started, with its output so far."""

    program: str
    process: subprocess.Popen[bytes]
    output: bytearray
    errors: bytearray
    is_cut: bool = False
    is_late: bool = False


def ask_together(
    commands: Mapping[str, Sequence[str]],
    *,
    limit_s: float,
    max_bytes: int,
    env: Mapping[str, str] | None = None,
    prepare: Callable[[], None] | None = None,
) -> Mapping[str, CommandAnswer]:
    """Run all `commands` in parallel and return their answers by name.

    Args:
        commands: name to argument list.
        limit_s: for all together; programs that still run are then killed, with their children.
        max_bytes: of each output; a program that prints more is ended.
        env: their environment; by default that of this process.
        prepare: as `preexec_fn` of subprocess.
    """
    answers: dict[str, CommandAnswer] = {}
    running: dict[str, _Running] = {}
    end_s = time.monotonic() + limit_s
    try:
        for name, command in commands.items():
            try:
                running[name] = _start(command, env, prepare)
            except OSError as error:
                answers[name] = CommandAnswer(problem=f"{command[0]}: {error.strerror}")
        _read(list(running.values()), end_s, max_bytes)
        answers |= {name: _answer(one, end_s, limit_s) for name, one in running.items()}
    finally:
        for one in running.values():
            _end(one)
    return answers


def _start(
    command: Sequence[str], env: Mapping[str, str] | None, prepare: Callable[[], None] | None
) -> _Running:
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=env,
        start_new_session=True,
        preexec_fn=partial(_deafen, prepare),  # noqa: PLW1509 - makes only system calls
    )
    return _Running(command[0], process, bytearray(), bytearray())


def _deafen(prepare: Callable[[], None] | None) -> None:
    """Ignore the stop signal in the child: Slurm sends it to all processes of a job."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {STOP_SIGNAL})
    if prepare is not None:
        prepare()


def _read(running: Sequence[_Running], end_s: float, max_bytes: int) -> None:
    """Read all outputs until each is closed or over the limit, or time is up."""
    with selectors.DefaultSelector() as selector:
        for one in running:
            assert one.process.stdout is not None
            assert one.process.stderr is not None
            selector.register(one.process.stdout, selectors.EVENT_READ, (one, one.output))
            selector.register(one.process.stderr, selectors.EVENT_READ, (one, one.errors))
        while selector.get_map() and (left_s := end_s - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
                one, kept = key.data
                chunk = os.read(key.fd, _CHUNK_BYTES)
                limit = max_bytes if kept is one.output else _MAX_ERROR_BYTES
                if kept is one.output and len(kept) + len(chunk) > limit:
                    one.is_cut = True
                    _kill(one.process)
                kept += chunk[: limit - len(kept)]
                if not chunk or one.is_cut:
                    selector.unregister(key.fileobj)
        for key in selector.get_map().values():
            key.data[0].is_late = not key.data[0].is_cut


def _answer(one: _Running, end_s: float, limit_s: float) -> CommandAnswer:
    output = bytes(one.output)
    if one.is_cut:
        return CommandAnswer(output=output, is_cut=True)
    if not one.is_late:
        try:
            code = one.process.wait(max(0.0, end_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            one.is_late = True
    if one.is_late:
        return CommandAnswer(output=output, problem=f"{one.program}: no answer in {limit_s:g} s")
    if code == 0:
        return CommandAnswer(output=output)
    lines = one.errors.decode(errors="replace").strip().splitlines()
    reason = lines[0] if lines else f"exit code {code}"
    return CommandAnswer(output=output, problem=f"{one.program}: {reason}")


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _end(one: _Running) -> None:
    if one.process.poll() is None:
        _kill(one.process)
        with suppress(subprocess.TimeoutExpired):
            one.process.wait(_AFTER_KILL_S)
    for stream in (one.process.stdout, one.process.stderr):
        if stream is not None:
            stream.close()
