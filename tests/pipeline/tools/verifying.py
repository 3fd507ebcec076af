"""The entry point of `verify`, what it finds, and a bit to break."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.tools.verify import run


def verify(folder: Path, **arguments: Any) -> dict[str, Any]:
    values = {"folder": str(folder), "num_threads": 2, "num_tasks": 1, **arguments}
    return run(values, lambda _done, _total, _unit: None)


def problems_of(folder: Path) -> list[tuple[str, str | None, str]]:
    return [(p["file"], p["key"], p["message"]) for p in verify(folder)["problems"]]


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 4
    path.write_bytes(data)
