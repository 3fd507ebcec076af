"""Verb clean: remove what runs do not need any more."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.texts.did_you_mean import did_you_mean
from slurm_jobs.base.units import num_bytes
from slurm_jobs.cli.arguments import path_of
from slurm_jobs.cli.confirm import confirm
from slurm_jobs.cli.terminal.console import print_json
from slurm_jobs.cli.terminal.numbers_in_words import number_text
from slurm_jobs.cli.terminal.shown_paths import shown_path
from slurm_jobs.cli.typed_times import age_s
from slurm_jobs.run_folder.cleanings import KINDS, Kind

if TYPE_CHECKING:
    from rich.table import Table

    from slurm_jobs.commands.cleaning.clean import CleanPlan, CleanResult

_NOTHING = "there is nothing to remove"
_MORE = ". To remove more, name what stays of a run (--keep KINDS), or remove the whole run (--all)"


def add_clean_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    from slurm_jobs.status.slice_status import Status

    parser.add_argument("runs", metavar="RUN", nargs="*", help="these runs")
    parser.add_argument(
        "--older-than",
        metavar="AGE",
        type=age_s,
        help="the runs whose last job was submitted, started or ended longer ago: 30d, 12h, 4w",
    )
    parser.add_argument("--name", metavar="GLOB", help="only runs with such a name: 'shapes*'")
    words = get_args(Status)
    parser.add_argument(
        "--status",
        metavar="STATUS",
        choices=words,
        help=f"only runs with this status: {', '.join(words)}",
    )
    parser.add_argument(
        "--dir",
        type=path_of,
        help="with --older-than: the folder of the runs; default: ./runs, or $SLURM_JOBS_RUNS_DIR",
    )
    parser.add_argument(
        "--keep",
        metavar="KINDS",
        type=_kinds,
        help=f"remove all but the records and these: {','.join(KINDS)}; default: all but parts "
        "that are consolidated, and checkpoints of complete trainings",
    )
    parser.add_argument("--all", action="store_true", help="remove the whole run folders")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be removed")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def _kinds(text: str) -> frozenset[Kind]:
    """Parse `report,model`, for argparse."""
    known = {str(kind): kind for kind in KINDS}
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            near = did_you_mean(name, known) or ";"
            message = f"no kind `{name}`{near} there are {', '.join(KINDS)}"
            raise argparse.ArgumentTypeError(message)
    return frozenset(known[name] for name in names)


def run_clean(options: argparse.Namespace) -> int:
    """Show what goes, ask once, and remove it; the exit code is that of the first run refused."""
    from slurm_jobs.commands.cleaning.clean import CleanRequest, clean, plan_clean

    if options.all and options.keep is not None:
        message = "--all removes whole runs, and --keep names what stays of them: give one of both"
        raise InputError(message)
    request = CleanRequest(keep=options.keep, is_whole=options.all)
    result = plan_clean(_chosen_runs(options), request)
    plans = [plan for plan in result.plans if options.status in {None, plan.status}]
    chosen = [plan for plan in plans if plan.removed or plan.finishes]
    if not options.json:
        _print_plans(chosen, result)
    message = ""
    removed: CleanResult | None = None
    if not chosen:
        is_default = options.keep is None and not options.all
        message = _NOTHING + (_MORE if plans and is_default else "")
        message = "" if result.refused and not plans else message
    elif options.dry_run:
        message = "nothing was removed: this was a dry run"
    elif not options.yes and not confirm(
        f"free {_total_text(chosen)} in {number_text(len(chosen), 'run')}?",
        without_terminal="clean asks before it removes anything",
    ):
        message = "nothing was removed"
    else:
        removed = clean([plan.run_dir for plan in chosen], request)
        done = removed.plans
        message = f"freed {_total_text(done)} in {number_text(len(done), 'run')}"
    if options.json:
        print_json(_values(chosen, result, removed))
    else:
        if message:
            print(message)
        for run_dir, error in removed.refused.items() if removed is not None else ():
            print(f"{shown_path(run_dir)} was not cleaned: {error}")
    is_named = bool(options.runs)
    refused = [*(result.refused.values() if is_named else ())]
    refused += removed.refused.values() if removed is not None else ()
    return refused[0].exit_code if refused else 0


def _chosen_runs(options: argparse.Namespace) -> list[Path]:
    """Return the folders of the runs that are named, or those that are old enough."""
    from slurm_jobs.commands.cleaning.clean import last_activity_unix_s
    from slurm_jobs.commands.run_search.find_run import find_run
    from slurm_jobs.commands.run_search.runs_dir import default_runs_dir, is_missing
    from slurm_jobs.run.catalogue import RunChoice
    from slurm_jobs.run_folder.paths import RunPaths, is_run

    if options.runs:
        if options.older_than is not None or options.name is not None or options.dir is not None:
            message = "RUN names the runs; --older-than, --name and --dir search for them instead"
            raise InputError(message)
        return list(dict.fromkeys(find_run(name) for name in options.runs))
    if options.older_than is None:
        message = (
            "clean removes nothing unless you choose the runs: name them, or give --older-than "
            "30d; --dry-run shows what would be removed"
        )
        raise InputError(message)
    runs_dir = default_runs_dir() if options.dir is None else options.dir.absolute()
    choice = RunChoice(name=options.name)
    latest_unix_s = time.time() - options.older_than
    chosen = []
    if not runs_dir.is_dir():
        message = f"no run in {runs_dir}{is_missing(runs_dir)}; --dir names another folder"
        raise InputError(message)
    for folder in sorted(runs_dir.iterdir()):
        # Other users' runs and links to runs elsewhere are cleaned only if they are named.
        is_own = is_run(folder) and not folder.is_symlink() and folder.stat().st_uid == os.getuid()
        if not is_own or not choice.has_name(folder):
            continue
        if last_activity_unix_s(RunPaths(folder)) <= latest_unix_s:
            chosen.append(folder)
    return chosen


def _print_plans(plans: Sequence[CleanPlan], result: CleanResult) -> None:
    from slurm_jobs.cli.terminal.console import console, fits_screen

    screen = console()
    lines: list[str] = []
    if plans:
        table = _table(plans, has_kept=True)
        if not fits_screen(table, screen):
            table = _table(plans, has_kept=False)
            lines += dict.fromkeys(f"what stays: {_kept_text(plan)}" for plan in plans)
        screen.print(table)
    for plan in plans:
        if plan.finishes:
            lines.append(f"this finishes a clean of {plan.run_dir.name} that was interrupted")
    for plan in plans:
        lines += [f"{link} is a link, which clean does not follow" for link in plan.links]
    lines += [f"{shown_path(d)} is not cleaned: {error}" for d, error in result.refused.items()]
    for line in lines:
        screen.print(line, markup=False, highlight=False, soft_wrap=True)


def _table(plans: Sequence[CleanPlan], *, has_kept: bool) -> Table:
    """Return a table with one line per run; what stays may be printed below it instead."""
    from slurm_jobs.cli.terminal.console import table_of

    rows = []
    for plan in plans:
        row = [plan.run_dir.name, plan.status, _short_duration(plan.idle_s), _removed_text(plan)]
        row += [_kept_text(plan)] if has_kept else []
        rows.append([*row, num_bytes(plan.num_bytes)])
    kept = ["keeps"] if has_kept else []
    table = table_of(["run", "status", "idle for", "removes", *kept, "frees"], rows)
    table.columns[0].no_wrap = True  # to be copied
    return table


def _short_duration(seconds: float) -> str:
    """Return `43 d`, `5 h` or `12 min`."""
    for unit, unit_s in (("d", 86_400.0), ("h", 3600.0)):
        if seconds >= 2 * unit_s:
            return f"{seconds // unit_s:.0f} {unit}"
    return f"{seconds // 60:.0f} min"


def _kept_text(plan: CleanPlan) -> str:
    return "nothing" if plan.is_whole else ", ".join(["records", *plan.kept])


def _removed_text(plan: CleanPlan) -> str:
    """Return `parts of preprocess, checkpoints of train`."""
    if plan.is_whole:
        return "the whole run"
    words = [f"{r.kind} of {r.stage}" if r.stage else r.kind for r in plan.removed]
    return ", ".join(dict.fromkeys(words)) or "nothing more"


def _total_text(plans: Sequence[CleanPlan]) -> str:
    return num_bytes(sum(plan.num_bytes for plan in plans))


def _values(
    plans: Sequence[CleanPlan], result: CleanResult, removed: CleanResult | None
) -> dict[str, Any]:
    """Return plans and result as JSON values."""
    done = set() if removed is None else {plan.run_dir for plan in removed.plans}
    refused = {**result.refused, **(removed.refused if removed is not None else {})}
    return {
        "runs": [
            {
                "run_dir": str(plan.run_dir),
                "status": plan.status,
                "idle_s": plan.idle_s,
                "is_whole": plan.is_whole,
                "removes": [
                    {"path": r.path, "kind": r.kind, "stage": r.stage, "num_bytes": r.num_bytes}
                    for r in plan.removed
                ],
                "keeps": list(plan.kept),
                "links": list(plan.links),
                "num_bytes": plan.num_bytes,
                "is_removed": plan.run_dir in done,
            }
            for plan in plans
        ],
        "refused": {str(run_dir): str(error) for run_dir, error in refused.items()},
    }
