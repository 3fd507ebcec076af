"""What a progress file says that its task is doing."""

from __future__ import annotations

from slurm_jobs.formats.records.activity import begin_steps, doing, end_steps
from tests.slurm_jobs.formats.records.active_task import Task, task

__all__ = ["task"]


def test_a_task_begins_with_its_imports_and_an_unknown_count(task: Task) -> None:
    assert task.activity == "importing"
    assert (task.shown()["total"], task.shown()["unit"]) == (0, "")


def test_before_the_steps_an_activity_is_shown_until_the_next_begins(task: Task) -> None:
    with doing("model_build"):
        assert task.activity == "loading the model"
    written = task.inode
    with doing("closing"):  # is no activity of its own
        assert task.activity == "loading the model"
    assert task.inode == written
    with doing("batch_plan"):
        with doing("microbatch_search"):
            assert task.activity == "trying numbers of microbatches"
        assert task.activity == "planning batches"


def test_an_activity_between_steps_ends_with_the_count_before_it(task: Task) -> None:
    task.progress.count("steps", 200)
    begin_steps()
    assert task.activity is None
    task.progress.update(100, detail="loss 0.5")
    written = task.inode
    begin_steps()
    assert task.inode == written
    with doing("evaluation"):
        assert (task.activity, task.shown()["done"]) == ("evaluating", 100)
    assert (task.activity, task.shown()["detail"]) == (None, "loss 0.5")


def test_after_the_last_step_the_evaluation_stays_shown(task: Task) -> None:
    task.progress.count("steps", 200)
    begin_steps()
    task.progress.update(200)
    end_steps()
    with doing("export"):
        pass
    with doing("evaluation"):
        pass
    assert (task.activity, task.shown()["done"]) == ("evaluating", 200)
