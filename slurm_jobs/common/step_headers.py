"""First line of a step file, validated before use.

The records may be damaged, or another user's.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import IO, Any

from slurm_jobs.common.json_values import is_count

FORMAT_NAME = "slurm-jobs-steps-1"

STRUCT_CODES = {"i8": "q", "i4": "i", "f8": "d", "f4": "f"}
"""NumPy types of fields, and the codes of the module `struct` for them."""


def read_header(stream: IO[bytes], path: Path) -> dict[str, Any]:
    """Read `fields` of the records and `metadata` of the writer, up to the first record.

    Raises:
        ValueError: it is no header, or one that no writer writes; `path` is named.
    """
    line = stream.readline()
    try:
        header: dict[str, Any] = json.loads(line)
    except (ValueError, RecursionError) as error:  # RecursionError: nested deeper than any header
        message = f"{path}: not a step file (its first line is no JSON header)"
        raise ValueError(message) from error
    if not isinstance(header, dict) or header.get("format") != FORMAT_NAME:
        found = header.get("format") if isinstance(header, dict) else header
        message = f"{path}: not a step file: format {found!r}, expected {FORMAT_NAME!r}"
        raise ValueError(message)
    if not _are_fields(header.get("fields")):
        message = f"{path}: damaged: its header does not name the fields of its records"
        raise ValueError(message)
    if not _tells_training(header.get("metadata")):
        message = f"{path}: damaged: its header has invalid ranks or phases"
        raise ValueError(message)
    return header


def _are_fields(said: Any) -> bool:
    """Check whether they are unique names with types as a writer has them."""
    if not isinstance(said, list) or not all(isinstance(f, list) and len(f) == 2 for f in said):
        return False
    names = [name for name, _ in said if isinstance(name, str) and name]
    codes = [code for _, code in said if isinstance(code, str) and code in STRUCT_CODES]
    return len(set(names)) == len(codes) == len(said)


def _tells_training(said: Any) -> bool:
    """Check whether ranks and phases, if present, are values that a writer writes."""
    if not isinstance(said, dict) or not is_count(said.get("num_ranks", 0)):
        return False
    if not is_count(said.get("num_steps") or 0) or not _is_plain(said.get("node_name") or ""):
        return False
    phases = said.get("phases") or []
    return isinstance(phases, list) and all(
        isinstance(phase, dict)
        and is_count(phase.get("first_step", -1 if "training" in phase else 0))
        for phase in phases
    )


def _is_plain(value: Any) -> bool:
    """Check for text without control characters: it is printed, also to other users."""
    return isinstance(value, str) and value.isprintable()
