"""Names of runs: what follows the spec's name is recognised, and orders runs of equal age."""

import os
from pathlib import Path

from slurm_jobs.commands.run_search.find_run import find_run
from slurm_jobs.run_folder.paths import RUN_STAMP, run_name
from tests.slurm_jobs.commands.run_search.named_runs import make, runs

__all__ = ["runs"]


def test_the_stamp_of_a_new_run_is_recognised_after_the_name_of_its_spec() -> None:
    names = {run_name("words-2", 1.75e9) for _ in range(5)}
    assert len(names) > 1
    assert {RUN_STAMP.sub("", name) for name in names} == {"words-2"}


def test_runs_with_equal_file_times_are_ordered_by_the_time_in_their_name(
    runs: Path,
) -> None:
    names = ("words-20250101-000000-ffff", "words-20250102-000000-aaaa", "a-20250101-120000-bbbb")
    for name in names:
        os.utime(make(runs, name) / "run.json", (1e9, 1e9))
    assert find_run(None) == runs / names[1]
