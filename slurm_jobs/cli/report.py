"""Verbs report, compare, scaling and profile."""

from __future__ import annotations

import argparse
import dataclasses
import stat
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.cli.named_run import named_run
from slurm_jobs.cli.options import (
    add_run,
    check_place,
    command_text,
    keep_on_writing,
    number_text,
    path_of,
    positive,
    print_json,
    shown_path,
    whole,
)
from slurm_jobs.shared.configs.stages import WARMUP_STEPS

if TYPE_CHECKING:
    from slurm_jobs.report.comparison.comparison_model import RunMeasure
    from slurm_jobs.report.values.report_model import RunReport


# `slurm-jobs compare A B`: test whether B is faster than A, and list different settings.


def add_compare_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    words = "a run, or repeats of one with commas between them"
    parser.add_argument("first", metavar="A", help=words)
    parser.add_argument("second", metavar="B", help=words)
    parser.add_argument("more", metavar="", nargs="*", default=[], help=argparse.SUPPRESS)
    _add_training(parser)


def _add_training(parser: argparse.ArgumentParser) -> None:
    """Add --stage and --warmup-steps, which select the steps."""
    parser.add_argument("--stage", metavar="NAME", help="the training, where runs have several")
    parser.add_argument(
        "--warmup-steps",
        metavar="N",
        type=whole,
        default=WARMUP_STEPS,
        help=f"steps at the start of each attempt that are left out (default: {WARMUP_STEPS})",
    )


def run_compare(options: argparse.Namespace) -> int:
    """Compare, and print; the exit code is 0 for any verdict.

    Raises:
        InputError: there are more than two arms (repeats separated by spaces).
    """
    from slurm_jobs.cli.options import console
    from slurm_jobs.report.comparison.compare import compare
    from slurm_jobs.report.comparison.compare_text import render_comparison
    from slurm_jobs.report.comparison.comparison_words import headline
    from slurm_jobs.shared.errors import InputError

    if options.more:
        given = [options.first, options.second, *options.more]
        half = len(given) // 2
        message = (
            f"compare takes two arms, and got {len(given)}; separate repeats of one arm by "
            f"commas: {','.join(given[:half])} {','.join(given[half:])}"
        )
        raise InputError(message)
    arms = [_runs_of(arm) for arm in (options.first, options.second)]
    _refuse_repeated([run_dir for arm in arms for run_dir in arm])
    first, second = (_measured(arm, options.stage, options.warmup_steps) for arm in arms)
    comparison = compare(first, second)
    if options.json:
        print_json({"headline": headline(comparison), **dataclasses.asdict(comparison)})
    else:
        screen = console()
        screen.print(render_comparison(comparison, width=screen.width))
    return 0


def _measured(run_dirs: Sequence[Path], stage: str | None, warmup_steps: int) -> list[RunMeasure]:
    """Return what the records say of each run; show on a terminal which one is being read."""
    from slurm_jobs.cli.options import working
    from slurm_jobs.report.comparison.run_measures import measure

    measures = []
    for run_dir in run_dirs:
        with working(f"reading the steps of {run_dir.name}"):
            measures.append(measure(run_dir, stage=stage, warmup_steps=warmup_steps))
    return measures


def _runs_of(arm: str) -> list[Path]:
    """Return the runs of one arm: `a,b` are two, a folder with a comma in its name is one.

    Raises:
        InputError: there is no such run, or none is named.
    """
    from slurm_jobs.commands.find_run import find_run
    from slurm_jobs.shared.errors import InputError

    names = [arm] if Path(arm).exists() else [name for name in arm.split(",") if name]
    if not names:
        message = f"`{arm}` names no run: give one, or several with commas between them"
        raise InputError(message)
    return [find_run(name) for name in names]


def _refuse_repeated(run_dirs: Sequence[Path]) -> None:
    """Refuse a run that is given twice, or as a copy: it would have no spread.

    Raises:
        InputError: one is.
    """
    from slurm_jobs.run_folder.paths import RunPaths
    from slurm_jobs.shared.errors import InputError
    from slurm_jobs.shared.files import read_json

    seen: set[Path] = set()
    by_id: dict[str, Path] = {}
    for run_dir in run_dirs:
        if run_dir.resolve() in seen:
            message = f"{run_dir.name} is given twice; repeats must be separate runs"
            raise InputError(message)
        seen.add(run_dir.resolve())
        run_id = str(read_json(RunPaths(run_dir).run_json)["run_id"])
        if run_id in by_id:
            message = (
                f"{run_dir} is a copy of {by_id[run_id]}: both are run {run_id}; repeats must be "
                "separate runs"
            )
            raise InputError(message)
        by_id[run_id] = run_dir


# `slurm-jobs profile RUN`: show computation, communication and idle time of profiled steps.


def add_profile_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run(parser)
    parser.add_argument("--stage", metavar="NAME", help="the training, where a run has several")
    parser.add_argument("--rank", metavar="N", type=whole, help="default: the first that recorded")
    parser.add_argument(
        "--operators", metavar="N", type=positive, default=12, help="rows of the table (default 12)"
    )


def run_profile(options: argparse.Namespace) -> int:
    """Read the newest profile and print it."""
    from slurm_jobs.cli.options import working
    from slurm_jobs.report.profiles.found_trace import find_trace
    from slurm_jobs.report.profiles.occupancy import occupancy
    from slurm_jobs.report.profiles.profile_trace import read_trace
    from slurm_jobs.shared.errors import InputError
    from slurm_jobs.shared.timings import operators_path, read_operators

    found_trace = find_trace(named_run(options.run), options.stage, options.rank)
    path = found_trace.path
    operators_file = operators_path(path.parent, found_trace.rank)
    with working(f"reading {path.name}"):
        trace = read_trace(path)
        table = read_operators(operators_file) if operators_file.is_file() else None
        try:
            profile = occupancy(trace)
        except ValueError as error:
            message = f"{path}: {error}"
            raise InputError(message) from error
    if options.json:
        steps = [(step[0], occupancy(trace, [step])) for step in trace.steps]
        print_json(
            {
                "trace": str(path),
                "has_device": trace.has_device,
                "occupancy": {**dataclasses.asdict(profile), "exposed_s": profile.exposed_s},
                "steps": [{"step": step, **dataclasses.asdict(each)} for step, each in steps],
                "operators": dataclasses.asdict(table) if table is not None else None,
            }
        )
        return 0
    from slurm_jobs.cli.options import console
    from slurm_jobs.report.profiles.profile_text import render

    title = f"{found_trace.title}: {number_text(len(trace.steps), 'step')}"
    console().print(render(title, trace, table, num_operators=options.operators))
    return 0


# `slurm-jobs report RUN`: show the time of a run in the terminal, as a page and as JSON.


_MOST_EPOCHS = 1_000_000


def add_report_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_run(parser)
    parser.add_argument(
        "--epochs",
        metavar="N",
        type=_epochs,
        help="show what so many epochs would take with these settings",
    )
    parser.add_argument(
        "--export",
        metavar="FILE",
        type=path_of,
        help="write every step record there too, by its ending as .csv or .parquet",
    )
    parser.add_argument(
        "--share",
        metavar="FILE",
        type=path_of,
        help="write the page there too, readable by all, with placeholders for absolute paths, "
        "users, accounts and login nodes",
    )
    parser.add_argument(
        "--with-names",
        action="store_true",
        help="leave those paths and names in the page of --share",
    )


def run_report(options: argparse.Namespace) -> int:
    """Make the report from the records, and print it."""
    from slurm_jobs.commands.cleaned_run import refuse_lost_metrics
    from slurm_jobs.run_folder.paths import RunPaths
    from slurm_jobs.shared.errors import InputError

    run_dir = named_run(options.run)
    refuse_lost_metrics(RunPaths(run_dir))
    if options.share is not None:
        check_place("--share", options.share)
        keep_on_writing()
    elif options.with_names:
        message = "--with-names is for the page of --share: add --share FILE"
        raise InputError(message)
    if options.export is not None:
        from slurm_jobs.report.stage import check_suffix

        check_suffix(options.export)
        check_place("--export", options.export)
    # The table is written before anything is printed, because the reader may leave (head, less).
    exported = None if options.export is None else _export(run_dir, options.export)
    report = write_report(run_dir, as_json=options.json, num_epochs=options.epochs)
    if options.share is not None:
        lines = _share(run_dir, report, options.share, with_names=options.with_names)
        print("\n".join(lines), file=sys.stderr if options.json else sys.stdout)
    if exported is not None and not options.json:
        print(exported)
    return 0


def _export(run_dir: Path, path: Path) -> str:
    """Write the table of the steps; return the line that reports it."""
    from slurm_jobs.cli.options import working
    from slurm_jobs.report.inputs.read_inputs import read_inputs
    from slurm_jobs.report.stage import export_steps
    from slurm_jobs.run_folder.paths import RunPaths

    with working(f"writing {shown_path(path)}"):
        num_rows = export_steps(read_inputs(RunPaths(run_dir), (), whole=True), path)
    return f"steps: {shown_path(path)} ({number_text(num_rows, 'row')})"


def _share(run_dir: Path, report: RunReport, path: Path, *, with_names: bool) -> list[str]:
    """Write the page to give away; return the lines that report it."""
    from slurm_jobs.report.stage import share_report
    from slurm_jobs.report.without_private import private_values, without_private
    from slurm_jobs.run_folder.paths import RunPaths

    if not with_names:
        report = without_private(report, private_values(RunPaths(run_dir), report))
    share_report(report, path)
    content = "with paths and names" if with_names else "paths and names replaced"
    lines = [f"shared: {shown_path(path)} ({content})"]
    closed = next((folder for folder in path.absolute().parents if not _lets_in_all(folder)), None)
    if closed is not None:
        lines.append(
            f"others cannot open it there, because {closed} does not let them in: send it, or copy "
            "it to a folder that they can enter"
        )
    return lines


def _lets_in_all(folder: Path) -> bool:
    return bool(folder.stat().st_mode & stat.S_IXOTH)


def _epochs(text: str) -> float:
    """Parse a number above 0, for argparse."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= _MOST_EPOCHS:
        message = f"{text} is not a number above 0 and at most {_MOST_EPOCHS:,}"
        raise argparse.ArgumentTypeError(message)
    return number


def write_report(
    run_dir: Path,
    *,
    as_json: bool = False,
    shown: Collection[str] = (),
    num_epochs: float | None = None,
) -> RunReport:
    """Write page and JSON into the run folder, then print the report: its reader may leave (head).

    If the page cannot be written (a full disk, another user's run), the last line says why.
    `shown` are attempts whose failure is printed elsewhere; the report says how long `num_epochs`
    would take, too.
    """
    from slurm_jobs.cli.options import page_console, working
    from slurm_jobs.report.numbers import without_failures
    from slurm_jobs.report.stage import ask, keep_report, make_report
    from slurm_jobs.report.terminal import print_report
    from slurm_jobs.report.values.report_model import report_to_json
    from slurm_jobs.run_folder.paths import RunPaths
    from slurm_jobs.run_folder.resolved_spec import read_resolved_values
    from slurm_jobs.shared.config import build_config
    from slurm_jobs.shared.configs.stages import ReportConfig

    paths = RunPaths(run_dir)
    with working(f"reading the records of {run_dir.name}"):
        answers = ask(paths)
        stages = read_resolved_values(paths)["stages"].values()
        configs = [stage["config"] for stage in stages if stage["run"] == "report"]
        config = build_config(ReportConfig, configs[0]) if configs else ReportConfig()
        report = make_report(
            paths, answers.accounting, config, answer=answers.answer, num_epochs=num_epochs
        )
        not_kept = ""
        try:
            keep_report(report, paths)
        except OSError as error:
            older = "; the page there is an older one" if paths.report_html.exists() else ""
            not_kept = f"no page was kept: {error}{older}"
    if as_json:
        print_json(report_to_json(report))
    else:
        print_report(without_failures(report, shown), page_console())
        print("".join(f"could not be queried: {problem}\n" for problem in answers.problems), end="")
    if not_kept:
        print(not_kept, file=sys.stderr)
    elif not as_json:
        print(f"\npage: {shown_path(paths.report_html)}")
    return report


# `slurm-jobs scaling RUN RUN ...`: show the speedup of more GPUs, and check the baseline.


def add_scaling_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "runs", metavar="RUN", nargs="+", help="runs on different numbers of GPUs, and repeats"
    )
    _add_training(parser)


def run_scaling(options: argparse.Namespace) -> int:
    """Measure, and print; exit code 1 if nothing could be compared."""
    from slurm_jobs.cli.options import console
    from slurm_jobs.report.comparison.scaling import scale
    from slurm_jobs.report.comparison.scaling_text import render_scaling, scaling_headline
    from slurm_jobs.shared.errors import InputError

    run_dirs = [run_dir for words in options.runs for run_dir in _runs_of(words)]
    _refuse_repeated(run_dirs)
    runs = _measured(run_dirs, options.stage, options.warmup_steps)
    try:
        scaling = scale(runs)
    except ValueError as error:
        raise InputError(str(error)) from error
    steps = [] if scaling.series else _next_steps(run_dirs, runs)
    if options.json:
        lines = [scaling_headline(series) for series in scaling.series]
        print_json({"headlines": lines, **dataclasses.asdict(scaling), "next": steps})
    else:
        console().print(render_scaling(scaling))
        for line in steps:
            print(line)
    return 0 if scaling.series else 1


def _next_steps(run_dirs: Sequence[Path], runs: Sequence[RunMeasure]) -> list[str]:
    """Return the next commands if no run is left as a baseline."""
    num_ranks = runs[0].num_ranks
    ranks = [run.num_ranks for run in runs]
    unlike = next(where for where, num in zip(run_dirs, ranks, strict=True) if num != num_ranks)
    compare = command_text("compare", shown_path(run_dirs[0]), shown_path(unlike))
    resources = f"stages.{runs[0].stage}.resources"
    return [
        "Nothing to compare: no two runs on different numbers of ranks are otherwise equal",
        f"next: {compare}  # shows the differences",
        f"then: submit the same spec on each number of ranks (--set {resources}.nodes=2)",
    ]
