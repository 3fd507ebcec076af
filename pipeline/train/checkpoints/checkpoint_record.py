"""Record of a checkpoint: `checkpoint.json`, the last file that is written into it.

A record is damaged if it is missing or has other content than was written. A failing file
system (`EIO`, `ESTALE`) does not mean damage: it fails the attempt, and another attempt reads
the same checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xxhash

from slurm_jobs.base.errors import StageError
from slurm_jobs.base.files import dump_json, read_json, write_json_atomic

INFO_NAME = "checkpoint.json"


_OWN_HASH = "xxh3"
"""Key of `checkpoint.json`: xxh3-128 over all its other values. Older ones have none."""


NO_FILE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
"""Errors for a path where a file should exist."""


DAMAGE = (*NO_FILE, ValueError, TypeError, KeyError)
"""Errors of `read_info` on a damaged record."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileFacts:
    """One file of a checkpoint, as written."""

    num_bytes: int
    xxh3: str
    """xxh3-128 in hexadecimal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Work of the stage that a checkpoint belongs to; a resume may give the stage other work."""

    fingerprint: str = ""
    """Fingerprint of the stage's config, code and parents; empty in old checkpoints."""
    num_again: int = 0
    """Number of times the stage was requested again, complete or not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointInfo:
    """Content of a checkpoint's record."""

    step: int
    """Optimizer steps completed. With the seed it determines the position in the data, too."""
    loss: float
    """Loss of the last step."""
    num_ranks: int
    config_fingerprint: str
    config: Mapping[str, Any]
    """The part of the config that must not change between attempts."""
    dataset_fingerprint: str
    files: Mapping[str, FileFacts]
    versions: Mapping[str, str]
    work: Work = Work()
    """Work of the stage when it was written."""
    base: str = ""
    """Hash of the weights that are not trained, and not stored here; empty if all are trained."""
    follows: str = ""
    """`record_hash` of the checkpoint that ended the phase before; empty in a first phase."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """Identity of an attempt's training, which a checkpoint must match to be loaded."""

    lasting_config: Mapping[str, Any]
    """The part of the config that must not change between attempts."""
    dataset_fingerprint: str
    work: Work
    """Work of this attempt's stage."""
    versions: Mapping[str, str]
    """Versions of the libraries that affect results."""
    base: str = ""
    """Hash of the weights that are not trained; empty if all are."""
    follows: str = ""
    """`record_hash` of the checkpoint that ended the phase before; empty in a first phase."""


def checkpoint_name(step: int) -> str:
    """Return the name of the folder with the state after `step` steps."""
    return f"step-{step:08d}"


def write_info(folder: Path, info: CheckpointInfo) -> None:
    """Write `checkpoint.json`, the last file of a checkpoint, with its own checksum."""
    values = asdict(info)
    write_json_atomic(folder / INFO_NAME, {**values, _OWN_HASH: _hash_values(values)})


def _hash_values(values: Mapping[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(dump_json(values).encode())


def record_hash(info: CheckpointInfo) -> str:
    """Return the hash of a checkpoint's record, which includes the hashes of its files."""
    return _hash_values(asdict(info))


def read_info(folder: Path) -> CheckpointInfo:
    """Read the record of a checkpoint that has its final name.

    Raises:
        FileNotFoundError, ValueError, TypeError, KeyError: the file is missing, damaged, or of
            another step than the folder's name.
        StageError: the file system failed.
    """
    with reading(folder / INFO_NAME):
        record = read_json(folder / INFO_NAME)
    values = _mapping(record, "the record")
    written = values.pop(_OWN_HASH, None)
    if written is not None and written != (actual := _hash_values(values)):
        message = f"its values have xxh3 {actual[:12]}, written were {written[:12]}"
        raise ValueError(message)
    if folder.name != checkpoint_name(values["step"]):
        message = f"step {values['step']} in a folder called {folder.name}"
        raise ValueError(message)
    listed = _mapping(values["files"], "`files`")
    files = {name: FileFacts(**facts) for name, facts in listed.items()}
    work = Work(**_mapping(values.get("work", {}), "`work`"))
    return CheckpointInfo(**{**values, "files": files, "work": work})


def _mapping(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        message = f"{name} is {value!r:.40}, expected a mapping"
        raise ValueError(message)  # noqa: TRY004 - a damaged file, not a caller's mistake
    return value


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Distinguish a missing file, which is damage, from a failing file system."""
    try:
        yield
    except NO_FILE:
        raise
    except OSError as error:
        message = (
            f"{path}: cannot be read now ({error}); the checkpoint is kept, and another attempt "
            "reads it again"
        )
        raise StageError(message) from error
