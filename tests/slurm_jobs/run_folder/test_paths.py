"""Runs are ordered by their age, and by their names where it is equal."""

import os
from pathlib import Path

from slurm_jobs.commands.run_search.find_run import find_run
from tests.slurm_jobs.commands.run_search.named_runs import make, runs

__all__ = ["runs"]


def test_runs_with_equal_file_times_are_ordered_by_the_time_in_their_name(
    runs: Path,
) -> None:
    names = ("words-20250101-000000-ffff", "words-20250102-000000-aaaa", "a-20250101-120000-bbbb")
    for name in names:
        os.utime(make(runs, name) / "run.json", (1e9, 1e9))
    assert find_run(None) == runs / names[1]
