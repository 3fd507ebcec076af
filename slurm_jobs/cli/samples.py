"""`slurm-jobs samples RUN`: show samples of a data set, and audit labels and images."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.cli.arguments import (
    add_json,
    check_place,
    command_text,
    number_text,
    path_of,
    path_text,
    positive,
    print_json,
    shown_path,
    whole,
)

if TYPE_CHECKING:
    from slurm_jobs.operations.samples import SamplesFound
    from slurm_jobs.operations.verify import DatasetPlace

_NUM_SHOWN = 3
_MOST_OF_A_KIND = 20
"""Findings of one kind that are printed; --json has more."""
_LEFT_OUT = frozenset({"unknown_keys", "samples", "findings", "num_findings"})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "run",
        metavar="RUN|FOLDER",
        type=path_text,
        nargs="?",
        help="a run, or the folder of a data set; default: the newest run",
    )
    parser.add_argument("--stage", metavar="STAGE", help="only the data set of this stage")
    _add_choice(parser)
    parser.add_argument(
        "--html", metavar="FILE", type=path_of, help="write a page with pictures, and print no text"
    )
    parser.add_argument(
        "--limit", metavar="N", type=positive, help="audit the first N samples; default: all"
    )
    parser.add_argument(
        "--python",
        metavar="PROGRAM",
        type=path_text,
        help="the Python to read with; default: the one of the stage that made the data set",
    )
    parser.add_argument(
        "--threads", metavar="N", type=positive, help="threads that read; default: one a core"
    )
    add_json(parser)


def _add_choice(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--num",
        metavar="N",
        type=whole,
        default=_NUM_SHOWN,
        help=f"show N samples, the first of the (shuffled) data set; default: {_NUM_SHOWN}",
    )
    parser.add_argument(
        "--key",
        metavar="KEY",
        type=whole,
        action="append",
        default=[],
        help="show the sample of this key, the number of its row; may be repeated",
    )
    parser.add_argument("--random", metavar="SEED", type=whole, help="draw the N samples at random")


def run(options: argparse.Namespace) -> int:
    """Show samples and audit all; exit code 1 if there are problems."""
    from slurm_jobs.common.errors import InputError
    from slurm_jobs.operations.verify import find_datasets

    places = find_datasets(options.run, options.stage)
    if len(places) > 1 and (options.html is not None or options.key):
        names = ", ".join(place.stage for place in places)
        message = f"--html and --key are for one data set; pick one by --stage (there are: {names})"
        raise InputError(message)
    if options.html is not None:
        check_place("--html", options.html)
    all_found = []
    for place in places:
        found = _look(place, options)
        all_found.append(found)
        if options.html is not None:
            write_page(options.html, found)
        if not options.json:
            _print(found, options)
    if options.json:
        print_json({"datasets": [found_values(found) for found in all_found]})
    return 1 if any(found.num_findings for found in all_found) else 0


def _look(place: DatasetPlace, options: argparse.Namespace) -> SamplesFound:
    from slurm_jobs.cli.progress_bar import progress_bar
    from slurm_jobs.operations.samples import Wanted, look_at_samples

    wanted = Wanted(
        num=options.num,
        keys=tuple(dict.fromkeys(options.key)),
        random_seed=options.random,
        limit=options.limit,
        with_pictures=options.html is not None,
    )
    with progress_bar(f"auditing {place.stage or place.folder.name}") as on_progress:
        return look_at_samples(
            place,
            wanted,
            python=options.python,
            num_threads=options.threads,
            on_progress=on_progress,
        )


def _print(found: SamplesFound, options: argparse.Namespace) -> None:
    from slurm_jobs.cli.output import page_console
    from slurm_jobs.samples.terminal import print_samples

    for line in head_lines(found):
        print(line)
    if options.html is None:
        print_samples(found.samples, page_console())
        if found.samples:
            print()
    for line in finding_lines(found, options.run):
        print(line)
    if options.html is not None:
        print(f"page: {shown_path(options.html)}")


def head_lines(found: SamplesFound) -> Iterator[str]:
    """Yield a description of the data set."""
    from slurm_jobs.report.words_statistics import statistics_lines

    yield (
        f"{shown_path(found.place.folder)}: {number_text(found.num_samples, 'sample')} in "
        f"{number_text(found.num_shards, 'shard')}"
    )
    if found.statistics is not None:
        yield from statistics_lines(found.statistics)


def finding_lines(found: SamplesFound, run_text: str | None) -> Iterator[str]:
    """Yield the results of the audit."""
    from slurm_jobs.samples.page import problems_text
    from slurm_jobs.samples.visible import visible

    wrong = problems_text(sum(found.num_findings.values()))
    part = "" if found.num_audited == found.num_samples else f"the first {found.num_audited:,} of "
    yield f"audited {part}{found.num_samples:,} samples: {wrong} found"
    for kind, num_of_kind in found.num_findings.items():
        own = (finding for finding in found.findings if finding["kind"] == kind)
        for finding in islice(own, _MOST_OF_A_KIND):
            yield f"  {finding['shard']}: sample {finding['key']}: {visible(finding['message'])}"
        if num_of_kind > _MOST_OF_A_KIND:
            yield f"  {kind}: {num_of_kind - _MOST_OF_A_KIND:,} more; --json lists them"
    if found.findings:
        words = [run_text or str(found.place.folder)]
        stage = ["--stage", found.place.stage] if found.place.stage and run_text is not None else []
        first = found.findings[0]
        if first["kind"] == "unreadable":
            yield f"next: {command_text('verify', *words, *stage)}"
        else:
            words += ["--key", first["key"], *stage]
            yield f"next: {command_text('samples', *words)}"


def write_page(path: Path, found: SamplesFound) -> None:
    """Write the page atomically."""
    from slurm_jobs import __version__
    from slurm_jobs.common.files import write_bytes_atomic
    from slurm_jobs.samples.page import SamplesPage, render_samples

    page = SamplesPage(
        folder=shown_path(found.place.folder),
        version=__version__,
        num_samples=found.num_samples,
        num_audited=found.num_audited,
        num_findings=sum(found.num_findings.values()),
        findings=found.findings,
        statistics=found.statistics,
        samples=found.samples,
    )
    write_bytes_atomic(path, render_samples(page).encode())


def found_values(found: SamplesFound) -> dict[str, Any]:
    """Return one data set as JSON values; pictures are only on pages."""
    return {
        "folder": str(found.place.folder),
        "stage": found.place.stage or None,
        **{name: value for name, value in found.values.items() if name not in _LEFT_OUT},
        "num_findings": sum(found.num_findings.values()),
        "num_findings_by_kind": dict(found.num_findings),
        "findings": [dict(finding) for finding in found.findings],
        "samples": [
            {name: value for name, value in sample.items() if name != "pictures"}
            for sample in found.values["samples"]
        ],
    }
