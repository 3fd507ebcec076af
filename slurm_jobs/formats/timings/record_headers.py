"""First lines of files of records, validated before use: they may be damaged, or another user's."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from slurm_jobs.base.json_values import is_count

if TYPE_CHECKING:
    import numpy as np


HEADERS_FORMAT_NAME = "slurm-jobs-steps-1"
_MOST_HEADER_BYTES = 1 << 20

STRUCT_CODES = {"i8": "q", "i4": "i", "f8": "d", "f4": "f"}
"""NumPy types of fields, and the codes of the module `struct` for them."""


def header_line(name: str, fields: Sequence[Any], metadata: Mapping[str, Any]) -> bytes:
    """Return the first line of a file of records."""
    header = {"format": name, "fields": fields, "metadata": dict(metadata)}
    return (json.dumps(header) + "\n").encode()


def read_header_line(stream: IO[bytes], path: Path, name: str, kind: str) -> dict[str, Any]:
    """Read the first line of a file of records of the format `name`; `kind` is for messages."""
    try:
        header: dict[str, Any] = json.loads(stream.readline(_MOST_HEADER_BYTES))
    except (ValueError, RecursionError) as error:  # RecursionError: nested deeper than any header
        message = f"{path}: not a {kind} (its first line is no JSON header)"
        raise ValueError(message) from error
    if not isinstance(header, dict) or header.get("format") != name:
        other = header.get("format") if isinstance(header, dict) else header
        message = f"{path}: not a {kind}: format {other!r}, expected {name!r}"
        raise ValueError(message)
    return header


def read_records(payload: bytes, dtype: np.dtype[Any]) -> np.ndarray:
    """Return the whole records of a file as an array, without a truncated one at the end."""
    import numpy as np

    return np.frombuffer(payload[: len(payload) // dtype.itemsize * dtype.itemsize], dtype=dtype)


def read_header(stream: IO[bytes], path: Path) -> dict[str, Any]:
    """Read `fields` of the records and `metadata` of the writer, up to the first record.

    Raises:
        ValueError: it is no header, or one that no writer writes; `path` is named.
    """
    header = read_header_line(stream, path, HEADERS_FORMAT_NAME, "step file")
    fields, metadata = header.get("fields"), header.get("metadata")
    pairs = fields if isinstance(fields, list) else []
    pairs = [pair for pair in pairs if isinstance(pair, list) and len(pair) == 2]
    names = {name for name, _ in pairs if isinstance(name, str) and name}
    codes = [code for _, code in pairs if isinstance(code, str) and code in STRUCT_CODES]
    if not isinstance(fields, list) or not len(names) == len(codes) == len(fields):
        message = f"{path}: damaged: its header does not name the fields of its records"
        raise ValueError(message)
    if not _are_training_facts(metadata):
        message = f"{path}: damaged: its header has invalid ranks or phases"
        raise ValueError(message)
    return header


def _are_training_facts(metadata: Any) -> bool:
    """Check whether ranks and phases, if present, are values that a writer writes."""
    if not isinstance(metadata, dict) or not is_count(metadata.get("num_ranks", 0)):
        return False
    node_name = metadata.get("node_name") or ""  # printed, also to other users
    is_plain = isinstance(node_name, str) and node_name.isprintable()
    if not is_count(metadata.get("num_steps") or 0) or not is_plain:
        return False
    phases = metadata.get("phases") or []
    return isinstance(phases, list) and all(
        isinstance(phase, dict)
        and is_count(phase.get("first_step", -1 if "training" in phase else 0))
        for phase in phases
    )


def num_before_damage(is_valid: np.ndarray) -> int:
    """Count the records before the first that cannot be what was written."""
    return len(is_valid) if is_valid.all() else int(is_valid.argmin())
