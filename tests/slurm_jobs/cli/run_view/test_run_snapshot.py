"""Progress of a task as a look at a run reads it: as text and as a share."""

import json
from pathlib import Path

import pytest

from slurm_jobs.cli.run_view.run_snapshot import task_progress
from slurm_jobs.formats.records.activity import ActiveProgress, Activity
from slurm_jobs.formats.records.progress_file import Progress
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.status.slice_status import SliceStatus
from slurm_jobs.worker.rank import exit_path
from tests.slurm_jobs.runs import job


def part(attempt: int) -> SliceStatus:
    return SliceStatus(
        slice_index=0, status="running", attempt=attempt, source="squeue", job=job("7")
    )


@pytest.mark.parametrize(("attempt", "before"), [(1, ""), (2, "attempt 2: ")])
def test_reported_progress_of_a_task_is_shown_as_text_and_as_a_share(
    tmp_path: Path, attempt: int, before: str
) -> None:
    folder = RunPaths(tmp_path).task_dir("train", 0, attempt)
    folder.mkdir(parents=True)
    Progress(folder, "steps", 400).update(100, detail="loss 0.5000, 2 min left")
    text = f"{before}100/400 steps loss 0.5000, 2 min left"
    assert task_progress(tmp_path, "train", part(attempt)) == (text, 0.25)


def show(folder: Path, *, num_done: int | None, activity: Activity) -> None:
    progress = ActiveProgress(folder)
    if num_done is not None:
        progress.count("steps", 200)
        progress.update(num_done, detail="loss 0.5")
    progress.show(activity)


@pytest.mark.parametrize(
    ("attempt", "num_done", "activity", "text"),
    [
        (1, None, "importing", "importing"),
        (2, 0, "compiling", "attempt 2: compiling, 0/200 steps"),
        (1, 200, "evaluating", "evaluating, 200/200 steps"),
    ],
)
def test_what_a_task_does_is_shown_before_its_count(
    tmp_path: Path, attempt: int, num_done: int | None, activity: Activity, text: str
) -> None:
    folder = RunPaths(tmp_path).task_dir("train", 0, attempt)
    folder.mkdir(parents=True)
    show(folder, num_done=num_done, activity=activity)
    share = None if num_done is None else num_done / 200
    assert task_progress(tmp_path, "train", part(attempt)) == (text, share)


@pytest.mark.parametrize(
    ("attempt", "num_done", "text"),
    [(1, 200, "200/200 steps loss 0.5"), (1, None, ""), (2, None, "attempt 2")],
)
def test_a_rank_that_has_ended_does_nothing_any_more(
    tmp_path: Path, attempt: int, num_done: int | None, text: str
) -> None:
    folder = RunPaths(tmp_path).task_dir("train", 0, attempt)
    folder.mkdir(parents=True)
    show(folder, num_done=num_done, activity="evaluating")
    exit_path(folder, 0).touch()
    assert task_progress(tmp_path, "train", part(attempt))[0] == text


def test_progress_of_an_older_version_has_no_activity(tmp_path: Path) -> None:
    folder = RunPaths(tmp_path).task_dir("train", 0, 1)
    folder.mkdir(parents=True)
    values = {"done": 1, "total": 2, "unit": "steps", "detail": "", "updated_unix_s": 0.0}
    (folder / "progress.json").write_text(json.dumps(values))
    assert task_progress(tmp_path, "train", part(1)) == ("1/2 steps", 0.5)


@pytest.mark.parametrize(("attempt", "text"), [(1, ""), (3, "attempt 3")])
def test_a_task_that_has_written_nothing_has_no_share(
    tmp_path: Path, attempt: int, text: str
) -> None:
    assert task_progress(tmp_path, "train", part(attempt)) == (text, None)


def test_a_task_of_nothing_has_no_share(tmp_path: Path) -> None:
    folder = RunPaths(tmp_path).task_dir("train", 0, 1)
    folder.mkdir(parents=True)
    Progress(folder, "rows", 0).update(0)
    assert task_progress(tmp_path, "train", part(1)) == ("0/0 rows", None)
