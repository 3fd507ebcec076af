"""Network test between the nodes of a job: clock differences, and delay of new files.

The first node listens where a training's ranks would meet. Each other node requests its time,
and waits for a file that it writes. Each message is a line of JSON.
"""

from __future__ import annotations

import json
import socket
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from slurm_jobs.formats.node_records.doctor_facts import ClockFacts
from slurm_jobs.formats.records.task_context import TaskContext

_ROUNDS = 10
_MOST_LINE = 4096
_POLL_S = 0.002
FILE_PATIENCE_S = 20.0
CONNECT_PATIENCE_S = 30.0
"""srun starts the nodes' tasks within seconds of each other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Met:
    """A node's measurements with the first node."""

    clock: ClockFacts | None = None
    file_s: float | None = None
    reason: str = ""


def meet(context: TaskContext) -> Met:
    """Connect, as the first node or as one of the others; report why if it is not possible."""
    if context.num_nodes == 1:
        return Met(reason="the job has one node")
    try:
        if context.rank == 0:
            deadline_s = time.monotonic() + CONNECT_PATIENCE_S + FILE_PATIENCE_S
            with socket.create_server(("", context.main_port)) as server:
                left = context.num_nodes - 1
                while left:
                    server.settimeout(max(0.1, deadline_s - time.monotonic()))
                    connection, _ = server.accept()
                    connection.settimeout(FILE_PATIENCE_S + 5.0)
                    with (
                        connection,
                        connection.makefile("rw") as stream,
                        suppress(OSError, ValueError),
                    ):
                        # otherwise it may be a port scanner
                        if _heard(stream).get("run") == context.run_id:
                            left -= 1
                            _serve(stream, context.output_dir)
            return Met(reason="it is the first node")
        with _connected(context) as connection, connection.makefile("rw") as stream:
            _say(stream, {"run": context.run_id})
            bounds = []  # of several rounds: the answer is between question and reply
            for _ in range(_ROUNDS):
                before_s = time.time()
                _say(stream, {"time": True})
                theirs = float(_heard(stream)["unix_s"])
                bounds.append((theirs - time.time(), theirs - before_s))
            clock = ClockFacts(
                least_s=max(least for least, _ in bounds), most_s=min(most for _, most in bounds)
            )
            path = context.output_dir / str(_heard(stream)["name"])
            path.exists()
            _say(stream, {"looked": True})
            _heard(stream)
            file_s, start_s = None, time.monotonic()
            while file_s is None and time.monotonic() - start_s < FILE_PATIENCE_S:
                if path.exists():
                    file_s = time.monotonic() - start_s
                else:
                    time.sleep(_POLL_S)
            _say(stream, {"seen": file_s is not None})
        reason = "" if file_s is not None else f"no file was seen within {FILE_PATIENCE_S:g} s"
        return Met(clock=clock, file_s=file_s, reason=reason)
    except (OSError, ValueError) as error:
        if context.rank == 0:
            return Met(reason=f"not all nodes came: {error}")
        where = f"{context.main_addr}:{context.main_port}"
        return Met(reason=f"the first node could not be reached at {where}: {error}")


def _serve(stream: TextIO, folder: Path) -> None:
    for _ in range(_ROUNDS):
        _heard(stream)
        _say(stream, {"unix_s": time.time()})
    name = f"late-{uuid.uuid4().hex}"
    _say(stream, {"name": name})
    _heard(stream)  # it has looked, and the file did not exist: its client may cache that
    (folder / name).write_text("seen\n")
    _say(stream, {"written": name})
    _heard(stream)
    (folder / name).unlink(missing_ok=True)


def _connected(context: TaskContext) -> socket.socket:
    """Try until the first node listens."""
    end_s = time.monotonic() + CONNECT_PATIENCE_S
    while True:
        try:
            connection = socket.create_connection(
                (context.main_addr, context.main_port), timeout=5.0
            )
        except OSError:
            if time.monotonic() > end_s:
                raise
            time.sleep(0.2)
            continue
        connection.settimeout(CONNECT_PATIENCE_S + FILE_PATIENCE_S)  # others may be served before
        return connection


def _say(stream: TextIO, value: dict[str, Any]) -> None:
    stream.write(json.dumps(value) + "\n")
    stream.flush()


def _heard(stream: TextIO) -> dict[str, Any]:
    """Read one message.

    Raises:
        ValueError: it is invalid.
        OSError: none in time, or the connection was closed.
    """
    line = stream.readline(_MOST_LINE)
    if not line:
        message = "the other end has closed the connection"
        raise ConnectionError(message)
    value = json.loads(line)
    if not isinstance(value, dict):
        message = "not a message of slurm-jobs"
        raise ValueError(message)  # noqa: TRY004 - what was heard is wrong, as with broken JSON
    return value
