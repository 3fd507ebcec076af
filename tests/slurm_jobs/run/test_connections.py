from collections.abc import Mapping

import pytest

from slurm_jobs.cluster.limits import ClusterLimits
from slurm_jobs.formats.config import DependencyKind
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.plan.make_plan import make_plan
from slurm_jobs.plan.planned import Done, Plan
from slurm_jobs.run.parents import SubmittedJob
from slurm_jobs.run.submission import Connections, dependency_notes, job_dependencies
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.profile import LOCAL

Missing = Mapping[str, set[int]]


def plan(missing: Missing | None = None, *, packed: int = 1, max_size: int | None = None) -> Plan:
    """a -> b, four slices each, slice by slice; all missing unless said otherwise."""
    stages = {
        "a": {"shell": "x", "array": {"num_slices": 4}},
        "b": {
            "shell": "x",
            "after": {"a": "aftercorr"},
            "array": {"num_slices": 4, "slices_per_task": packed},
        },
    }
    spec = RunSpec.model_validate({"name": "n", "cluster": "local", "stages": stages})
    every = frozenset(range(4))
    completed = {name: every - slices for name, slices in (missing or {}).items()}
    limits = ClusterLimits(max_array_size=max_size)
    return make_plan(spec, LOCAL, done=Done(completed=completed), limits=limits)


def of_b(
    given: Plan, active: Mapping[str, set[int]] | None = None
) -> list[dict[DependencyKind, list[str]]]:
    """Ids that the jobs of `b` depend on."""
    above = [job for job in given.jobs if job.stage == "a"]
    submitted = [
        SubmittedJob(planned=job, token="t", job=JobKey("n", str(20 + i)))
        for i, job in enumerate(above)
    ]
    going = {JobKey("n", job_id): frozenset(slices) for job_id, slices in (active or {}).items()}
    connections = Connections(active={"a": going})
    jobs = [job for job in given.jobs if job.stage == "b"]
    found = [job_dependencies(given, job, submitted, connections) for job in jobs]
    return [
        {kind: [above.job_id for above in jobs] for kind, jobs in each.items()} for each in found
    ]


def test_each_element_waits_for_its_counterpart() -> None:
    given = plan()
    assert of_b(given) == [{"aftercorr": ["20"]}]
    assert dependency_notes(given) == ()


def test_a_resume_runs_only_the_slices_that_come_after_what_runs_again() -> None:
    given = plan({"a": {1}, "b": {1}})
    assert [(job.stage, job.slices) for job in given.jobs] == [("a", (1,)), ("b", (1,))]
    assert of_b(given) == [{"aftercorr": ["20"]}]
    # Complete slices of b are made again where their like in a is, and stay where it is not.
    assert [(j.stage, j.slices) for j in plan({"a": {2}, "b": set()}).jobs] == [
        ("a", (2,)),
        ("b", (2,)),
    ]


def test_an_element_without_a_counterpart_makes_all_wait_and_is_noted() -> None:
    given = plan({"a": {1}, "b": {1, 3}})
    assert of_b(given) == [{"afterok": ["20"]}]
    (note,) = dependency_notes(given)
    assert note.startswith("`b` waits for all of `a` (afterok instead of aftercorr)")


def test_a_job_waits_for_running_jobs_that_share_one_of_its_slices() -> None:
    given = plan({"a": set(), "b": {1, 3}})
    assert of_b(given, {"12_1": {1}, "12_2": {2}}) == [{"afterok": ["12_1"]}]
    assert of_b(given, {"12_2": {2}}) == [{}]


@pytest.mark.parametrize(("packed", "kind"), [(1, "aftercorr"), (2, "afterok")])
def test_packed_arrays_correspond_only_if_they_are_packed_alike(packed: int, kind: str) -> None:
    given = plan(packed=packed)
    assert of_b(given) == [{kind: ["20"]}]
    assert len(dependency_notes(given)) == (kind == "afterok")


def test_pieces_of_arrays_wait_for_the_piece_with_their_slices() -> None:
    given = plan(max_size=2)
    assert [job.slices for job in given.jobs] == [(0, 1), (2, 3), (0, 1), (2, 3)]
    assert of_b(given) == [{"aftercorr": ["20"]}, {"aftercorr": ["21"]}]


@pytest.mark.parametrize(
    ("max_running", "done", "notes"),
    [
        (4, Done(), []),
        (1, Done(), ["`a` has 2 arrays, which run one after the other, because only 1 of its"]),
        (3, Done(active={"a": frozenset({0, 1, 2})}), ["`a` waits for the end of its tasks that"]),
    ],
)
def test_arrays_that_max_running_holds_back_are_noted(
    max_running: int, done: Done, notes: list[str]
) -> None:
    array = {"num_slices": 4, "max_running": max_running}
    stages = {"a": {"shell": "x", "array": array}}
    spec = RunSpec.model_validate({"name": "n", "cluster": "local", "stages": stages})
    given = make_plan(spec, LOCAL, done=done, limits=ClusterLimits(max_array_size=3))
    printed = dependency_notes(given)
    assert len(printed) == len(notes)
    assert all(note.startswith(text) for note, text in zip(printed, notes, strict=True))
