"""Snapshot of a run: everything that `status` and `watch` show, read at one moment."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slurm_jobs.base.files import read_json
from slurm_jobs.cli.run_view.problems import (
    NO_NEW_FAILURES,
    FailedAttempt,
    Failure,
    NewFailures,
    last_failure,
    new_failures,
)
from slurm_jobs.run.observe import status_of
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_meta
from slurm_jobs.status.run_status import RunStatus
from slurm_jobs.status.slice_status import SliceStatus
from slurm_jobs.worker.rank import exit_path


@dataclass(frozen=True, kw_only=True, slots=True)
class RunView:
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


def read_view(
    run_dir: Path,
    *,
    fresh: bool = False,
    with_failure: bool = False,
    reported: Collection[FailedAttempt] | None = None,
) -> RunView:
    """Read a run and query its scheduler.

    `with_failure`: find the last failure, with the end of its log. `reported`: find the failures
    that are not among these.
    """
    status = status_of(run_dir, fresh=fresh)
    meta = read_meta(RunPaths(run_dir))
    progress, shares = {}, {}
    for stage in status.stages:
        if stage.status == "running" and stage.stage.num_slices == 1:
            name = stage.stage.name
            progress[name], share = task_progress(run_dir, name, stage.slices[0])
            if share is not None:
                shares[name] = share
    failures = NO_NEW_FAILURES
    if reported is not None:
        failures = new_failures(run_dir, status, reported)
    return RunView(
        run_id=meta.run_id,
        scheduler=meta.scheduler,
        created_unix_s=meta.created_unix_s,
        status=status,
        progress=progress,
        shares=shares,
        failure=last_failure(run_dir, status) if with_failure else None,
        new_failures=failures,
    )


def task_progress(run_dir: Path, stage: str, part: SliceStatus) -> tuple[str, float | None]:
    """Return the progress that a running task reported: in words, and as a share if known.

    What it is doing is left out once its first rank has ended: the file still has the last.
    """
    task_dir = RunPaths(run_dir).task_dir(stage, part.slice_index, part.attempt)
    attempt = f"attempt {part.attempt}: " if part.attempt > 1 else ""
    try:
        values: dict[str, Any] = read_json(task_dir / "progress.json")
    except FileNotFoundError:
        return attempt.removesuffix(": "), None
    share = f"{values['done']}/{values['total']} {values['unit']}" if values["unit"] else ""
    text = f"{share} {values['detail']}".strip()
    activity = values.get("activity")  # older versions write none
    if activity is not None and not exit_path(task_dir, 0).exists():
        text = ", ".join(filter(None, [activity, share]))
    text = f"{attempt}{text}".strip().removesuffix(":")
    return text, values["done"] / values["total"] if values["total"] else None
