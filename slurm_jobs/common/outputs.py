"""Files that a stage lists in its result, so that a resume can check them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any


def describe_outputs(folder: Path, files: Iterable[Path]) -> dict[str, int]:
    """Return the size of each of `files` by its path below `folder`, as `outputs` of a result."""
    return {str(file.relative_to(folder)): file.stat().st_size for file in sorted(files)}


def named_outputs(result: Any) -> Mapping[str, int]:
    """Return the files that a stage's result lists, with sizes; empty if it lists none."""
    outputs = result.get("outputs") if isinstance(result, Mapping) else None
    return outputs if outputs and not outputs_problem(outputs) else {}


def outputs_problem(outputs: Any) -> str:
    """Return what is wrong with the value of `outputs` in a result; empty if nothing is."""
    if isinstance(outputs, Mapping) and all(
        isinstance(name, str) and isinstance(size, int) for name, size in outputs.items()
    ):
        return ""
    return "`outputs` in a stage's result gives the bytes of each file by its path below output_dir"
