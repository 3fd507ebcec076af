"""Child process of `commands.data`: calls one function of `pipeline` for a verb.

It starts as a script, by path, in the Python of a stage, which needs no package of ours. The
request names the packages to use. They are loaded from their folders, without adding the parent
folder (perhaps a whole site-packages) to `sys.path`. Before that only the standard library is used.

The request is one line on standard input: `{"packages": {NAME: FOLDER}, "entry_point":
"module:function", "arguments": {...}}`. Then the pipe stays open: when it closes, the caller is
dead and this process ends. Standard output gets lines of JSON: any number of `{"progress": {"done",
"total", "unit"}}`, and last `{"result": ...}` or `{"error": {"kind", "message"}}`. Output of
libraries goes to standard error.
"""

from __future__ import annotations

import sys

if __name__ == "__main__" and not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    del sys.path[0]  # the folder of this file; see `run/snapshot.py`

import importlib
import importlib.util
import json
import os
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

MIN_INTERVAL_S = 0.1
"""Shortest time between two progress messages."""


class Report:
    """Reporter of progress; may be called from several threads, at any rate."""

    def __init__(self, answers: TextIO) -> None:
        self._answers = answers
        self._lock = threading.Lock()
        self._last_s = 0.0

    def __call__(self, done: int, total: int, unit: str) -> None:
        """Report that `done` of `total` are done; the last one is always reported."""
        now = time.monotonic()
        with self._lock:
            if done < total and now - self._last_s < MIN_INTERVAL_S:
                return
            self._last_s = now
            say(self._answers, {"progress": {"done": done, "total": total, "unit": unit}})


def say(answers: TextIO, value: Mapping[str, Any]) -> None:
    """Write one line of the answer."""
    print(json.dumps(value), file=answers, flush=True)


def load_package(name: str, folder: str) -> None:
    """Import the package in `folder` as `name`, even if other packages have that name."""
    spec = importlib.util.spec_from_file_location(
        name, Path(folder) / "__init__.py", submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


def _end_with_the_caller() -> None:
    """End the process when the other end of standard input is closed."""
    while os.read(0, 4096):
        pass
    os._exit(1)


def main() -> None:
    """Process the single request."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller gets it, too, and ends us
    # Read one line byte by byte, so that no later byte is consumed.
    line = bytearray()
    while (byte := os.read(0, 1)) not in {b"", b"\n"}:
        line += byte
    request = json.loads(bytes(line))
    threading.Thread(target=_end_with_the_caller, daemon=True).start()
    with os.fdopen(os.dup(1), "w", encoding="utf-8") as answers:
        os.dup2(2, 1)
        if sys.version_info < (3, 10):  # noqa: UP036 - a stage may name any version
            message = f"{sys.executable} is Python {sys.version.split()[0]}; it takes 3.10 or newer"
            say(answers, {"error": {"kind": "file", "message": message}})
            return
        for name, folder in request["packages"].items():
            load_package(name, folder)
        from slurm_jobs.base.errors import SlurmJobsError

        module, _, function = request["entry_point"].partition(":")
        try:
            called = getattr(importlib.import_module(module), function)
            result = called(request["arguments"], Report(answers))
        except (ModuleNotFoundError, SlurmJobsError, OSError) as error:
            kind = "stage" if isinstance(error, SlurmJobsError) else "file"
            kind = "module" if isinstance(error, ModuleNotFoundError) else kind
            say(answers, {"error": {"kind": kind, "message": str(error)}})
        else:
            say(answers, {"result": result})


if __name__ == "__main__":
    main()
