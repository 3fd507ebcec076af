"""A process that reads with one peer and takes its commands as lines of JSON.

    python -m benchmarks.peers.child MODULE

`{"build": FOLDER, "source": FOLDER, "kind": KIND}` writes a set. `{"folder": FOLDER, "job": {...},
"at_least_s": 0.3}` reads one: an uncounted pass, which starts workers and touches memory, then
passes until the time is over. `{"first": true}` counts the first pass instead. Answers are lines of
JSON, too.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import sys
import time
import traceback
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.peers.job import Job, Pass, Source


def main() -> None:
    """Answer until the input ends."""
    warnings.filterwarnings("ignore")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keep the peer's output out of the answers
    peer = importlib.import_module(f"benchmarks.peers.{sys.argv[1]}")
    print(json.dumps(_hello(peer)), file=answers, flush=True)
    reading = _Reading(peer)
    for line in sys.stdin:
        try:
            answer = reading.answer(json.loads(line))
        except Exception as error:  # noqa: BLE001 - a peer may fail as it likes
            traceback.print_exc()
            answer = {"error": _in_one_line(error)}
        print(json.dumps(answer), file=answers, flush=True)


def _hello(peer: Any) -> dict[str, Any]:
    """Return the peer's name and version, or why it cannot be used."""
    try:
        importlib.import_module(peer.NEEDS)
        return {"name": peer.NAME, "package": peer.PACKAGE, "version": version(peer.PACKAGE)}
    except Exception as error:  # noqa: BLE001 - the reason that is printed
        traceback.print_exc()
        return {"error": _in_one_line(error)}


def _in_one_line(error: Exception) -> str:
    """Return the last line that names an error; DataLoaders report a whole traceback."""
    lines = f"{type(error).__name__}: {error}".splitlines()
    return [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)][-1]


class _Reading:
    """Answers questions, and keeps the set open because most questions are about the same one."""

    def __init__(self, peer: Any) -> None:
        self._peer = peer
        self._key: str | None = None
        self._pass: Pass | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        if "build" in request:
            folder = Path(request["build"])
            folder.mkdir(parents=True)
            self._peer.build(Source(folder=Path(request["source"]), kind=request["kind"]), folder)
            return {}
        if "close" in request:
            self._pass, self._key = None, None
            return {}
        job = Job(**request["job"])
        key = request["folder"] + job.to_json()
        if key != self._key:
            self._pass, self._key = None, None
            self._pass = self._peer.open_pass(Path(request["folder"]), job)
            self._key = key
        assert self._pass is not None
        if not request.get("first"):
            sum(self._pass())
        return timed(self._pass, request["at_least_s"])


def timed(one_pass: Pass, at_least_s: float) -> dict[str, Any]:
    """Run passes until the time is over; return samples, seconds and this process's CPU seconds."""
    num_samples, start_s, start_cpu_s = 0, time.perf_counter(), time.process_time()
    while True:
        num_samples += sum(one_pass())
        wall_s = time.perf_counter() - start_s
        if wall_s >= at_least_s:
            cpu_s = time.process_time() - start_cpu_s
            return {"num_samples": num_samples, "wall_s": wall_s, "cpu_s": cpu_s}


if __name__ == "__main__":
    main()
