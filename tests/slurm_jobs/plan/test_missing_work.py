"""Why each job runs: the slices that are missing, and what has changed."""

from slurm_jobs.plan.planned import Done
from tests.slurm_jobs.plan.planned_stages import plan


def test_each_job_says_why_it_runs() -> None:
    done = Done(completed={"fetch": frozenset({0}), "tokens": frozenset({0})})
    why = {job.stage: job.why for job in plan(done=done).jobs}
    assert why["tokens"] == "3 of 4 slices are not complete"
    assert why["train"] == "comes after tokens"
    assert {job.stage: job.why for job in plan().jobs}["fetch"] == "not complete"


def test_the_reason_to_repeat_finished_work_comes_first() -> None:
    done = Done(why_not={"fetch": {0: "changed: config.url"}})
    why = {job.stage: job.why for job in plan(done=done).jobs}
    assert (why["fetch"], why["tokens"]) == ("changed: config.url", "comes after fetch")


def test_slices_of_one_job_are_named_with_their_different_reasons() -> None:
    done = Done(
        completed={"fetch": frozenset({0}), "tokens": frozenset({0, 3})},
        why_not={"tokens": {1: "asked for"}},
    )
    why = {job.stage: job.why for job in plan(done=done).jobs}
    assert why["tokens"] == "1: asked for; 2: not complete"
