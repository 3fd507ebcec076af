"""Snapshot of a run: everything that `status` and `watch` show, read at one moment."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm_jobs.cli.problems import (
    NO_NEW_FAILURES,
    FailedAttempt,
    Failure,
    NewFailures,
    last_failure,
    new_failures,
)
from slurm_jobs.common.files import read_json
from slurm_jobs.reconcile import RunStatus, SliceStatus
from slurm_jobs.run.observe import status_of
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.store import read_meta


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """Snapshot of a run."""

    run_id: str
    scheduler: str
    created_unix_s: float
    status: RunStatus
    progress: Mapping[str, str]
    """Progress of the single task of a running stage, by stage."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Progress as a number from 0 to 1, if the task reports it."""
    failure: Failure | None = None
    """Last failure, if it was requested."""
    new_failures: NewFailures = NO_NEW_FAILURES


def look(
    run_dir: Path,
    *,
    fresh: bool = False,
    with_failure: bool = False,
    told: Collection[FailedAttempt] | None = None,
) -> Seen:
    """Read a run and query its scheduler.

    Args:
        run_dir: the run's folder.
        fresh: see `observe.status_of`.
        with_failure: look for the last failure, with the end of its log.
        told: look for the failures that are not among these.
    """
    status = status_of(run_dir, fresh=fresh)
    meta = read_meta(RunPaths(run_dir))
    told_by = {
        s.stage.name: task_progress(run_dir, s.stage.name, s.slices[0])
        for s in status.stages
        if s.status == "running" and s.stage.num_slices == 1
    }
    return Seen(
        run_id=meta.run_id,
        scheduler=meta.scheduler,
        created_unix_s=meta.created_unix_s,
        status=status,
        progress={name: text for name, (text, _) in told_by.items()},
        shares={name: share for name, (_, share) in told_by.items() if share is not None},
        failure=last_failure(run_dir, status) if with_failure else None,
        new_failures=NO_NEW_FAILURES if told is None else new_failures(run_dir, status, told),
    )


def task_progress(run_dir: Path, stage: str, part: SliceStatus) -> tuple[str, float | None]:
    """Return the progress that a running task reported: in words, and as a share if known."""
    path = RunPaths(run_dir).task_dir(stage, part.slice_index, part.attempt) / "progress.json"
    attempt = f"attempt {part.attempt}: " if part.attempt > 1 else ""
    try:
        values: dict[str, Any] = read_json(path)
    except FileNotFoundError:
        return attempt.removesuffix(": "), None
    share = f"{values['done']}/{values['total']} {values['unit']}"
    text = f"{attempt}{share} {values['detail']}".strip()
    return text, values["done"] / values["total"] if values["total"] else None
