"""`slurm-jobs report RUN`: show the time of a run in the terminal, as a page and as JSON."""

from __future__ import annotations

import argparse
import stat
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.cli.arguments import add_run, check_place, path_of
from slurm_jobs.cli.named_run import named_run
from slurm_jobs.cli.terminal.console import print_json
from slurm_jobs.cli.terminal.dispensable_output import make_dispensable
from slurm_jobs.cli.terminal.numbers_in_words import number_text
from slurm_jobs.cli.terminal.shown_paths import shown_path

if TYPE_CHECKING:
    from slurm_jobs.report.values.report_model import RunReport


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
    from slurm_jobs.base.errors import InputError
    from slurm_jobs.commands.resuming.cleaned_run import refuse_lost_metrics
    from slurm_jobs.run_folder.paths import RunPaths

    run_dir = named_run(options.run)
    refuse_lost_metrics(RunPaths(run_dir))
    output = None
    if options.share is not None:
        check_place("--share", options.share)
        output = make_dispensable("stdout")
    elif options.with_names:
        message = "--with-names is for the page of --share: add --share FILE"
        raise InputError(message)
    if options.export is not None:
        from slurm_jobs.report.step_export import check_suffix

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
    if output is not None:
        output.flush()
        if output.loss is not None:
            raise output.loss
    return 0


def _export(run_dir: Path, path: Path) -> str:
    """Write the table of the steps; return the line that reports it."""
    from slurm_jobs.cli.terminal.progress_display import working
    from slurm_jobs.report.inputs.read_inputs import read_inputs
    from slurm_jobs.report.step_export import export_steps
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
    closed = next((d for d in path.absolute().parents if not d.stat().st_mode & stat.S_IXOTH), None)
    if closed is not None:
        lines.append(
            f"others cannot open it there, because {closed} does not let them in: send it, or copy "
            "it to a folder that they can enter"
        )
    return lines


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
    from slurm_jobs.cli.terminal.console import page_console
    from slurm_jobs.cli.terminal.progress_display import working
    from slurm_jobs.formats.config import build_config
    from slurm_jobs.formats.configs.stages import ReportConfig
    from slurm_jobs.report.numbers.headline import without_failures
    from slurm_jobs.report.stage import ask, keep_report, make_report
    from slurm_jobs.report.text.terminal import print_report
    from slurm_jobs.report.values.report_model import report_to_json
    from slurm_jobs.run_folder.paths import RunPaths
    from slurm_jobs.run_folder.resolved_spec import read_resolved_values

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
