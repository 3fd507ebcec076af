"""What a look reads of a task's progress."""

from pathlib import Path

import pytest

from slurm_jobs.cli.run_view import task_progress
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.shared.files import Progress
from slurm_jobs.status import SliceStatus


def part(attempt: int) -> SliceStatus:
    return SliceStatus(
        slice_index=0, status="running", attempt=attempt, source="squeue", job_id="7"
    )


@pytest.mark.parametrize(("attempt", "before"), [(1, ""), (2, "attempt 2: ")])
def test_a_task_that_said_how_far_it_is_is_told_in_words_and_as_a_share(
    tmp_path: Path, attempt: int, before: str
) -> None:
    folder = RunPaths(tmp_path).task_dir("train", 0, attempt)
    folder.mkdir(parents=True)
    Progress(folder, "steps", 400).update(100, detail="loss 0.5000, 2 min left")
    text = f"{before}100/400 steps loss 0.5000, 2 min left"
    assert task_progress(tmp_path, "train", part(attempt)) == (text, 0.25)


@pytest.mark.parametrize(("attempt", "text"), [(1, ""), (3, "attempt 3")])
def test_a_task_that_has_said_nothing_has_no_share(tmp_path: Path, attempt: int, text: str) -> None:
    assert task_progress(tmp_path, "train", part(attempt)) == (text, None)


def test_a_task_of_nothing_has_no_share(tmp_path: Path) -> None:
    folder = RunPaths(tmp_path).task_dir("train", 0, 1)
    folder.mkdir(parents=True)
    Progress(folder, "rows", 0).update(0)
    assert task_progress(tmp_path, "train", part(1)) == ("0/0 rows", None)
