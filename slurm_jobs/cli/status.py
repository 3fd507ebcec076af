"""`slurm-jobs status RUN`: how a run is doing, from its records and one question to Slurm."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.cli.arguments import (
    add_json,
    add_run,
    age_text,
    command_text,
    print_json,
    shown_path,
)
from slurm_jobs.common.ranges import ranges_text
from slurm_jobs.reconcile import Status

if TYPE_CHECKING:
    from rich.console import RenderableType

    from slurm_jobs.reconcile import RunStatus, SliceStatus, StageStatus

_STYLES: dict[Status, str] = {
    "completed": "green",
    "running": "cyan",
    "waiting": "dim",
    "failed": "bold red",
    "cancelled": "yellow",
    "stranded": "yellow",
    "unknown": "magenta",
}
MAX_PROBLEMS_SHOWN = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    add_run(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Print; exit code 1 if the run failed."""
    from slurm_jobs.run.find import find_run
    from slurm_jobs.run.observe import status_of

    run_dir = find_run(options.run)
    status = status_of(run_dir)
    if options.json:
        print_json(status_values(run_dir, status))
    else:
        from slurm_jobs.cli.output import console

        screen = console()
        screen.print(status_table(run_dir, status))
        for line in problem_lines(run_dir, status):
            screen.print(line, markup=False, highlight=False, soft_wrap=True)
    return exit_code(status)


def exit_code(status: RunStatus) -> int:
    """0 while a run goes on or when it is complete, 1 when it failed, 3 if nobody can say."""
    if status.status == "unknown":
        return 3
    return 1 if status.status in {"failed", "cancelled", "stranded"} else 0


def status_table(run_dir: Path, status: RunStatus) -> RenderableType:
    """One line a stage."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from slurm_jobs.run.paths import RunPaths
    from slurm_jobs.run.store import read_meta

    meta = read_meta(RunPaths(run_dir))
    title = Text.assemble(
        (meta.run_id, "bold"),
        f" on {meta.scheduler}, submitted {age_text(meta.created_unix_s)}: ",
        (status.status, _STYLES[status.status]),
    )
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("stage", "status", "tasks", "job", "detail"):
        table.add_column(column, overflow="fold")
    for stage in status.stages:
        table.add_row(
            stage.stage.name,
            Text(stage.status, style=_STYLES[stage.status]),
            tasks_text(stage),
            _jobs_text(stage),
            Text(_detail(run_dir, stage)),
        )
    return Group(title, table)


def tasks_text(stage: StageStatus) -> str:
    """`3/4 completed, 1 failed`."""
    counts = stage.counts
    total = stage.stage.num_slices
    done = f"{counts.get('completed', 0)}/{total}"
    others = [f"{counts[word]} {word}" for word in _STYLES if word != "completed" and counts[word]]
    return ", ".join([done, *others]) if total > 1 else done


def _jobs_text(stage: StageStatus) -> str:
    ids = dict.fromkeys((s.job_id or "").partition("_")[0] for s in stage.slices)
    return " ".join(job_id for job_id in ids if job_id) or "-"


def _detail(run_dir: Path, stage: StageStatus) -> str:
    if stage.status == "running":
        running = next((s for s in stage.slices if s.status == "running"), None)
        if running is not None and stage.stage.num_slices == 1:
            attempt = f"attempt {running.attempt}: " if running.attempt > 1 else ""
            return attempt + progress_text(run_dir, stage.stage.name, running)
    if stage.status in {"waiting", "stranded"}:
        return stage.reason or stage.slices[0].reason
    return ""


def progress_text(run_dir: Path, stage: str, part: SliceStatus) -> str:
    """How far a running task is, as it last said itself."""
    from slurm_jobs.common.files import read_json
    from slurm_jobs.run.paths import RunPaths

    path = RunPaths(run_dir).task_dir(stage, part.slice_index, part.attempt) / "progress.json"
    try:
        values = read_json(path)
    except FileNotFoundError:
        return ""
    share = f"{values['done']}/{values['total']} {values['unit']}"
    return f"{share} {values['detail']}".strip()


def problem_lines(run_dir: Path, status: RunStatus) -> list[str]:
    """What failed, where and why, and what to type next."""
    lines = [f"could not be asked: {problem}" for problem in status.problems]
    failed = [
        (stage, part)
        for stage in status.stages
        for part in stage.slices
        if part.status in {"failed", "unknown", "cancelled"}
    ]
    lines += [_problem_line(run_dir, stage, part) for stage, part in failed[:MAX_PROBLEMS_SHOWN]]
    if len(failed) > MAX_PROBLEMS_SHOWN:
        lines.append(f"... and {len(failed) - MAX_PROBLEMS_SHOWN} more (--json has all)")
    if failed:
        folder = shown_path(run_dir)
        stage, part = failed[0]
        where = [
            stage.stage.name,
            *(["--slice", str(part.slice_index)] if stage.stage.is_array else []),
        ]
        lines.append(f"next: {command_text('logs', folder, *where)}")
        lines.append(f"then: {command_text('resume', folder)}")
    return lines


def _problem_line(run_dir: Path, stage: StageStatus, part: SliceStatus) -> str:
    name = stage.stage.name + (f" slice {part.slice_index}" if stage.stage.is_array else "")
    state = f" ({part.source}: {part.state})" if part.state else ""
    return f"{name} {part.status}{state}: {reason_of(run_dir, stage.stage.name, part)}"


def reason_of(run_dir: Path, stage: str, part: SliceStatus) -> str:
    """Why a slice is not complete: its own record's words where it has one."""
    from slurm_jobs.run.paths import RunPaths
    from slurm_jobs.run.store import read_completion

    if part.failed_attempt is None:
        return part.reason
    record = read_completion(
        RunPaths(run_dir), stage, part.slice_index, part.failed_attempt, "failed"
    )
    attempt = f"attempt {record.attempt}: " if record.attempt > 1 else ""
    return f"{attempt}{record.reason}"


def status_values(run_dir: Path, status: RunStatus) -> dict[str, Any]:
    """A status for programs."""
    return {
        "run_id": run_dir.name,
        "run_dir": str(run_dir),
        "status": status.status,
        "problems": list(status.problems),
        "stages": [
            {
                "name": stage.stage.name,
                "run": stage.stage.run,
                "status": stage.status,
                "reason": stage.reason,
                "counts": dict(stage.counts),
                "slices_by_status": {
                    word: ranges_text(s.slice_index for s in stage.slices if s.status == word)
                    for word in stage.counts
                },
                "slices": [_slice_values(run_dir, stage, part) for part in stage.slices],
            }
            for stage in status.stages
        ],
    }


def _slice_values(run_dir: Path, stage: StageStatus, part: SliceStatus) -> dict[str, Any]:
    values = dataclasses.asdict(part)
    if part.status == "failed":
        values["reason"] = reason_of(run_dir, stage.stage.name, part)
    return values
