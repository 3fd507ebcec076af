"""`slurm-jobs probe SPEC`: measure the nodes that a spec's training would get.

Given the run of an earlier probe, it prints that result again.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.base.json_values import CLOCKS_APART_S
from slurm_jobs.cli.arguments import add_overrides, path_text, positive, positive_up_to
from slurm_jobs.cli.run_view.follow_run import watch
from slurm_jobs.cli.run_view.problems import problem_lines
from slurm_jobs.cli.specs.submit import job_printer, print_submission
from slurm_jobs.cli.terminal.console import print_json
from slurm_jobs.cli.terminal.numbers_in_words import number_text
from slurm_jobs.cli.terminal.shown_paths import command_text, shown_path
from slurm_jobs.run_folder.paths import RunPaths

if TYPE_CHECKING:
    from rich.console import Console

    from slurm_jobs.formats.node_records.probe_measures import NodeProbe
    from slurm_jobs.status.run_status import RunStatus


_MOST_MINUTES = 24 * 60
_SEEN_WITHIN_S = 15.0
"""A network file system may show an older listing of a folder for some seconds."""


def add_probe_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "target",
        metavar="SPEC|RUN",
        type=path_text,
        help="the YAML file; or the run of a probe, whose result is printed (again)",
    )
    parser.add_argument(
        "--stage",
        metavar="NAME",
        help="the stage whose resources, python, set-up lines and folders are taken; "
        "default: the training",
    )
    parser.add_argument(
        "--nodes",
        metavar="N",
        type=positive,
        help="how many; default: 2 if one job can have them, as the network needs two",
    )
    parser.add_argument(
        "--nodelist", metavar="NAMES", help="which nodes, as Slurm writes them: gpu[01-04]"
    )
    parser.add_argument(
        "--minutes",
        metavar="M",
        type=positive_up_to(_MOST_MINUTES),
        help="time limit of the job; default: 5",
    )
    parser.add_argument(
        "--file-mb",
        metavar="MB",
        type=positive_up_to(65536),
        help="most that is written to each file system at a time; default: 1024",
    )
    add_overrides(parser)


def run_probe(options: argparse.Namespace) -> int:
    """Submit, watch, and print the results; exit code 1 if the job failed."""
    from slurm_jobs.commands.node_checks.submit_probe import (
        DEFAULT_MINUTES,
        ProbeRequest,
        require_probe,
        submit_probe,
    )
    from slurm_jobs.commands.run_search.find_run import given_run
    from slurm_jobs.commands.spec_reading.read_spec import load
    from slurm_jobs.formats.configs.stages import ProbeConfig

    of_spec = {
        "--stage": options.stage,
        "--nodes": options.nodes,
        "--nodelist": options.nodelist,
        "--minutes": options.minutes,
        "--file-mb": options.file_mb,
        "--set": options.overrides,
    }
    run_dir = given_run(options.target, of_spec, "probe")
    if run_dir is not None:
        require_probe(run_dir)
    else:
        request = ProbeRequest(
            stage=options.stage,
            num_nodes=options.nodes,
            nodelist=options.nodelist,
            minutes=float(options.minutes or DEFAULT_MINUTES),
            config=ProbeConfig(**({"file_mb": options.file_mb} if options.file_mb else {})),
        )
        loaded = load(Path(options.target), overrides=options.overrides, to_submit=True)
        submission = submit_probe(loaded, request, on_job=job_printer(options))
        run_dir = submission.paths.run_dir
        if not options.json:
            print_submission(submission)
            print()
    status, code = watch(run_dir, quiet=options.json, prints_failures=False)
    if status is None:
        again = command_text("probe", shown_path(run_dir))
        print(f"to show the results when the probe has ended: {again}", file=sys.stderr)
        return code
    probes, problems = _probes(RunPaths(run_dir), status)
    if options.json:
        print_json(probe_values(run_dir, status, probes, problems))
    else:
        _print_probe(run_dir, status, probes, problems)
    return code


def _probes(paths: RunPaths, status: RunStatus) -> tuple[tuple[NodeProbe, ...], list[str]]:
    """Return what the run stored, and problems; wait until all records are visible.

    A run that ended a while ago, by clocks that may differ, has no further records.
    """
    from slurm_jobs.commands.node_checks.submit_probe import STAGE
    from slurm_jobs.formats.node_records.probe_files import MAX_KEPT
    from slurm_jobs.nodes.probe.probe_reader import probes_of_run
    from slurm_jobs.run_folder.resolved_spec import read_resolved_values
    from slurm_jobs.run_folder.run_records import read_completion

    num_requested = read_resolved_values(paths)["stages"][STAGE]["resources"]["nodes"]
    ((part,),) = (stage.slices for stage in status.stages)
    end_s = time.monotonic() + _SEEN_WITHIN_S
    if part.ending is not None:
        record = read_completion(paths, status.stages[0].stage.name, part.ending)
        if time.time() - record.ended_unix_s >= CLOCKS_APART_S:
            end_s = time.monotonic()
    while True:
        problems: list[str] = []
        probes = probes_of_run(paths.run_dir.parent, paths.run_dir.name, problems)
        is_all = len(probes) >= num_requested or status.status != "completed"
        if is_all or time.monotonic() > end_s:
            break
        time.sleep(0.5)
    if not is_all:
        problems.append(
            f"{num_requested - len(probes)} of {number_text(num_requested, 'node')} have no record "
            f"of this probe (any more): of each node the newest {MAX_KEPT} are kept"
        )
    return probes, problems


def probe_values(
    run_dir: Path, status: RunStatus, probes: Sequence[NodeProbe], problems: Sequence[str]
) -> dict[str, Any]:
    """Return the results as JSON values."""
    return {
        "run_id": run_dir.name,
        "run_dir": str(run_dir),
        "status": status.status,
        "nodes": [dataclasses.asdict(probe) for probe in probes],
        "slow": [
            {"node": node, "share": slow.share, **dataclasses.asdict(slow)}
            for node, slow in _slow(run_dir, probes)
        ],
        "problems": list(problems),
    }


def _slow(run_dir: Path, probes: Sequence[NodeProbe]) -> list[tuple[str, Any]]:
    """Return nodes of this probe that are slow among all nodes probed from these runs."""
    from slurm_jobs.nodes.probe.node_comparison import compare
    from slurm_jobs.nodes.probe.probe_reader import newest_probes

    known = {probe.node: probe for probe in newest_probes(run_dir.parent, [])}
    every = tuple({**known, **{probe.node: probe for probe in probes}}.values())
    return [(p.node, slow) for p in probes for slow in compare(p, every).slow]


def _print_probe(
    run_dir: Path, status: RunStatus, probes: Sequence[NodeProbe], problems: Sequence[str]
) -> None:
    from slurm_jobs.cli.terminal.console import console
    from slurm_jobs.formats.node_records.probe_files import ProbePaths
    from slurm_jobs.nodes.probe import probe_text

    screen = console()
    if probes:
        _print_numbers(screen, probes)
        print()
    lines = [f"slow: {node}: {probe_text.slow_text(slow)}" for node, slow in _slow(run_dir, probes)]
    for describe in (probe_text.topology, probe_text.busy, probe_text.reasons):
        lines += describe(probes)
    lines += [*problems, *problem_lines(run_dir, status, with_logs=True)]
    if probes:
        folder = ProbePaths(run_dir.parent).own_dir
        lines.append(f"kept in {shown_path(folder)}, for the reports of runs next to it")
    for line in lines:
        screen.print(line, markup=False, highlight=False, soft_wrap=True)


def _print_numbers(screen: Console, probes: Sequence[NodeProbe]) -> None:
    """Print a row per node if the screen has room, else a row per measure.

    In that case, as many nodes per table as fit.
    """
    from slurm_jobs.cli.terminal.console import fits_screen, table_of
    from slurm_jobs.nodes.probe import probe_text

    wide = [
        table_of(probe_text.COMPUTE_COLUMNS, list(map(probe_text.compute_row, probes))),
        table_of(probe_text.FILE_COLUMNS, list(map(probe_text.file_row, probes))),
    ]
    if all(fits_screen(table, screen) for table in wide):
        for table in wide:
            screen.print("", table, sep="\n")
        return
    left = list(probes)
    while left:
        for number in range(len(left), 0, -1):  # more nodes than one if that wraps no cell
            table = table_of(*probe_text.measure_rows(left[:number]))
            if fits_screen(table, screen) or number == 1:
                screen.print("", table, sep="\n")
                left = left[number:]
                break
    notes = [*probe_text.cards(probes), *probe_text.warm_reads(probes)]
    for line in ["", *notes] if notes else ():
        screen.print(line, markup=False, highlight=False, soft_wrap=True)
