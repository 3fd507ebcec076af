"""Stops a training of several ranks, resumes it with other ranks, and compares what they read."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.process import ROOT, PeerFailedError, python_of

WITHIN_S = 180
"""A rank that waits for a failed one may wait forever."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """How a module's loader is read."""

    module: str
    folder: Path
    """Folder of the set and of the results."""
    global_batch: int
    """Batch size over all ranks."""
    stopped_after: int
    """Number of steps before the stop."""
    is_state_of_rank: bool
    num_steps: int | None
    """Steps of an epoch for a loader that continues after its end; None for one that ends there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Resumed:
    """Result of a resumed training."""

    num_missing: int
    num_repeated: int
    first_s: float
    """Seconds from opening the set to the first batch, of the slowest rank."""
    position_s: float | None
    """Seconds until the position is known; only for ours."""


def stop_and_go_on(reading: Reading, before: int, after: int, num_samples: int) -> Resumed:
    """Read with `before` ranks, then resume with `after` ranks.

    Raises:
        PeerFailedError: a rank failed or did not end in time.
    """
    states = [reading.folder / f"state-{rank}" for rank in range(before)]
    saved = states if reading.is_state_of_rank else states[:1] * before
    begun = _run(reading, before, num_steps=reading.stopped_after, states_out=states)
    num_more = None if reading.num_steps is None else reading.num_steps - reading.stopped_after
    taken = [saved[rank % before] for rank in range(after)]
    rest = _run(reading, after, num_steps=num_more, states_in=taken)
    numbers = [*in_order(begun), *in_order(rest)]
    if num_more is not None:
        numbers = numbers[:num_samples]  # the last step reaches into the next epoch
    num_missing, num_repeated = count(numbers, num_samples)
    position_s = [rank["position_s"] for rank in rest if rank["position_s"] is not None]
    return Resumed(
        num_missing=num_missing,
        num_repeated=num_repeated,
        first_s=max(rank["first_s"] for rank in rest),
        position_s=max(position_s, default=None),
    )


def count(numbers: Sequence[int], num_samples: int) -> tuple[int, int]:
    """Return how many of `range(num_samples)` are missing, and how many numbers are repeats."""
    counts = Counter(numbers)
    return num_samples - len(counts), counts.total() - len(counts)


def in_order(ranks: Sequence[Mapping[str, Any]]) -> list[int]:
    """Merge what the ranks read: step by step, in the order of the ranks."""
    num_steps = max(len(rank["steps"]) for rank in ranks)
    return [
        number
        for step in range(num_steps)
        for rank in ranks
        if step < len(rank["steps"])
        for number in rank["steps"][step]
    ]


def _run(
    reading: Reading,
    num_ranks: int,
    *,
    num_steps: int | None,
    states_in: Sequence[Path] = (),
    states_out: Sequence[Path] = (),
) -> list[dict[str, Any]]:
    outs = [reading.folder / f"out-{rank}.json" for rank in range(num_ranks)]
    port = _free_port()
    processes = []
    for rank, out in enumerate(outs):
        out.unlink(missing_ok=True)
        request = {
            "module": reading.module,
            "folder": str(reading.folder / "set"),
            "batch_size": reading.global_batch // num_ranks,
            "num_steps": num_steps,
            "state_in": str(states_in[rank]) if states_in else None,
            "state_out": str(states_out[rank]) if states_out else None,
            "out": str(out),
        }
        processes.append(start(request, reading.folder / "log", rank, num_ranks, port))
    wait_for(processes, reading.folder / "log")
    return [json.loads(out.read_text()) for out in outs]


def start(
    request: Mapping[str, Any], log: Path, rank: int = 0, num_ranks: int = 1, port: int = 0
) -> subprocess.Popen[bytes]:
    """Start `benchmarks.peers.resuming.rank` with the variables that torchrun sets."""
    variables = {
        "RANK": rank,
        "GLOBAL_RANK": rank,
        "LOCAL_RANK": rank,
        "WORLD_SIZE": num_ranks,
        "LOCAL_WORLD_SIZE": num_ranks,
        "NNODES": 1,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "PYTHONPATH": ROOT,
    }
    with log.open("ab") as stream:
        return subprocess.Popen(
            [
                python_of(request["module"]),
                "-m",
                "benchmarks.peers.resuming.rank",
                json.dumps(request),
            ],
            stdout=stream,
            stderr=stream,
            stdin=subprocess.DEVNULL,
            cwd=ROOT,
            env={**os.environ, **{name: str(value) for name, value in variables.items()}},
            start_new_session=True,  # so that its workers end with it
        )


def wait_for(processes: Sequence[subprocess.Popen[bytes]], log: Path) -> None:
    """Wait until all have ended.

    Raises:
        PeerFailedError: one failed or took too long; all are ended then.
    """
    try:
        failed = [process for process in processes if process.wait(WITHIN_S)]
    except subprocess.TimeoutExpired as error:
        message = f"a rank did not end within {WITHIN_S} s; see {log}"
        raise PeerFailedError(message) from error
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if failed:
        lines = log.read_text(errors="replace").splitlines()
        errors = [line for line in lines if "Error" in line] or ["no error was printed"]
        raise PeerFailedError(errors[-1])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
