"""The folders that checkpoints lie in: named by their step, whole or not there.

checkpoints/step-00000250/            a whole checkpoint, `checkpoint.json` written last
checkpoints/.step-00000300.2.tmp/     one that attempt 2 was writing
checkpoints/.unreadable-step-...      one that did not pass its checksums, kept for a look
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import xxhash

from slurm_jobs.common.files import read_json, sync_dir, write_json_atomic

INFO_NAME = "checkpoint.json"
_STEP_NAME = re.compile(r"step-(\d{8,})")
_CHUNK_BYTES = 1 << 22


@dataclass(frozen=True, kw_only=True, slots=True)
class FileFacts:
    """One file of a checkpoint, as it was written."""

    num_bytes: int
    xxh3: str
    """xxh3-128 in hexadecimal."""


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


def checkpoint_dir(root: Path, step: int) -> Path:
    """Where the checkpoint after `step` steps lies."""
    return root / f"step-{step:08d}"


def temp_checkpoint_dir(root: Path, step: int, attempt: int) -> Path:
    """Where `attempt` writes it before it is whole."""
    return root / f".step-{step:08d}.{attempt}.tmp"


def list_checkpoints(root: Path) -> list[tuple[int, Path]]:
    """Steps and folders of all whole checkpoints, newest first."""
    if not root.is_dir():
        return []
    found = ((_STEP_NAME.fullmatch(path.name), path) for path in root.iterdir())
    return sorted(((int(match[1]), path) for match, path in found if match), reverse=True)


def hash_file(path: Path) -> FileFacts:
    """Size and checksum of a file."""
    digest, num_bytes = xxhash.xxh3_128(), 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
            num_bytes += len(chunk)
    return FileFacts(num_bytes=num_bytes, xxh3=digest.hexdigest())


def write_info(folder: Path, info: CheckpointInfo) -> None:
    """Write `checkpoint.json`, the last file of a checkpoint."""
    write_json_atomic(folder / INFO_NAME, asdict(info))


def read_info(folder: Path) -> CheckpointInfo:
    """The info that `write_info` wrote.

    Raises:
        OSError, ValueError, TypeError, KeyError: the file is missing or damaged.
    """
    values = read_json(folder / INFO_NAME)
    files = {name: FileFacts(**facts) for name, facts in values["files"].items()}
    return CheckpointInfo(**{**values, "files": files})


def damaged_files(folder: Path, files: Mapping[str, FileFacts]) -> list[str]:
    """What is wrong with each of `files` that is not as it was written."""
    problems = []
    for name, expected in files.items():
        try:
            found = hash_file(folder / name)
        except OSError as error:
            problems.append(f"{name}: {error.strerror}")
            continue
        if found != expected:
            problems.append(
                f"{name}: {found.num_bytes} bytes, xxh3 {found.xxh3[:12]}; "
                f"written were {expected.num_bytes} bytes, xxh3 {expected.xxh3[:12]}"
            )
    return problems


def share_of_files(
    files: Mapping[str, FileFacts], rank: int, num_ranks: int
) -> dict[str, FileFacts]:
    """The files that `rank` checks: every file is one rank's work."""
    return {name: files[name] for name in sorted(files)[rank::num_ranks]}


def publish(temp_dir: Path, final_dir: Path) -> None:
    """Give a finished folder its name, durably."""
    sync_dir(temp_dir)
    temp_dir.rename(final_dir)
    sync_dir(final_dir.parent)


def set_aside(folder: Path, attempt: int) -> Path:
    """Rename an unreadable checkpoint, so that its step can be saved again."""
    aside = folder.with_name(f".unreadable-{folder.name}.{attempt}")
    folder.rename(aside)
    return aside


def remove_leftovers(root: Path) -> None:
    """Remove what killed attempts were writing. Earlier attempts are fenced off by now."""
    for path in root.glob(".step-*.tmp"):
        shutil.rmtree(path)


def keep_newest(root: Path, keep_last: int) -> Sequence[Path]:
    """Remove all but the newest checkpoints; a half-removed one no longer has a name."""
    removed = [path for _, path in list_checkpoints(root)[keep_last:]]
    for path in removed:
        doomed = path.with_name(f".{path.name}.old.tmp")
        path.rename(doomed)
        shutil.rmtree(doomed)
    return removed
