"""Decisions of `sort_out`; statuses come from the real `reconcile`."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_jobs.cluster.limits import ClusterLimits
from slurm_jobs.formats.records.attempt_records import Outcome
from slurm_jobs.plan.make_plan import make_plan
from slurm_jobs.run.prepare_resume import Preparation, sort_out
from slurm_jobs.run_folder.ledger import Intent
from slurm_jobs.run_folder.run_values import StageSummary
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.profile import ClusterProfile
from slurm_jobs.status.reconcile import reconcile
from tests.slurm_jobs.runs import DONE, FAILED, NEVER, Ends, answer, intent, run_records, stage


def submitted(stages: list[StageSummary]) -> list[Intent]:
    """One job a stage, from 12 on."""
    return [
        intent(number, each.name, str(11 + number), each.num_slices)
        for number, each in enumerate(stages, 1)
    ]


def sorted_out(
    stages: list[StageSummary],
    states: Mapping[str, str] | None = None,
    ends: Mapping[str, Ends] | None = None,
    *,
    intents: list[Intent] | None = None,
    fingerprints: Mapping[str, str] | None = None,
    void: Mapping[str, frozenset[int]] | None = None,
    begun: Mapping[str, Mapping[int, int]] | None = None,
    afters: Mapping[str, Mapping[str, str]] | None = None,
) -> Any:
    """The preparation, with jobs by id where no test has two jobs with one id."""
    run = run_records(stages, submitted(stages) if intents is None else intents, ends, begun)
    said = answer(states or {})
    now = {summary.name: "f" for summary in stages} | dict(fingerprints or {})
    living = {job for job, task in said.tasks.items() if task.state in {"RUNNING", "PENDING"}}
    return by_id(sort_out(run, reconcile(run, said), now, void, living=living, afters=afters))


def by_id(found: Preparation) -> Any:
    connections = SimpleNamespace(
        active={
            name: {job.job_id: slices for job, slices in jobs.items()}
            for name, jobs in found.connections.active.items()
        },
        ending={
            name: tuple(job.job_id for job in jobs)
            for name, jobs in found.connections.ending.items()
        },
    )
    return SimpleNamespace(
        done=found.done,
        connections=connections,
        cancel=tuple(job.job_id for job in found.cancel),
        superseded=found.superseded,
    )


def test_the_failed_slice_of_a_stage_is_neither_complete_nor_active() -> None:
    found = sorted_out([stage("a", 4)], ends={"a": {0: DONE, 1: DONE, 2: FAILED, 3: DONE}})
    assert found.done.completed["a"] == {0, 1, 3}
    assert found.done.active["a"] == frozenset()
    assert found.connections.active["a"] == {}
    assert found.connections.ending["a"] == ()
    assert found.cancel == ()


def test_of_an_array_that_half_failed_the_running_elements_go_on() -> None:
    found = sorted_out(
        [stage("a", 4)],
        {"12_0": "RUNNING", "12_1": "FAILED", "12_2": "FAILED", "12_3": "PENDING"},
        ends={"a": {1: FAILED, 2: FAILED}},
    )
    assert found.done.active["a"] == {0, 3}
    assert tuple(found.connections.active["a"]) == ("12_0", "12_3")
    assert found.connections.ending["a"] == found.cancel == ()


def test_an_array_that_goes_on_as_a_whole_is_named_by_its_own_id() -> None:
    states = {"12_0": "RUNNING", "12_1": "PENDING"}
    found = sorted_out([stage("a", 2)], states)
    assert tuple(found.connections.active["a"]) == ("12",)


def test_elements_are_named_alone_if_a_later_job_has_taken_the_others() -> None:
    found = sorted_out(
        [stage("a", 3)],
        {"12_0": "RUNNING", "12_2": "RUNNING", "13_1": "RUNNING"},
        intents=[intent(1, "a", "12", 3), intent(2, "a", "13", 3, slices=(1,))],
    )
    assert tuple(found.connections.active["a"]) == ("12_0", "13", "12_2")


@pytest.mark.parametrize(
    ("kind", "ending"),
    [("afterok", ()), ("afterany", ("13",))],  # the second may start before it is cancelled
)
def test_a_child_that_waits_for_a_parent_that_runs_again_is_cancelled(
    kind: str, ending: tuple[str, ...]
) -> None:
    found = sorted_out(
        [stage("a", 2), stage("b", a=kind)],
        {"12_0": "RUNNING", "12_1": "FAILED", "13": "PENDING:Dependency"},
        ends={"a": {1: FAILED}},
    )
    assert found.cancel == ("13",)
    assert found.connections.active == {"a": {"12_0": {0}}, "b": {}}
    assert found.connections.ending["b"] == ending


def test_a_child_that_runs_on_what_is_made_again_is_ended_and_made_again() -> None:
    found = sorted_out(
        [stage("a"), stage("b", a="afterany")],
        {"12": "FAILED", "13": "RUNNING"},
        ends={"a": {0: FAILED}},
    )
    assert found.done.active["b"] == frozenset()
    assert found.connections.ending["b"] == found.cancel == ("13",)


def test_that_a_stage_runs_again_reaches_the_children_of_its_children() -> None:
    found = sorted_out(
        [stage("a"), stage("b", a="afterany"), stage("c", b="afterany")],
        {"12": "FAILED", "14": "RUNNING"},
        ends={"a": {0: FAILED}, "b": {0: DONE}},
    )
    assert found.connections.ending["c"] == found.cancel == ("14",)


def test_children_of_a_parent_that_goes_on_stay_queued() -> None:
    found = sorted_out(
        [stage("a"), stage("b", a="afterok")], {"12": "RUNNING", "13": "PENDING:Dependency"}
    )
    assert found.cancel == ()
    assert found.connections.active == {"a": {"12": {0}}, "b": {"13": {0}}}


@pytest.mark.parametrize("state", ["RUNNING", "PENDING"])
def test_what_is_left_of_a_cancelled_job_must_make_way(state: str) -> None:
    found = sorted_out(
        [stage("a")], {"12": state}, intents=[intent(1, "a", "12", cancelled_slices=frozenset({0}))]
    )
    assert found.done.active["a"] == frozenset()
    assert found.cancel == found.connections.ending["a"] == ("12",)


def test_a_slice_completed_under_another_fingerprint_is_not_complete() -> None:
    found = sorted_out(
        [stage("a", 2)],
        intents=[intent(1, "a", "12", 2), intent(2, "a", "13", 2, slices=(1,), fingerprint="new")],
        ends={"a": {0: DONE, 1: DONE}},
        fingerprints={"a": "new"},
    )
    assert found.done.completed["a"] == {1}


def test_a_job_that_runs_under_another_fingerprint_must_end() -> None:
    found = sorted_out([stage("a")], {"12": "RUNNING"}, fingerprints={"a": "new"})
    assert found.connections.ending["a"] == found.cancel == ("12",)
    assert found.done.active["a"] == frozenset()


def test_a_slice_whose_newest_job_was_refused_is_not_complete() -> None:
    again = intent(2, "a", None, refused="no such partition", base_attempts={0: 1})
    found = sorted_out([stage("a")], ends={"a": {0: DONE}}, intents=[intent(1, "a", "12"), again])
    assert found.done.completed["a"] == frozenset()
    assert found.cancel == ()


def test_a_job_that_was_never_found_is_neither_active_nor_in_the_way() -> None:
    found = sorted_out([stage("a")], intents=[intent(1, "a", None)])
    assert found.done.completed["a"] == found.done.active["a"] == frozenset()
    assert found.cancel == ()


def test_stranded_jobs_are_cancelled() -> None:
    found = sorted_out(
        [stage("a"), stage("b", a="afterok"), stage("c", b="afterok")],
        {"12": "FAILED", "13": f"PENDING:{NEVER}", "14": "PENDING:Dependency"},
        ends={"a": {0: FAILED}},
    )
    assert found.cancel == ("13", "14")
    assert all(ids == () for ids in found.connections.ending.values())


@pytest.mark.parametrize("reason", ["JobHeldUser", "JobHeldAdmin", "PartitionTimeLimit"])
def test_a_held_job_is_cancelled_with_all_that_waits_for_it(
    reason: str,
) -> None:
    found = sorted_out(
        [stage("a", 2), stage("b", a="afterany")],
        {"12_0": "RUNNING", "12_1": f"PENDING:{reason}", "13": "PENDING:Dependency"},
    )
    assert found.cancel == ("12_1", "13")
    assert found.done.active["a"] == {0}
    assert found.superseded == {"t1": {1}, "t2": {0}}


def test_no_id_is_cancelled_of_a_stranded_job_that_slurm_has_forgotten() -> None:
    """So it is without accounts; the id may be a stranger's by now."""
    found = sorted_out(
        [stage("a"), stage("b", a="afterok"), stage("c", 2, b="afterok")],
        {"12": "FAILED", "14_1": "PENDING:Dependency"},
        ends={"a": {0: FAILED}},
    )
    assert found.cancel == ("14_1",)
    assert found.superseded == {"t2": {0}, "t3": {0, 1}}


def test_void_slices_run_again_whether_complete_or_running() -> None:
    void = {"a": frozenset({0, 2})}
    found = sorted_out(
        [stage("a", 4)],
        {"12_2": "RUNNING", "12_3": "RUNNING"},
        ends={"a": {0: DONE, 1: DONE}},
        void=void,
    )
    assert found.done.completed["a"] == {1}
    assert found.done.active["a"] == {3}
    assert found.cancel == found.connections.ending["a"] == ("12_2",)


def test_an_element_that_runs_several_slices_ends_with_all_of_them() -> None:
    found = sorted_out(
        [stage("a", 4)],
        intents=[intent(1, "a", "12", 4, slices_per_task=2)],
        states={"12_0": "RUNNING", "12_1": "RUNNING"},
        void={"a": frozenset({1})},
    )
    assert found.done.active["a"] == {2, 3}
    assert found.cancel == ("12_0",)


def test_an_element_with_a_failed_slice_is_cancelled_while_it_still_runs() -> None:
    """It will end as failed, so that nothing could come after it with afterok."""
    found = sorted_out(
        [stage("a", 4)],
        intents=[intent(1, "a", "12", 4, slices_per_task=4)],
        states={"12_0": "RUNNING"},
        ends={"a": {0: FAILED}},
        begun={"a": {1: 1}},
    )
    assert found.done.active["a"] == frozenset()
    assert found.cancel == found.connections.ending["a"] == ("12_0",)


def test_nothing_is_in_the_way_of_a_complete_run() -> None:
    found = sorted_out([stage("a"), stage("b", a="afterok")], ends={"a": {0: DONE}, "b": {0: DONE}})
    assert found.done.completed == {"a": {0}, "b": {0}}
    assert found.cancel == ()


@pytest.mark.parametrize(
    ("newer", "states"),
    [
        pytest.param({"job_id": None, "refused": "no such partition"}, {}, id="refused"),
        pytest.param(
            {"job_id": "13", "fingerprint": "g"}, {"13": "PENDING:Dependency"}, id="changed twice"
        ),
    ],
)
def test_an_older_job_that_still_runs_is_ended_and_waited_for(
    newer: dict[str, Any], states: dict[str, str]
) -> None:
    found = sorted_out(
        [stage("a")],
        {"12": "RUNNING", **states},
        intents=[intent(1, "a", "12"), intent(2, "a", **newer)],
        fingerprints={"a": "h"},
    )
    assert set(found.connections.ending["a"]) == set(found.cancel) == {"12", *states}


def test_children_of_a_stage_that_is_not_needed_are_left_alone() -> None:
    found = sorted_out(
        [stage("a"), stage("mend", a="afternotok"), stage("x", mend="afterany")],
        {"12": "COMPLETED", "13": "PENDING:DependencyNeverSatisfied", "14": "RUNNING"},
        {"a": {0: DONE}},
    )
    assert tuple(found.connections.active["x"]) == ("14",)
    assert "14" not in found.cancel


@pytest.mark.parametrize(
    ("packed", "going"),
    [(None, {0, 1, 2}), (2, set())],  # packed: the job was given afterok on all of `a`
)
def test_slices_of_a_job_that_waits_for_all_are_replaced_if_one_runs_again(
    packed: int | None, going: set[int]
) -> None:
    states = {f"12_{i}": "RUNNING" for i in range(3)} | {"12_3": "FAILED"}
    elements = range(4) if packed is None else range(2)
    states |= {f"13_{i}": "PENDING:Dependency" for i in elements}
    found = sorted_out(
        [stage("a", 4), stage("b", 4, a="aftercorr")],
        states,
        intents=[intent(1, "a", "12", 4), intent(2, "b", "13", 4, slices_per_task=packed)],
        ends={"a": {3: FAILED}},
    )
    assert found.done.active["a"] == {0, 1, 2}
    assert found.done.active["b"] == going


def test_slices_at_work_go_on_though_a_parents_slice_is_made_again() -> None:
    states = {f"13_{i}": "RUNNING" for i in (1, 2, 3)}
    found = sorted_out(
        [stage("a", 4), stage("b", 4, a="aftercorr")],
        intents=[
            intent(1, "a", "10", 4),
            intent(2, "a", "11", 4, slices=(2,), base_attempts={2: 1}),
            intent(3, "b", "13", 4),
        ],
        states=states,
        ends={"a": {0: DONE, 1: DONE, 2: {1: "failed", 2: "completed"}, 3: DONE}, "b": {0: DONE}},
        void={"a": frozenset({2})},
        begun={"b": {1: 1, 2: 1, 3: 1}},
    )
    assert found.done.active["b"] == {1, 3}
    assert found.cancel == ("13_2",)


MENDING = [stage("q"), stage("p", q="afternotok"), stage("c", p="afterany")]


def test_work_after_an_unneeded_stage_is_outdated_if_its_parent_reran() -> None:
    """`q` failed, `p` and `c` ran; a resume was killed after it had submitted `q` alone."""
    ends = {"q": {0: {1: "failed", 2: "completed"}}, "p": {0: DONE}, "c": {0: DONE}}
    again = intent(10, "q", "15", base_attempts={0: 1})
    found = sorted_out(MENDING, ends=ends, intents=[*submitted(MENDING), again])  # type: ignore[arg-type]
    assert found.done.completed == {"q": {0}, "p": set(), "c": set()}


def test_jobs_after_an_unneeded_stage_are_cancelled_if_its_parent_reruns() -> None:
    states = {"13": "CANCELLED", "14": "RUNNING"}
    void = {"q": frozenset({0})}
    assert sorted_out(MENDING, states, {"q": {0: DONE}}, void=void).cancel == ("14",)
    assert sorted_out(MENDING, states, {"q": {0: DONE}}).cancel == ()


def test_a_resume_goes_by_the_dependencies_as_they_are_now() -> None:
    """Slice 1 of both ran again under `aftercorr`; under `afterok` slice 0 is too old."""
    stages = [stage("p", 2), stage("c", 2, p="aftercorr")]
    again = {"slices": (1,), "is_array": True, "base_attempts": {1: 1}}
    intents = [*submitted(stages), intent(3, "p", "14", **again), intent(4, "c", "15", **again)]
    twice: Mapping[int, Outcome] = {1: "completed", 2: "completed"}
    ends = {"p": {0: DONE, 1: twice}, "c": {0: DONE, 1: twice}}
    assert sorted_out(stages, ends=ends, intents=intents).done.completed["c"] == {0, 1}
    afters = {"c": {"p": "afterok"}}
    found = sorted_out(stages, ends=ends, intents=intents, afters=afters)
    assert found.done.completed["c"] == {1}


@pytest.mark.parametrize(
    ("more", "states", "num_running"),
    [
        ({}, {f"12_{i}": "RUNNING" for i in range(6)}, 6),  # an older version noted no throttle
        ({"max_running": 2}, {f"12_{i}": "PENDING" for i in range(6)}, 2),
        ({"max_running": 4}, {"12_0": "RUNNING"}, 1),
        ({"slices_per_task": 3}, {"12_0": "RUNNING", "12_1": "PENDING"}, 2),
    ],
)
def test_living_tasks_count_as_many_as_may_run_at_once(
    more: Mapping[str, Any], states: Mapping[str, str], num_running: int
) -> None:
    found = sorted_out([stage("a", 6)], states, intents=[intent(1, "a", "12", 6, **more)])
    assert found.done.num_running == {"a": num_running}


@given(
    sizes=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 6)), min_size=1, max_size=3),
    num_new=st.integers(1, 30),
    max_running=st.integers(1, 12),
    max_array_size=st.none() | st.integers(1, 40),
)
def test_old_and_new_arrays_together_keep_max_running(
    sizes: list[tuple[int, int]], num_new: int, max_running: int, max_array_size: int | None
) -> None:
    intents, states, first = [], {}, 0
    for number, (num_slices, throttle) in enumerate(sizes):
        slices = tuple(range(first, first + num_slices))
        job_id = str(20 + number)
        intents.append(
            intent(number, "a", job_id, slices=slices, is_array=True, max_running=throttle)
        )
        states |= {f"{job_id}_{i}": "RUNNING" for i in slices}
        first += num_slices
    found = sorted_out([stage("a", first + num_new)], states, intents=intents)
    array = {"num_slices": first + num_new, "max_running": max_running}
    spec = RunSpec.model_validate({"name": "n", "stages": {"a": {"shell": "x", "array": array}}})
    limits = ClusterLimits(max_array_size=max_array_size)
    plan = make_plan(spec, ClusterProfile(), done=found.done, limits=limits)
    new = [min(job.max_running or 0, job.num_tasks) for job in plan.jobs if not job.after_previous]
    if any(job.after_previous for job in plan.jobs):  # one array at a time
        new = [max(min(job.max_running or 0, job.num_tasks) for job in plan.jobs)]
    living = sum(min(num_slices, throttle) for num_slices, throttle in sizes)
    waits = {job.after_active for job in plan.jobs}
    assert waits == {living >= max_running}
    assert min(new) >= 1
    assert sum(new) + (0 if True in waits else living) <= max_running


def test_a_running_job_with_the_id_of_an_earlier_one_goes_on() -> None:
    """The controller lost its state, so that the resume's job has the id of the lost one."""
    lost = intent(1, "a", "12", 3, job_name="lost")
    found = sorted_out(
        [stage("a", 3)],
        {f"12_{index}": "RUNNING" for index in range(3)},
        intents=[lost, intent(2, "a", "12", 3)],
    )
    assert found.cancel == found.connections.ending["a"] == ()
    assert found.done.active["a"] == {0, 1, 2}


def test_a_job_of_another_stage_that_has_the_id_of_a_lost_one_stays() -> None:
    """A resume was killed after it had submitted `a` alone, under the id that `b` had."""
    found = sorted_out(
        [stage("a"), stage("b", a="afterok")],
        {"13": "RUNNING"},
        intents=[
            intent(1, "a", "12", job_name="lost-a"),
            intent(2, "b", "13", job_name="lost-b"),
            intent(3, "a", "13"),
        ],
    )
    assert found.cancel == ()
    assert tuple(found.connections.active["a"]) == ("13",)
    assert found.done.active["b"] == frozenset()
