"""Choice of what a clean removes: pieces whose work is done, or all but the kinds to keep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from slurm_jobs.run.contents import RunPart, pieces_of
from slurm_jobs.run_folder.cleanings import KINDS, Kind, Removed
from slurm_jobs.run_folder.disk_use import disk_use
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.resolved_spec import read_resolved_values
from slurm_jobs.status.run_status import RunStatus, StageStatus

DEFAULT_KEEP: frozenset[Kind] = frozenset(KINDS) - {"parts", "checkpoints"}
"""Kinds that stay without `--keep`."""


def chosen_pieces(
    paths: RunPaths, status: RunStatus | None, keep: frozenset[Kind] | None
) -> list[tuple[RunPart, bool]]:
    """Return each piece of the run, and whether it goes."""
    stages = {} if status is None else {stage.stage.name: stage for stage in status.stages}
    chosen = []
    for piece in pieces_of(paths):
        if keep is not None:
            chosen.append((piece, piece.kind not in keep))
        elif piece.kind in DEFAULT_KEEP or not _is_used_up(piece, stages):
            chosen.append((piece, False))
        elif piece.kind == "checkpoints":
            chosen += _split_checkpoints(paths, piece)
        else:
            chosen.append((piece, True))
    return chosen


def _is_used_up(piece: RunPart, stages: Mapping[str, StageStatus]) -> bool:
    """Check whether the stage that wrote the piece is complete, and all that come after it.

    Parts that no stage reads are the result, and stay.
    """
    stage = stages.get(piece.stage)
    after = [each for each in stages.values() if piece.stage in each.stage.after]
    has_reader = piece.kind != "parts" or any(s.stage.run == "consolidate" for s in after)
    return (
        stage is not None
        and stage.status == "completed"
        and has_reader
        and all(each.status == "completed" or each.is_not_needed for each in after)
    )


def _split_checkpoints(paths: RunPaths, piece: RunPart) -> Iterator[tuple[RunPart, bool]]:
    """Yield the checkpoints of a folder that go; those that the spec keeps stay."""
    keep = _keep_after_end(paths, piece.stage)
    folder = paths.run_dir / piece.path
    names = sorted(path.name for path in folder.glob("step-*"))
    if folder.name != "checkpoints" or keep == 0 or not names:
        yield piece, True
        return
    for name in names:
        step = replace(piece, path=piece.path / name)
        yield step, name not in names[-keep:]


def _keep_after_end(paths: RunPaths, stage: str) -> int:
    """Return how many checkpoints of a complete training the spec keeps; 0 if it does not say."""
    values = read_resolved_values(paths)["stages"].get(stage, {})
    config = values.get("config") or {}
    checkpoint = config.get("checkpoint") if isinstance(config, Mapping) else None
    keep = checkpoint.get("keep_after_end") if isinstance(checkpoint, Mapping) else None
    return keep if isinstance(keep, int) and keep > 0 else 0


def measured(run_dir: Path, piece: RunPart) -> Removed:
    """Return a piece with the space that its removal frees."""
    use = disk_use(run_dir / piece.path)
    num_bytes = use.num_bytes - use.linked_elsewhere_bytes
    return Removed(path=str(piece.path), kind=piece.kind, stage=piece.stage, num_bytes=num_bytes)


def link_on(run_dir: Path, path: Path) -> str | None:
    """Return the first symbolic link on the way to a piece, and where it leads; None without."""
    place = run_dir
    for part in path.parts:
        place /= part
        if place.is_symlink():
            return f"{place} -> {place.readlink()}"
    return None


def links_in(folder: Path) -> Iterator[str]:
    """Yield the symbolic links in a folder that lead to folders, and where they lead."""
    for path in folder.rglob("*"):
        if path.is_symlink() and path.is_dir():
            yield f"{path} -> {path.readlink()}"
