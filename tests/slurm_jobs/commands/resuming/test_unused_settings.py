"""Which settings of a resume no job of it uses, and what is said about them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from slurm_jobs.commands.resuming.given_spec import spec_of
from slurm_jobs.commands.resuming.slice_requests import plain_overrides
from slurm_jobs.commands.resuming.unused_settings import unused_settings
from slurm_jobs.plan.make_plan import make_plan
from slurm_jobs.plan.planned import Done
from slurm_jobs.run_folder.resolved_spec import read_resolved_spec
from slurm_jobs.spec.profile import LOCAL
from tests.slurm_jobs.commands.resuming.given_overrides import SPEC, MakeRun, make

__all__ = ["make"]
ARRAY = SPEC + '  a: {shell: "true", array: {num_slices: 3}, resources: {mem_gb: 2}}\n'
COMPLETE = {"q": {0}, "t-lr=1": {0}, "t-lr=2": {0}, "a": {0, 1}}
LATER = "is for later attempts: this resume submits no job of"


def notes(
    make: MakeRun, *overrides: str, active: Mapping[str, frozenset[int]] | None = None
) -> tuple[str, ...]:
    """What is said about the overrides if slice 2 of `a` alone is not complete."""
    paths = make(ARRAY)
    spec = spec_of(paths, plain_overrides(overrides), update_spec=False).spec
    completed = {name: frozenset(slices) for name, slices in COMPLETE.items()}
    plan = make_plan(spec, LOCAL, done=Done(completed=completed, active=active or {}))
    return unused_settings(read_resolved_spec(paths), spec, overrides, plan, active or {})


@pytest.mark.parametrize(
    "override",
    ["stages.a.resources.mem_gb=4", "stages.a[1-2].resources.mem_gb=4", "setup=[a]"],
)
def test_nothing_is_said_about_a_setting_that_a_job_uses(make: MakeRun, override: str) -> None:
    assert notes(make, override) == ()


@pytest.mark.parametrize(
    ("override", "end"),
    [
        ("stages.q.retries=3", f"{LATER} `q`"),
        ("stages.a[0].resources.mem_gb=4", f"{LATER} `a`"),
        ("stages.q.retries=0", "has no effect, because the run has this value already"),
    ],
)
def test_a_setting_that_no_job_uses_is_named_with_the_reason(
    make: MakeRun, override: str, end: str
) -> None:
    assert notes(make, override) == (f"`--set {override}` {end}",)


def test_jobs_in_the_queue_keep_what_they_were_submitted_with(make: MakeRun) -> None:
    (note,) = notes(make, "stages.a.resources.mem_gb=4", active={"a": frozenset({2})})
    kept = "its jobs in the queue keep the value with which they were submitted"
    assert note == f"`--set stages.a.resources.mem_gb=4` {LATER} `a`, and {kept}"
