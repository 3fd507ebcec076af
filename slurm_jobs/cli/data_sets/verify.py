"""`slurm-jobs verify RUN`: check that a data set is what was written."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

from slurm_jobs.cli.data_sets.dataset_arguments import add_dataset, add_reader
from slurm_jobs.cli.terminal.console import print_json
from slurm_jobs.cli.terminal.numbers_in_words import number_text
from slurm_jobs.cli.terminal.shown_paths import command_text, shown_path

if TYPE_CHECKING:
    from slurm_jobs.commands.data_sets.dataset_choice import VerifyResult


_MOST_OF_A_FILE = 20
"""Problems of one file that are printed; --json has all."""


def add_verify_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_dataset(parser)
    add_reader(parser, "the Python to read it with; default: the one of the stage that made it")


def run_verify(options: argparse.Namespace) -> int:
    """Verify; exit code 1 if there are problems."""
    from slurm_jobs.cli.terminal.progress_display import progress_bar
    from slurm_jobs.commands.data_sets.dataset_choice import find_datasets, verify

    verdicts = []
    for place in find_datasets(options.run, options.stage):
        with progress_bar(f"verifying {shown_path(place.folder)}") as on_progress:
            verdict = verify(
                place,
                python=options.python,
                num_threads=options.threads,
                command_text=command_text,
                on_progress=on_progress,
            )
        verdicts.append(verdict)
        if not options.json:
            for line in verdict_lines(verdict):
                print(line)
    if options.json:
        datasets = [
            {
                "folder": str(verdict.place.folder),
                "stage": verdict.place.stage or None,
                **verdict.counts,
                "num_problems": len(verdict.problems),
                "problems": [dict(problem) for problem in verdict.problems],
                "remedy": verdict.remedy or None,
                "effect": verdict.effect or None,
            }
            for verdict in verdicts
        ]
        print_json({"datasets": datasets})
    return 1 if any(verdict.problems for verdict in verdicts) else 0


def verdict_lines(verdict: VerifyResult) -> Iterator[str]:
    """Yield the terminal output for one data set."""
    counts, size = verdict.counts, ""
    if counts:
        size = (
            f"{number_text(counts['num_samples'], 'sample')} in "
            f"{number_text(counts['num_shards'], 'shard')}, {_size_text(counts['num_bytes'])}: "
        )
    problems = number_text(len(verdict.problems), "problem")
    yield f"{shown_path(verdict.place.folder)}: {size}{problems} found"
    for file, group in groupby(verdict.problems, key=lambda problem: problem["file"]):
        listed = list(group)
        for problem in listed[:_MOST_OF_A_FILE]:
            sample = f"sample {problem['key']}: " if problem["key"] is not None else ""
            yield f"  {file}: {sample}{problem['message']}"
        if len(listed) > _MOST_OF_A_FILE:
            more = number_text(len(listed) - _MOST_OF_A_FILE, "more problem")
            yield f"  {file}: {more}; --json lists all"
    if verdict.remedy:
        yield f"next: {verdict.remedy}"
    if verdict.effect:
        yield f"      {verdict.effect}"


def _size_text(num_bytes: int) -> str:
    size = float(num_bytes)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.4g} TB"
