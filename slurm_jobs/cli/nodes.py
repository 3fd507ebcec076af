"""Verbs on nodes: doctor and probe."""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.cli.options import (
    add_overrides,
    command_text,
    number_text,
    path_of,
    path_text,
    positive,
    positive_up_to,
    print_json,
    shown_path,
)
from slurm_jobs.cli.problems import problem_lines
from slurm_jobs.cli.run_view import watch
from slurm_jobs.cli.submit import job_printer, print_submission
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.shared.files import CLOCKS_APART_S

if TYPE_CHECKING:
    from rich.console import Console

    from slurm_jobs.shared.node_records import NodeProbe
    from slurm_jobs.status.run_status import RunStatus


# `slurm-jobs doctor [SPEC]`: find problems of a site before they cost time, with remedies.


_WAIT_MIN = 10
_MOST_WAIT_MIN = 7 * 24 * 60


def add_doctor_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "spec",
        metavar="SPEC",
        type=path_of,
        nargs="?",
        help="the YAML file whose cluster, nodes, Python and folders are meant; left out, Slurm "
        "where this machine has it, else this machine alone",
    )
    parser.add_argument(
        "--stage",
        metavar="NAME",
        help="the stage for whose resources and Python the nodes are checked; default: the "
        "training",
    )
    parser.add_argument(
        "--nodes",
        metavar="N",
        type=positive,
        help="how many nodes are checked; default: 2 where one job can have them",
    )
    parser.add_argument(
        "--no-nodes", action="store_true", help="do not submit the job that checks nodes"
    )
    parser.add_argument(
        "--drill",
        action="store_true",
        help="submit a job of two minutes, too, that is stopped, saves, and is requeued",
    )
    parser.add_argument(
        "--wait",
        metavar="MINUTES",
        type=positive_up_to(_MOST_WAIT_MIN),
        default=_WAIT_MIN,
        help="longest that a job may wait in the queue before it is cancelled; default: "
        f"{_WAIT_MIN}",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="also print the findings of passed checks, not only names",
    )
    add_overrides(parser)


def run_doctor(options: argparse.Namespace) -> int:
    """Check, print, and return 1 if there is a problem, 3 if Slurm did not answer."""
    from slurm_jobs.cli.options import console
    from slurm_jobs.commands.doctor import (
        CheckResults,
        Wanted,
        examine,
        load_or_make,
        termination_as_interrupt,
    )
    from slurm_jobs.commands.probe import source_stage
    from slurm_jobs.commands.submit import profile_of
    from slurm_jobs.nodes.doctor.check_text import lines_of, sorted_checks
    from slurm_jobs.shared.errors import InputError

    loaded = load_or_make(options.spec, options.overrides)
    profile = profile_of(loaded)
    if (options.nodes or 1) > 1 and profile.scheduler == "local":
        message = f"--nodes {options.nodes}: `cluster: local` is this machine alone"
        raise InputError(message)
    wanted = Wanted(
        loaded=loaded,
        profile=profile,
        source=source_stage(loaded.spec, options.stage),
        is_given=options.spec is not None,
        num_nodes=options.nodes,
        with_nodes=not options.no_nodes,
        with_drill=options.drill,
        wait_s=options.wait * 60.0,
    )
    results, is_interrupted = CheckResults(), False
    say, hush = _progress()
    try:
        with termination_as_interrupt():
            examine(wanted, results, say)
    except KeyboardInterrupt:
        is_interrupted = True
    hush()
    if options.json:
        checks = [dataclasses.asdict(check) for check in sorted_checks(results.checks)]
        run_dirs = [str(path) for path in results.run_dirs]
        print_json({"checks": checks, "unreachable": results.unreachable, "run_dirs": run_dirs})
    else:
        here = f"{Path.cwd()}/"  # commands are shorter with relative paths
        shown = [dataclasses.replace(c, remedy=c.remedy.replace(here, "")) for c in results.checks]
        for line in lines_of(shown, min(console().width, 100), in_words=options.all):
            print(line)
        for run_dir in results.run_dirs:
            print(f"kept for a day: {shown_path(run_dir)}")
    if is_interrupted:
        print("\ninterrupted; its jobs are cancelled", file=sys.stderr)
        return 130
    if results.unreachable:
        return 3
    return 1 if any(check.standing == "problem" for check in results.checks) else 0


def _progress() -> tuple[Callable[[str], None], Callable[[], None]]:
    """Return functions that show what is being checked, and erase it: a line on a terminal."""
    is_terminal = sys.stderr.isatty()
    began_s, shown = time.monotonic(), [""]

    def say(text: str) -> None:
        if is_terminal:
            line = f"[{time.monotonic() - began_s:4.0f} s] {text}"
            print(f"\r\x1b[K{line[:79]}", end="", file=sys.stderr, flush=True)
        elif text != shown[0]:
            print(f"[{time.monotonic() - began_s:4.0f} s] {text}", file=sys.stderr, flush=True)
        shown[0] = text

    def hush() -> None:
        if is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    return say, hush


# `slurm-jobs probe SPEC`: measure the nodes that a spec's training would get.
#
# Given the run of an earlier probe, it prints that result again.


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
    from slurm_jobs.commands.find_run import given_run
    from slurm_jobs.commands.probe import DEFAULT_MINUTES, ProbeRequest, require_probe, submit_probe
    from slurm_jobs.commands.read_spec import load
    from slurm_jobs.shared.configs.stages import ProbeConfig

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
    from slurm_jobs.commands.probe import STAGE
    from slurm_jobs.nodes.probe.probe_files import probes_of_run
    from slurm_jobs.run_folder.resolved_spec import read_resolved_values
    from slurm_jobs.run_folder.run_records import read_completion
    from slurm_jobs.shared.node_records import MAX_KEPT

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
    from slurm_jobs.nodes.probe.probe_files import newest_probes

    known = {probe.node: probe for probe in newest_probes(run_dir.parent, [])}
    every = tuple({**known, **{probe.node: probe for probe in probes}}.values())
    return [(p.node, slow) for p in probes for slow in compare(p, every).slow]


def _print_probe(
    run_dir: Path, status: RunStatus, probes: Sequence[NodeProbe], problems: Sequence[str]
) -> None:
    from slurm_jobs.cli.options import console
    from slurm_jobs.nodes.probe import probe_text
    from slurm_jobs.shared.node_records import ProbePaths

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
    from slurm_jobs.cli.options import fits_screen, table_of
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
