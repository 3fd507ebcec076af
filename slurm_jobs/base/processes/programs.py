"""Programs run in parallel for facts, with a time limit and bounded output.

If a program is missing, fails, hangs or prints too much, its answer holds the problem.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from slurm_jobs.base.processes.stop_requests import STOP_SIGNAL

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


class _RunningProgram:
    """Program that was started, with its output so far."""

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str] | None,
        prepare: Callable[[], None] | None,
    ) -> None:
        self.program = command[0]
        # Slurm sends the stop signal to all processes of a job: the program inherits that it is
        # blocked. A `preexec_fn` would run Python in a fork, which may crash if there are threads.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {STOP_SIGNAL})
        try:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=env,
                start_new_session=True,
                preexec_fn=prepare,  # noqa: PLW1509 - only where this process has one thread
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self.output, self.errors = bytearray(), bytearray()
        self.is_cut = self.is_late = False

    def answer(self, end_s: float, limit_s: float) -> CommandAnswer:
        """Wait until the program has ended, or time is up."""
        output, problem = bytes(self.output), ""
        if self.is_cut:
            return CommandAnswer(output=output, is_cut=True)
        try:
            left_s = 0.0 if self.is_late else max(0.0, end_s - time.monotonic())
            code = self.process.wait(left_s)
        except subprocess.TimeoutExpired:
            self.is_late = True
        if self.is_late:
            problem = f"{self.program}: no answer in {limit_s:g} s"
        elif code != 0:
            lines = self.errors.decode(errors="replace").strip().splitlines()
            problem = f"{self.program}: {lines[0] if lines else f'exit code {code}'}"
        return CommandAnswer(output=output, problem=problem)

    def kill(self) -> None:
        """Kill the program and its children."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def close(self) -> None:
        """End the program if it still runs."""
        if self.process.poll() is None:
            self.kill()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(_AFTER_KILL_S)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


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
        prepare: as `preexec_fn` of subprocess, in a process with one thread.
    """
    answers: dict[str, CommandAnswer] = {}
    running: dict[str, _RunningProgram] = {}
    end_s = time.monotonic() + limit_s
    try:
        for name, command in commands.items():
            try:
                running[name] = _RunningProgram(command, env, prepare)
            except OSError as error:
                answers[name] = CommandAnswer(problem=f"{command[0]}: {error.strerror}")
        _read(running.values(), end_s, max_bytes)
        answers |= {name: program.answer(end_s, limit_s) for name, program in running.items()}
    finally:
        for program in running.values():
            program.close()
    return answers


def _read(running: Iterable[_RunningProgram], end_s: float, max_bytes: int) -> None:
    """Read all outputs until each is closed or over the limit, or time is up."""
    with selectors.DefaultSelector() as selector:
        for program in running:
            for stream, kept in (
                (program.process.stdout, program.output),
                (program.process.stderr, program.errors),
            ):
                assert stream is not None
                selector.register(stream, selectors.EVENT_READ, (program, kept))
        while selector.get_map() and (left_s := end_s - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
                program, kept = key.data
                chunk = os.read(key.fd, _CHUNK_BYTES)
                limit = max_bytes if kept is program.output else _MAX_ERROR_BYTES
                if kept is program.output and len(kept) + len(chunk) > limit:
                    program.is_cut = True
                    program.kill()
                kept += chunk[: limit - len(kept)]
                if not chunk or program.is_cut:
                    selector.unregister(key.fileobj)
        for key in selector.get_map().values():
            key.data[0].is_late = not key.data[0].is_cut
