"""`slurm-jobs logs RUN [STAGE]`: the log of a task or a rank, whole, its end, or as it grows."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.cli.arguments import add_run
from slurm_jobs.common.errors import InputError

if TYPE_CHECKING:
    from slurm_jobs.reconcile import RunStatus, SliceStatus, StageStatus
    from slurm_jobs.run.paths import RunPaths

_RANK_LOG = re.compile(r"s(\d+)\.a(\d+)\.rank-(\d+)\.log")
FOLLOW_INTERVAL_S = 0.5
STATUS_INTERVAL_S = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    add_run(parser)
    parser.add_argument(
        "stage", metavar="STAGE", nargs="?", help="default: the one that failed or runs"
    )
    parser.add_argument("--slice", dest="slice_index", type=int, help="only this slice")
    parser.add_argument("--rank", type=int, help="only this rank")
    parser.add_argument("--attempt", type=int, help="this attempt; default: each slice's newest")
    parser.add_argument("--failed", action="store_true", help="only slices that failed")
    parser.add_argument("--tail", metavar="N", type=int, help="only the last N lines of each log")
    parser.add_argument(
        "--supervisor",
        action="store_true",
        help="the log of set-up lines and supervisor instead of the ranks' logs",
    )
    parser.add_argument(
        "--follow",
        "-f",
        action="store_true",
        help="go on as the logs grow, until the stage has ended",
    )


def run(options: argparse.Namespace) -> int:
    """Print the chosen logs, each under its name where there are several."""
    from slurm_jobs.run.observe import status_of
    from slurm_jobs.run.paths import RunPaths

    run_dir, stage_name = _run_and_stage(options.run, options.stage)
    paths = RunPaths(run_dir)
    status = status_of(run_dir)
    stage = _stage(status, stage_name)
    chosen = _chosen_slices(status.stage(stage), options)
    if options.supervisor:
        logs = supervisor_logs(paths, stage, chosen)
    else:
        logs = chosen_logs(paths, stage, chosen, rank=options.rank, attempt=options.attempt)
    asked = options.slice_index, options.rank, options.attempt
    if not logs and asked != (None, None, None):
        message = f"`{stage}` has no log of that slice, rank or attempt; --slice alone shows all"
        raise InputError(message)
    if not logs:
        print(f"no log of `{stage}` yet", file=sys.stderr)
        return 0
    for log in logs:
        if len(logs) > 1:
            print(f"==> {log.name} <==")
        _print_log(log, options.tail)
    if options.follow:
        _follow(logs, run_dir, stage)
    return 0


def _chosen_slices(stage: StageStatus, options: argparse.Namespace) -> list[SliceStatus]:
    return [
        part
        for part in stage.slices
        if options.slice_index in {None, part.slice_index}
        and (not options.failed or part.status == "failed")
    ]


def _run_and_stage(run: str | None, stage: str | None) -> tuple[Path, str | None]:
    """`logs train` means that stage of the newest run, where no run is called so."""
    from slurm_jobs.run.find import find_run
    from slurm_jobs.run.store import read_run

    try:
        return find_run(run), stage
    except InputError:
        if run is None or stage is not None:
            raise
        newest = find_run(None)
        if run not in {summary.name for summary in read_run(newest).stages}:
            raise
        return newest, run


def _stage(status: RunStatus, name: str | None) -> str:
    names = [stage.stage.name for stage in status.stages]
    if name is not None:
        if name not in names:
            from slurm_jobs.spec.validation import did_you_mean

            near = did_you_mean(name, names)
            message = f"no stage `{name}`{near} (stages: {', '.join(names)})"
            raise InputError(message)
        return name
    for word in ("failed", "running", "completed"):
        found = [stage.stage.name for stage in status.stages if stage.status == word]
        if found:
            return found[0] if word == "failed" else found[-1]
    return names[0]


def chosen_logs(
    paths: RunPaths,
    stage: str,
    slices: Sequence[SliceStatus],
    *,
    rank: int | None,
    attempt: int | None,
) -> list[Path]:
    """Rank logs of the slices' newest (or the given) attempts.

    Where a slice has none: its supervisor's own, which also holds what set-up lines printed.
    """
    folder = paths.logs_dir(stage)
    found: dict[int, list[tuple[int, int, Path]]] = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        match = _RANK_LOG.fullmatch(path.name)
        if match is not None:
            index, number, owner = (int(group) for group in match.groups())
            found.setdefault(index, []).append((number, owner, path))
    logs = []
    for part in slices:
        ranks = found.get(part.slice_index, [])
        wanted = attempt or max((number for number, _, _ in ranks), default=0)
        logs += [p for n, r, p in sorted(ranks) if n == wanted and rank in {None, r}]
        if not ranks:
            logs += supervisor_logs(paths, stage, [part])
    return logs


def supervisor_logs(paths: RunPaths, stage: str, slices: Sequence[SliceStatus]) -> list[Path]:
    """Logs of the slices' newest jobs."""
    logs = [paths.job_log(stage, part.job_id) for part in slices if part.job_id is not None]
    return [log for log in logs if log.exists()]


def _print_log(log: Path, tail: int | None) -> None:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    for line in lines if tail is None else lines[-tail:]:
        print(line)


def _follow(logs: Sequence[Path], run_dir: Path, stage: str) -> None:
    """Print what is added, until the stage has ended."""
    from slurm_jobs.run.observe import status_of

    offsets = {log: log.stat().st_size for log in logs}
    ended = False
    while True:
        looked_s = time.monotonic()
        while time.monotonic() - looked_s < STATUS_INTERVAL_S:
            for log, offset in offsets.items():
                offsets[log] = _print_added(log, offset)
            if ended:
                return
            time.sleep(FOLLOW_INTERVAL_S)
        ended = status_of(run_dir).stage(stage).status not in {"running", "waiting"}


def _print_added(log: Path, offset: int) -> int:
    """Print what a log holds beyond `offset`, and return where it ends now."""
    with log.open("rb") as stream:
        stream.seek(offset)
        added = stream.read()
    sys.stdout.write(added.decode(errors="replace"))
    sys.stdout.flush()
    return offset + len(added)
