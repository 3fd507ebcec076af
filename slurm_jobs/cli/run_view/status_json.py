"""Status of a run as JSON values."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.base.index_ranges import ranges_text
from slurm_jobs.cli.run_view.causes import read_reason
from slurm_jobs.cli.run_view.problems import completed_notes, place_notes
from slurm_jobs.formats.records.joined_reasons import joined_text
from slurm_jobs.run_folder.notes import read_note
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.status.run_status import RunStatus
from slurm_jobs.status.slice_status import SliceStatus

if TYPE_CHECKING:
    from slurm_jobs.status.run_status import StageStatus


def status_values(run_dir: Path, status: RunStatus, now_unix_s: float) -> dict[str, Any]:
    """Return a status as JSON values; ages in seconds, None for what was read from files."""
    notes = completed_notes(run_dir, status) | place_notes(run_dir, status, "running")
    in_cancelled = place_notes(run_dir, status, "cancelled")

    def age_s(sources: tuple[str, ...]) -> float | None:
        asked = status.query_time_of(sources)
        return None if asked is None else round(max(0.0, now_unix_s - asked), 1)

    def slice_values(stage: StageStatus, part: SliceStatus) -> dict[str, Any]:
        values = {each.name: getattr(part, each.name) for each in fields(part)}
        del values["job"]
        values["job_id"] = part.job_id
        if part.status == "failed":
            reason = read_reason(run_dir, stage.stage.name, part)
            values["reason"] = joined_text([reason])
            values |= {"kind": reason.kind, "rank": reason.rank, "node": reason.node or None}
        else:
            where = stage.stage.name, part.slice_index
            values["reason"] = notes[where].text if where in notes else part.reason
            if where in in_cancelled:
                values["reason"] += f"; {in_cancelled[where].text}"
        return {**values, "age_s": age_s((part.source,))}

    return {
        "run_id": run_dir.name,
        "run_dir": str(run_dir),
        "status": status.status,
        "note": read_note(RunPaths(run_dir)),
        "problems": list(status.problems),
        "notes": list(status.notes),
        "asked_unix_s": status.asked_unix_s,
        "stages": [
            {
                "name": stage.stage.name,
                "run": stage.stage.run,
                "status": stage.status,
                "sources": list(stage.sources),
                "age_s": age_s(stage.sources),
                "reason": stage.reason,
                "counts": dict(stage.counts),
                "slices_by_status": {
                    word: ranges_text(s.slice_index for s in stage.slices if s.status == word)
                    for word in stage.counts
                },
                "slices": [slice_values(stage, part) for part in stage.slices],
            }
            for stage in status.stages
        ],
    }
