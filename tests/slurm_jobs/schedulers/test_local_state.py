from collections.abc import Mapping, Sequence

import pytest

from slurm_jobs.schedulers.job_states import NEVER
from slurm_jobs.schedulers.local_state import (
    NO_ROOM,
    THROTTLED,
    WAITING,
    LocalJob,
    decide,
    dependency_reason,
    out_of_memory_reason,
)


def job(
    job_id: str,
    *,
    slices: int | None = None,
    after: Mapping[str, Sequence[str]] | None = None,
    max_running: int | None = None,
    num_cpus: int = 1,
) -> LocalJob:
    names = (job_id,) if slices is None else tuple(f"{job_id}_{i}" for i in range(slices))
    return LocalJob(
        job_id=job_id,
        token=f"t{job_id}",
        job_name=f"n{job_id}",
        task_ids=names,
        dependencies=after or {},
        max_running=max_running,
        num_cpus=num_cpus,
        submitted_unix_s=0.0,
    )


def started(jobs: Sequence[LocalJob], states: dict[str, str], max_cpus: int = 8) -> list[str]:
    known = {task: "PENDING" for entry in jobs for task in entry.task_ids} | states
    return [task for _, task in decide(jobs, known, max_cpus=max_cpus).start]


def reasons(jobs: Sequence[LocalJob], states: dict[str, str], max_cpus: int = 8) -> dict[str, str]:
    known = {task: "PENDING" for entry in jobs for task in entry.task_ids} | states
    found = decide(jobs, known, max_cpus=max_cpus)
    return dict(found.reasons) | dict.fromkeys(found.cancel, NEVER)


def test_an_array_runs_at_most_so_many_tasks_at_once() -> None:
    array = job("1", slices=5, max_running=2)
    assert started([array], {}) == ["1_0", "1_1"]
    assert started([array], {"1_0": "COMPLETED", "1_1": "RUNNING"}) == ["1_2"]
    assert reasons([array], {"1_0": "RUNNING", "1_1": "RUNNING"})["1_4"] == THROTTLED


def test_tasks_wait_for_room_and_older_jobs_come_first() -> None:
    jobs = [job("1", num_cpus=2), job("2", slices=3), job("3")]
    assert started(jobs, {}, max_cpus=4) == ["1", "2_0", "2_1"]
    assert reasons(jobs, {}, max_cpus=4) == {"2_2": NO_ROOM, "3": NO_ROOM}


def test_a_task_larger_than_the_machine_runs_alone() -> None:
    jobs = [job("1"), job("2", num_cpus=16)]
    assert started(jobs, {}, max_cpus=4) == ["1"]
    assert started(jobs, {"1": "COMPLETED"}, max_cpus=4) == ["2"]


@pytest.mark.parametrize(
    ("kind", "state", "expected"),
    [
        ("afterok", "PENDING", WAITING),
        ("afterok", "RUNNING", WAITING),
        ("afterok", "COMPLETED", None),
        ("afterok", "FAILED", NEVER),
        ("afterok", "CANCELLED", NEVER),
        ("afterok", "TIMEOUT", NEVER),
        ("afterany", "RUNNING", WAITING),
        ("afterany", "COMPLETED", None),
        ("afterany", "NODE_FAIL", None),
        ("afternotok", "RUNNING", WAITING),
        ("afternotok", "COMPLETED", NEVER),
        ("afternotok", "FAILED", None),
        ("afternotok", "OUT_OF_MEMORY", None),
    ],
)
def test_a_dependency_on_a_job_means_what_slurm_means(
    kind: str, state: str, expected: str | None
) -> None:
    child = job("2", after={kind: ["1"]})
    assert dependency_reason(child, {"1": ("1",)}, {"1": state}) == expected


def test_a_report_after_a_job_that_can_never_start_waits_for_all_work() -> None:
    jobs = [
        job("1", slices=2),
        job("2", after={"afterok": ["1"]}),
        job("3", after={"afterany": ["2"]}),
    ]
    early = {"1_0": "FAILED", "1_1": "RUNNING"}
    assert started(jobs, early) == []
    assert reasons(jobs, early) == {"2": WAITING, "3": WAITING}
    late = {"1_0": "FAILED", "1_1": "COMPLETED"}
    assert reasons(jobs, late) == {"2": NEVER, "3": WAITING}
    assert started(jobs, {**late, "2": "CANCELLED"}) == ["3"]


@pytest.mark.parametrize(
    ("kind", "states", "expected"),
    [
        ("afterok", ("COMPLETED", "COMPLETED"), None),
        ("afterok", ("COMPLETED", "RUNNING"), WAITING),
        ("afterok", ("FAILED", "RUNNING"), WAITING),
        ("afterany", ("FAILED", "COMPLETED"), None),
        ("afterany", ("FAILED", "PENDING"), WAITING),
        ("afternotok", ("FAILED", "RUNNING"), WAITING),
        ("afternotok", ("FAILED", "COMPLETED"), None),
        ("afternotok", ("COMPLETED", "COMPLETED"), NEVER),
    ],
)
def test_a_dependency_on_an_array_is_on_all_its_tasks(
    kind: str, states: tuple[str, str], expected: str | None
) -> None:
    child = job("2", after={kind: ["1"]})
    known = dict(zip(("1_0", "1_1"), states, strict=True))
    assert dependency_reason(child, {"1": ("1_0", "1_1")}, known) == expected


def test_a_dependency_on_one_element_waits_for_that_alone() -> None:
    child = job("2", after={"afterok": ["1_0"]})
    states = {"1_0": "COMPLETED", "1_1": "RUNNING"}
    assert dependency_reason(child, {"1": ("1_0", "1_1")}, states) is None


@pytest.mark.parametrize(
    ("parents", "expected"),
    [
        (("COMPLETED", "RUNNING"), {"2_1": WAITING}),
        (("FAILED", "COMPLETED"), {"2_0": NEVER}),
        (("COMPLETED", "COMPLETED"), {}),
        (("COMPLETED",), {"2_1": NEVER}),
    ],
)
def test_aftercorr_is_element_after_element(
    parents: tuple[str, ...], expected: dict[str, str]
) -> None:
    states = {f"1_{i}": state for i, state in enumerate(parents)}
    jobs = [job("1", slices=len(parents)), job("2", slices=2, after={"aftercorr": ["1"]})]
    assert reasons(jobs, states) == expected
    assert set(started(jobs, states)) == {"2_0", "2_1"} - set(expected)


@pytest.mark.parametrize(("kind", "state"), [("afternotok", "COMPLETED"), ("afterok", "FAILED")])
def test_what_can_never_start_ends_and_frees_what_comes_after(kind: str, state: str) -> None:
    jobs = [job("1"), job("2", after={kind: ["1"]}), job("3", after={"afterany": ["2"]})]
    states = {"1": state, "2": "PENDING", "3": "PENDING"}
    found = decide(jobs, states, max_cpus=4)
    assert (found.cancel, dict(found.reasons)) == (("2",), {"3": WAITING})
    freed = decide(jobs, {**states, "2": "CANCELLED"}, max_cpus=4)
    assert [task for _, task in freed.start] == ["3"]


def test_of_several_dependencies_each_must_be_met() -> None:
    members = {"1": ("1",), "2": ("2",)}
    child = job("3", after={"afternotok": ["1", "2"]})
    states = {"1": "FAILED", "2": "COMPLETED"}
    assert dependency_reason(child, members, states) == NEVER
    child = job("3", after={"afterany": ["1"], "afterok": ["2"]})
    assert dependency_reason(child, members, {"1": "FAILED", "2": "RUNNING"}) == WAITING
    assert dependency_reason(child, members, {"1": "RUNNING", "2": "FAILED"}) == NEVER


@pytest.mark.parametrize(("held_gb", "shown"), [(0.1001, "0.11"), (0.3, "0.30")])
def test_the_memory_shown_is_more_than_the_limit(held_gb: float, shown: str) -> None:
    reason = out_of_memory_reason(held_gb * 2**30, 0.1 * 2**30)
    assert f"held {shown} GB, and mem_gb allows 0.1;" in reason
