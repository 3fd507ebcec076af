"""Record of what `clean` removed from a run: `cleaned.json`.

It is written before anything is removed and again at the end, so that an interrupted clean is known
and the next one finishes it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any, Literal, get_args

from slurm_jobs.base.files import damaged, read_json, write_json_atomic
from slurm_jobs.base.json_values import is_count, is_moment
from slurm_jobs.run_folder.paths import RunPaths

Kind = Literal["report", "model", "metrics", "data", "logs", "checkpoints", "parts"]
"""Kind of what a run folder has, besides the records, which always stay."""
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, kw_only=True, slots=True)
class Removed:
    """One folder or file that was removed."""

    path: str
    """Relative to the run's folder."""
    kind: Kind
    stage: str
    """Stage that wrote it; empty if it is not of one stage."""
    num_bytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Cleaning:
    """One clean of a run."""

    begun_unix_s: float
    ended_unix_s: float | None
    """None if it was interrupted."""
    is_whole: bool
    """True if the whole folder is removed; then nothing of the run can be used any more."""
    removed: tuple[Removed, ...] = ()


def read_cleanings(paths: RunPaths) -> tuple[Cleaning, ...]:
    """Return all cleans of a run, oldest first; none if it was never cleaned.

    Raises:
        DamagedFileError: the file is none that `clean` writes.
        OSError: it cannot be read.
    """
    try:
        values = read_json(paths.cleaned)
    except FileNotFoundError:
        return ()
    try:
        return tuple(_cleaning(each) for each in values["cleanings"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise damaged(paths.cleaned, error) from error


def _cleaning(values: Any) -> Cleaning:
    begun, ended = values["begun_unix_s"], values["ended_unix_s"]
    if not is_moment(begun) or not (ended is None or is_moment(ended)):
        message = "it has no times"
        raise ValueError(message)
    return Cleaning(
        begun_unix_s=begun,
        ended_unix_s=ended,
        is_whole=bool(values["is_whole"]),
        removed=tuple(_removed(each) for each in values["removed"]),
    )


def _removed(values: Any) -> Removed:
    removed = Removed(**values)
    path = PurePosixPath(removed.path)
    is_inside = path.parts and not path.is_absolute() and ".." not in path.parts
    if not is_inside or removed.kind not in KINDS or not is_count(removed.num_bytes):
        message = f"{removed.path!r:.80} is no path below the run"
        raise ValueError(message)
    return removed


def write_cleanings(paths: RunPaths, cleanings: tuple[Cleaning, ...]) -> None:
    """Replace the record."""
    write_json_atomic(paths.cleaned, {"cleanings": [asdict(each) for each in cleanings]})


def unfinished(cleanings: tuple[Cleaning, ...]) -> Cleaning | None:
    """Return a clean that was interrupted; None if all have ended."""
    return next((each for each in cleanings if each.ended_unix_s is None), None)


def removed_since(
    cleanings: tuple[Cleaning, ...], stage: str, written_unix_s: float
) -> list[Removed]:
    """Return what was removed of a stage's output that was written by then.

    What the stage has written since is there again.
    """
    return [
        removed
        for cleaning in cleanings
        for removed in cleaning.removed
        if removed.stage == stage and cleaning.begun_unix_s >= written_unix_s
    ]


def without_removed(
    paths: RunPaths, stage: str, outputs: Mapping[str, int], removed: Iterable[Removed]
) -> dict[str, int]:
    """Return those of a result's `outputs` (sizes by path) that are not in what was removed."""
    places = [paths.run_dir / each.path for each in removed]
    left = {}
    for name, num_bytes in outputs.items():
        file = paths.output_dir(stage) / name
        if not any(file.is_relative_to(place) for place in places):
            left[name] = num_bytes
    return left


def removed_of(paths: RunPaths) -> list[Removed]:
    """Return all that `clean` ever removed from a run; it may have been made again since.

    Raises:
        DamagedFileError, OSError: see `read_cleanings`.
    """
    return [removed for cleaning in read_cleanings(paths) for removed in cleaning.removed]


def are_logs_cleaned(paths: RunPaths) -> bool:
    """Check whether `clean` removed logs of a run."""
    return any(removed.kind == "logs" for removed in removed_of(paths))


def cleaned_note(paths: RunPaths) -> str | None:
    """Return when and what `clean` removed, as a sentence; None if nothing was removed."""
    removed = removed_of(paths)
    if not removed:
        return None
    what = dict.fromkeys(f"{r.kind} of {r.stage}" if r.stage else r.kind for r in removed)
    last_s = max(cleaning.begun_unix_s for cleaning in read_cleanings(paths))
    day = time.strftime("%d %B %Y", time.localtime(last_s)).lstrip("0")
    return f"this run was cleaned, last on {day}; removed were: {', '.join(what)}"
