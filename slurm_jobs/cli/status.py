"""`slurm-jobs status RUN`: show a run's status, from its records and one query of Slurm."""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.cli.arguments import add_json, add_run, print_json
from slurm_jobs.common.ranges import ranges_text

if TYPE_CHECKING:
    from slurm_jobs.reconcile import RunStatus, SliceStatus, StageStatus


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run(parser)
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="query Slurm again, even if another command did seconds ago",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print; exit code 1 if the run failed."""
    from slurm_jobs.cli.look import look
    from slurm_jobs.run.find import find_run

    run_dir = find_run(options.run)
    seen = look(run_dir, fresh=options.fresh)
    if options.json:
        print_json(status_values(run_dir, seen.status, time.time()))
    else:
        from slurm_jobs.cli.output import console
        from slurm_jobs.cli.problems import problem_lines
        from slurm_jobs.cli.status_table import stages_table, title_text

        screen = console()
        now_s = time.time()
        screen.print(title_text(seen, now_s), soft_wrap=True)
        screen.print(stages_table(seen, now_unix_s=now_s, width=screen.width))
        for line in problem_lines(run_dir, seen.status):
            screen.print(line, markup=False, highlight=False, soft_wrap=True)
    return exit_code(seen.status)


def exit_code(status: RunStatus) -> int:
    """Return 0 for an active or complete run, 1 for a failed one, 3 if it is unknown."""
    if status.status == "unknown":
        return 3
    return 1 if status.status in {"failed", "cancelled", "stranded"} else 0


def status_values(run_dir: Path, status: RunStatus, now_unix_s: float) -> dict[str, Any]:
    """Return a status as JSON values; ages in seconds, None for what was read from files."""
    from slurm_jobs.cli.problems import completed_notes

    notes = completed_notes(run_dir, status)
    return {
        "run_id": run_dir.name,
        "run_dir": str(run_dir),
        "status": status.status,
        "problems": list(status.problems),
        "notes": list(status.notes),
        "asked_unix_s": status.asked_unix_s,
        "stages": [
            {
                "name": stage.stage.name,
                "run": stage.stage.run,
                "status": stage.status,
                "sources": list(stage.sources),
                "age_s": _age_s(status, stage.sources, now_unix_s),
                "reason": stage.reason,
                "counts": dict(stage.counts),
                "slices_by_status": {
                    word: ranges_text(s.slice_index for s in stage.slices if s.status == word)
                    for word in stage.counts
                },
                "slices": [
                    {
                        **_slice_values(run_dir, stage, part, notes),
                        "age_s": _age_s(status, (part.source,), now_unix_s),
                    }
                    for part in stage.slices
                ],
            }
            for stage in status.stages
        ],
    }


def _age_s(status: RunStatus, sources: tuple[str, ...], now_unix_s: float) -> float | None:
    asked = status.asked_for(sources)
    return None if asked is None else round(max(0.0, now_unix_s - asked), 1)


def _slice_values(
    run_dir: Path,
    stage: StageStatus,
    part: SliceStatus,
    notes: Mapping[tuple[str, int], str],
) -> dict[str, Any]:
    values = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    if part.status == "failed":
        from slurm_jobs.cli.problems import reason_of

        values["reason"] = reason_of(run_dir, stage.stage.name, part)
    elif part.status == "completed":
        values["reason"] = notes.get((stage.stage.name, part.slice_index), part.reason)
    return values
