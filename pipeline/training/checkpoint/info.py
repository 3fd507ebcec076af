"""What a checkpoint says of itself: `checkpoint.json`, the last file that is written into it.

Damaged is a record that is missing or has another content than was written. A file system that
fails (`EIO`, `ESTALE`) says nothing of it: that is an error of the attempt, and another attempt
reads the same checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xxhash

from slurm_jobs.common.errors import StageError
from slurm_jobs.common.files import dump_json, read_json, write_json_atomic

INFO_NAME = "checkpoint.json"
_OWN_HASH = "xxh3"
"""Key of `checkpoint.json`: xxh3-128 over all its other values. Older ones have none."""
NO_FILE = (FileNotFoundError, IsADirectoryError, NotADirectoryError)
"""What is told of a path where there should be a file, and is none."""
DAMAGE = (*NO_FILE, ValueError, TypeError, KeyError)
"""What `read_info` raises on a record that is damaged."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileFacts:
    """One file of a checkpoint, as it was written."""

    num_bytes: int
    xxh3: str
    """xxh3-128 in hexadecimal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Which work of a stage a checkpoint belongs to; a resume may give the stage other work."""

    fingerprint: str = ""
    """Of the stage's config, code and parents; empty in checkpoints that do not say."""
    num_again: int = 0
    """How often somebody had asked for the stage to run again, complete or not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckpointInfo:
    """What a checkpoint says of itself."""

    step: int
    """Optimizer steps completed. With the seed it is the position in the data, too."""
    loss: float
    """Of the last of them."""
    num_ranks: int
    config_fingerprint: str
    config: Mapping[str, Any]
    """The part of the config that must not change between attempts."""
    dataset_fingerprint: str
    files: Mapping[str, FileFacts]
    versions: Mapping[str, str]
    work: Work = Work()
    """What the stage was to do when it was written."""
    base: str = ""
    """A hash of the weights that do not learn, which it has none of; empty if all learn."""
    follows: str = ""
    """`record_hash` of the checkpoint that ended the phase before; empty in a first phase."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Identity:
    """Which training an attempt makes: what a checkpoint is compared with before it is loaded."""

    lasting_config: Mapping[str, Any]
    """The part of the config that must not change between attempts."""
    dataset_fingerprint: str
    work: Work
    """Of this attempt's stage."""
    versions: Mapping[str, str]
    """Of the libraries that numbers depend on."""
    base: str = ""
    """A hash of the weights that do not learn; empty if all learn."""
    follows: str = ""
    """`record_hash` of the checkpoint that ended the phase before; empty in a first phase."""


def checkpoint_name(step: int) -> str:
    """The name of the folder that has the state after `step` steps."""
    return f"step-{step:08d}"


def write_info(folder: Path, info: CheckpointInfo) -> None:
    """Write `checkpoint.json`, the last file of a checkpoint, with a checksum of its own."""
    values = asdict(info)
    write_json_atomic(folder / INFO_NAME, {**values, _OWN_HASH: _hash_values(values)})


def _hash_values(values: Mapping[str, Any]) -> str:
    return xxhash.xxh3_128_hexdigest(dump_json(values).encode())


def record_hash(folder: Path) -> str:
    """Of all that a whole checkpoint says of itself, the hashes of its files among it.

    Raises:
        FileNotFoundError, ValueError, TypeError, KeyError, StageError: as `read_info`.
    """
    return hash_record(read_info(folder))


def hash_record(info: CheckpointInfo) -> str:
    """The `record_hash` of the checkpoint that says this of itself."""
    return _hash_values(asdict(info))


def read_info(folder: Path) -> CheckpointInfo:
    """The info that `write_info` wrote into a checkpoint that has its name by now.

    Raises:
        FileNotFoundError, ValueError, TypeError, KeyError: the file is missing, damaged,
            or of another step than the folder's name says.
        StageError: the file system failed.
    """
    with reading(folder / INFO_NAME):
        record = read_json(folder / INFO_NAME)
    values = _mapping(record, "the record")
    written = values.pop(_OWN_HASH, None)
    if written is not None and written != (found := _hash_values(values)):
        message = f"its values have xxh3 {found[:12]}, written were {written[:12]}"
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
    """Tell a file that is not there, which is damage, from a file system that fails."""
    try:
        yield
    except NO_FILE:
        raise
    except OSError as error:
        message = (
            f"{path}: cannot be read now ({error}); the checkpoint stays as it is, and another "
            f"attempt reads it again"
        )
        raise StageError(message) from error
