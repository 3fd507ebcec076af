"""`slurm-jobs samples RUN`: show samples of a data set, and audit labels and images."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.cli.arguments import check_place, path_of, positive, whole
from slurm_jobs.cli.data_sets.dataset_arguments import add_dataset, add_reader
from slurm_jobs.cli.terminal.console import print_json
from slurm_jobs.cli.terminal.numbers_in_words import number_text
from slurm_jobs.cli.terminal.shown_paths import command_text, shown_path

if TYPE_CHECKING:
    from slurm_jobs.commands.data_sets.sample_inspection import SamplesFound


_NUM_SHOWN = 3
_MOST_OF_A_KIND = 20
"""Findings of one kind that are printed; --json has more."""
_LEFT_OUT = frozenset({"unknown_keys", "samples", "findings", "num_findings"})


def add_samples_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_dataset(parser)
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
    parser.add_argument(
        "--html", metavar="FILE", type=path_of, help="write a page with pictures, and print no text"
    )
    parser.add_argument(
        "--limit", metavar="N", type=positive, help="audit the first N samples; default: all"
    )
    add_reader(
        parser, "the Python to read with; default: the one of the stage that made the data set"
    )


def run_samples(options: argparse.Namespace) -> int:
    """Show samples and audit all; exit code 1 if there are problems."""
    from slurm_jobs.base.errors import InputError
    from slurm_jobs.cli.terminal.console import page_console
    from slurm_jobs.cli.terminal.progress_display import progress_bar
    from slurm_jobs.commands.data_sets.dataset_choice import find_datasets
    from slurm_jobs.commands.data_sets.sample_inspection import SampleChoice, inspect_samples

    places = find_datasets(options.run, options.stage)
    if len(places) > 1 and (options.html is not None or options.key):
        names = ", ".join(place.stage for place in places)
        message = f"--html and --key are for one data set; choose one with --stage ({names})"
        raise InputError(message)
    if options.html is not None:
        check_place("--html", options.html)
    wanted = SampleChoice(
        num=options.num,
        keys=tuple(dict.fromkeys(options.key)),
        random_seed=options.random,
        limit=options.limit,
        with_pictures=options.html is not None,
    )
    audits = []
    for place in places:
        with progress_bar(f"auditing {place.stage or place.folder.name}") as on_progress:
            audit = inspect_samples(
                place,
                wanted,
                python=options.python,
                num_threads=options.threads,
                on_progress=on_progress,
            )
        audits.append(audit)
        if options.html is not None:
            _write_page(options.html, audit)
        if not options.json:
            from slurm_jobs.report.samples.samples_terminal import print_samples

            print("\n".join(_head_lines(audit)))
            if options.html is None:
                print_samples(audit.samples, page_console())
                if audit.samples:
                    print()
            for line in _finding_lines(audit, options.run):
                print(line)
            if options.html is not None:
                print(f"page: {shown_path(options.html)}")
    if options.json:
        print_json({"datasets": [_audit_values(audit) for audit in audits]})
    return 1 if any(audit.num_findings for audit in audits) else 0


def _head_lines(samples: SamplesFound) -> Iterator[str]:
    """Yield a description of the data set."""
    from slurm_jobs.report.text.data_lines import statistics_lines

    yield (
        f"{shown_path(samples.place.folder)}: {number_text(samples.num_samples, 'sample')} in "
        f"{number_text(samples.num_shards, 'shard')}"
    )
    if samples.statistics is not None:
        yield from statistics_lines(samples.statistics)


def _finding_lines(samples: SamplesFound, run_text: str | None) -> Iterator[str]:
    """Yield the results of the audit."""
    from slurm_jobs.report.samples.samples_page import problems_text
    from slurm_jobs.report.samples.visible_text import visible

    wrong = problems_text(sum(samples.num_findings.values()))
    part = (
        ""
        if samples.num_audited == samples.num_samples
        else f"the first {samples.num_audited:,} of "
    )
    yield f"audited {part}{samples.num_samples:,} samples: {wrong} found"
    for kind, num_of_kind in samples.num_findings.items():
        of_kind = (finding for finding in samples.findings if finding["kind"] == kind)
        for finding in islice(of_kind, _MOST_OF_A_KIND):
            yield f"  {finding['shard']}: sample {finding['key']}: {visible(finding['message'])}"
        if num_of_kind > _MOST_OF_A_KIND:
            yield f"  {kind}: {num_of_kind - _MOST_OF_A_KIND:,} more; --json lists them"
    if samples.findings:
        words = [run_text or str(samples.place.folder)]
        stage = (
            ["--stage", samples.place.stage] if samples.place.stage and run_text is not None else []
        )
        first = samples.findings[0]
        if first["kind"] == "unreadable":
            yield f"next: {command_text('verify', *words, *stage)}"
        else:
            words += ["--key", first["key"], *stage]
            yield f"next: {command_text('samples', *words)}"


def _write_page(path: Path, samples: SamplesFound) -> None:
    """Write the page atomically."""
    from slurm_jobs import __version__
    from slurm_jobs.base.files import write_bytes_atomic
    from slurm_jobs.report.samples.samples_page import SamplesPage, render_samples

    page = SamplesPage(
        folder=shown_path(samples.place.folder),
        version=__version__,
        num_samples=samples.num_samples,
        num_audited=samples.num_audited,
        num_findings=sum(samples.num_findings.values()),
        findings=samples.findings,
        statistics=samples.statistics,
        samples=samples.samples,
    )
    write_bytes_atomic(path, render_samples(page).encode())


def _audit_values(samples: SamplesFound) -> dict[str, Any]:
    """Return one data set as JSON values; pictures are only on pages."""
    return {
        "folder": str(samples.place.folder),
        "stage": samples.place.stage or None,
        **{name: value for name, value in samples.values.items() if name not in _LEFT_OUT},
        "num_findings": sum(samples.num_findings.values()),
        "num_findings_by_kind": dict(samples.num_findings),
        "findings": [dict(finding) for finding in samples.findings],
        "samples": [
            {name: value for name, value in sample.items() if name != "pictures"}
            for sample in samples.values["samples"]
        ],
    }
