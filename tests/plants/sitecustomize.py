"""Plants delays in the processes of a run: Python imports this where its folder is on PYTHONPATH.

`TEST_PLANTS` is a JSON list of plants. Each wraps one function of a module once that is imported,
and spends time before each call: `sleep_s` of doing nothing, `python_s` of computing in Python
(which holds the interpreter's lock), `native_s` of computing outside of it, `locked_s` of the same
in one thread at a time, `disk_s` of reading `file` past the page cache; or waits for `link_bytes`
to come over a network card of its own, see `planted_link`. `rank` plants in one rank alone, `node`
on one node of Slurm. It needs the standard library only, and touches no other module.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import json
import mmap
import os
import sys
import threading
import time
import zlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

_RANK = ("SLURM_JOBS_RANK", "SLURM_PROCID", "RANK")
_PIECE = os.urandom(1 << 16)
_READ = 1 << 23
_LOCK = threading.Lock()
_links: list[Any] = []


def plants() -> list[dict[str, Any]]:
    """Those that concern this process."""
    told = json.loads(os.environ.get("TEST_PLANTS", "[]"))
    here = next((os.environ[name] for name in _RANK if name in os.environ), "0")
    node = os.environ.get("SLURMD_NODENAME", "")
    return [
        plant
        for plant in told
        if str(plant.get("rank", here)) == here and plant.get("node", node) == node
    ]


def spend(plant: dict[str, Any]) -> None:
    """The time of one plant."""
    time.sleep(plant.get("sleep_s", 0.0))
    end = time.thread_time() + plant.get("python_s", 0.0)
    while time.thread_time() < end:
        sum(range(200))
    compute(plant.get("native_s", 0.0))
    if "locked_s" in plant:
        with _LOCK:
            compute(plant["locked_s"])
    if "disk_s" in plant:
        read_disk(plant["file"], plant["disk_s"])
    if "link_bytes" in plant:
        _links[0].fetch(plant["link_bytes"])


def compute(seconds: float) -> None:
    """For so long on a core, without the interpreter's lock."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        zlib.compress(_PIECE, 9)


def read_disk(file: str, seconds: float) -> None:
    """Wait for the disk for so long, whatever is in memory."""
    opened = os.open(file, os.O_RDONLY | os.O_DIRECT)
    try:
        end, place, size = time.monotonic() + seconds, 0, os.fstat(opened).st_size
        with mmap.mmap(-1, _READ) as pages:  # aligned, as the disk wants it
            while time.monotonic() < end:
                os.preadv(opened, [pages], place)
                place = (place + _READ) % (size // _READ * _READ)
    finally:
        os.close(opened)


def plant_in(owner: Any, path: str, plant: dict[str, Any]) -> None:
    """Wrap the function at `path` (`function` or `Class.method`) of a module."""
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    setattr(owner, name, delayed(getattr(owner, name), plant))


def delayed(function: Callable[..., Any], plant: dict[str, Any]) -> Callable[..., Any]:
    """`function`, each call after the plant's time."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        spend(plant)
        return function(*args, **kwargs)

    return call


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, planted: Sequence[dict[str, Any]]) -> None:
        self._planted = planted

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        own = [plant for plant in self._planted if plant["where"].partition(":")[0] == name]
        if not own:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        run_module = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            run_module(module)
            # The modules of a folder in an archive share a loader.
            for plant in own if module.__name__ == name else ():
                plant_in(module, plant["where"].partition(":")[2], plant)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if planted := plants():
    sys.meta_path.insert(0, _Finder(planted))
    if any("link_bytes" in plant for plant in planted) and any(n in os.environ for n in _RANK):
        from tests.plants.planted_link import Link

        _links.append(Link())  # now, while the process has one thread: each has its namespace
