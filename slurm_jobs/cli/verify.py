"""`slurm-jobs verify RUN`: check that a data set is what was written."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from slurm_jobs.cli.arguments import (
    add_json,
    command_text,
    number_text,
    path_text,
    positive,
    print_json,
    shown_path,
)

if TYPE_CHECKING:
    from slurm_jobs.operations.verify import Verdict

_MOST_OF_A_FILE = 20
"""Problems of one file that are printed; --json has all."""


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
    parser.add_argument(
        "--python",
        metavar="PROGRAM",
        type=path_text,
        help="the Python to read it with; default: the one of the stage that made it",
    )
    parser.add_argument(
        "--threads", metavar="N", type=positive, help="threads that read; default: one a core"
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Verify; exit code 1 if there are problems."""
    from slurm_jobs.cli.progress_bar import progress_bar
    from slurm_jobs.operations.verify import find_datasets, verify

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
        print_json({"datasets": [verdict_values(verdict) for verdict in verdicts]})
    return 1 if any(verdict.problems for verdict in verdicts) else 0


def verdict_lines(verdict: Verdict) -> Iterator[str]:
    """Yield the terminal output for one data set."""
    counts, number = verdict.counts, len(verdict.problems)
    folder = shown_path(verdict.place.folder)
    held = (
        f"{number_text(counts['num_samples'], 'sample')} in "
        f"{number_text(counts['num_shards'], 'shard')}, "
        f"{_size_text(counts['num_bytes'])}: "
        if counts
        else ""
    )
    yield f"{folder}: {held}{number_text(number, 'problem')} found"
    for file, problems in groupby(verdict.problems, key=lambda problem: problem["file"]):
        listed = list(problems)
        yield from (f"  {_problem_text(problem)}" for problem in listed[:_MOST_OF_A_FILE])
        if len(listed) > _MOST_OF_A_FILE:
            more = number_text(len(listed) - _MOST_OF_A_FILE, "more problem")
            yield f"  {file}: {more}; --json lists all"
    if verdict.remedy:
        yield f"next: {verdict.remedy}"
    if verdict.effect:
        yield f"      {verdict.effect}"


def _problem_text(problem: Any) -> str:
    sample = f"sample {problem['key']}: " if problem["key"] is not None else ""
    message = str(problem["message"])
    return f"{problem['file']}: {sample}{message}"


def _size_text(num_bytes: int) -> str:
    size = float(num_bytes)
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.4g} TB"


def verdict_values(verdict: Verdict) -> dict[str, Any]:
    """Return one data set as JSON values."""
    problems: Sequence[Any] = verdict.problems
    return {
        "folder": str(verdict.place.folder),
        "stage": verdict.place.stage or None,
        **verdict.counts,
        "num_problems": len(problems),
        "problems": [dict(problem) for problem in problems],
        "remedy": verdict.remedy or None,
        "effect": verdict.effect or None,
    }
