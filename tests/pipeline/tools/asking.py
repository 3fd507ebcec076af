"""The entry point of `show_samples`, with its defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pipeline.tools.show_samples import run


def ask(folder: Path, **arguments: Any) -> dict[str, Any]:
    values = {
        "folder": str(folder),
        "num": 2,
        "keys": [],
        "random_seed": None,
        "limit": None,
        "with_pictures": False,
        "num_threads": 2,
        **arguments,
    }
    return run(values, lambda _done, _total, _unit: None)
