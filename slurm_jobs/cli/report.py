"""`slurm-jobs report RUN`: show the time of a run in the terminal, as a page and as JSON."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.cli.arguments import (
    add_json,
    add_run,
    check_place,
    number_text,
    path_of,
    print_json,
    shown_path,
)

if TYPE_CHECKING:
    from slurm_jobs.common.stage_config.report import ReportConfig
    from slurm_jobs.report.model.run import RunReport
    from slurm_jobs.run.paths import RunPaths


_MOST_EPOCHS = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
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
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Make the report from the records, and print it."""
    from slurm_jobs.run.find import find_run

    run_dir = find_run(options.run)
    if options.export is not None:
        from slurm_jobs.report.export import check_suffix

        check_suffix(options.export)
        check_place("--export", options.export)
    # The table is written before anything is printed, because the reader may leave (head, less).
    exported = None if options.export is None else _export(run_dir, options.export)
    write_report(run_dir, as_json=options.json, num_epochs=options.epochs)
    if exported is not None and not options.json:
        print(exported)
    return 0


def _export(run_dir: Path, path: Path) -> str:
    """Write the table of the steps; return the line that reports it."""
    from slurm_jobs.cli.progress_bar import working
    from slurm_jobs.report.export import export_steps
    from slurm_jobs.report.inputs.reading import read_inputs
    from slurm_jobs.run.paths import RunPaths

    with working(f"writing {shown_path(path)}"):
        num_rows = export_steps(read_inputs(RunPaths(run_dir), (), whole=True), path)
    return f"steps: {shown_path(path)} ({number_text(num_rows, 'row')})"


def _epochs(text: str) -> float:
    """Parse a number above 0, for argparse."""
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number <= _MOST_EPOCHS:
        message = f"{text} is not a number above 0, and of {_MOST_EPOCHS:,} at most"
        raise argparse.ArgumentTypeError(message)
    return number


def write_report(
    run_dir: Path,
    *,
    as_json: bool = False,
    told: Collection[str] = (),
    num_epochs: float | None = None,
) -> None:
    """Write page and JSON into the run folder, then print the report: its reader may leave (head).

    If the page cannot be written (a full disk, another user's run), the last line says why.

    Args:
        run_dir: the run's folder.
        as_json: print everything as JSON.
        num_epochs: show how long so many would take, too.
        told: attempts whose failure is printed elsewhere, see `told.without_failures`.
    """
    from slurm_jobs.cli.output import page_console
    from slurm_jobs.cli.progress_bar import working
    from slurm_jobs.report.json_form import report_to_json
    from slurm_jobs.report.stage import ask, make_report
    from slurm_jobs.report.terminal import print_report
    from slurm_jobs.report.told import without_failures
    from slurm_jobs.run.paths import RunPaths

    paths = RunPaths(run_dir)
    with working(f"reading the records of {run_dir.name}"):
        asked = ask(paths)
        config, answer = _config_of(paths), asked.answer
        report = make_report(paths, asked.accounting, config, answer=answer, num_epochs=num_epochs)
        not_kept = _keep(report, paths)
    if as_json:
        print_json(report_to_json(report))
    else:
        print_report(without_failures(report, told), page_console())
        print("".join(f"could not be asked: {problem}\n" for problem in asked.problems), end="")
    if not_kept:
        print(not_kept, file=sys.stderr)
    elif not as_json:
        print(f"\npage: {shown_path(paths.report_html)}")


def _keep(report: RunReport, paths: RunPaths) -> str:
    """Write page and JSON into the run folder; return why not, if that fails."""
    from slurm_jobs.report.stage import keep_report

    try:
        keep_report(report, paths)
    except OSError as error:
        older = "; the page there is an older one" if paths.report_html.exists() else ""
        return f"no page was kept: {error}{older}"
    return ""


def _config_of(paths: RunPaths) -> ReportConfig:
    """Return the config of the run's report stage; the defaults if it has none."""
    from slurm_jobs.common.config_values import build_config
    from slurm_jobs.common.files import read_json
    from slurm_jobs.common.stage_config.report import ReportConfig

    for stage in read_json(paths.resolved_spec)["stages"].values():
        if stage["run"] == "report":
            return build_config(ReportConfig, stage["config"])
    return ReportConfig()
