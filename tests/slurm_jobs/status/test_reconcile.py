"""Status of a run from its stages, and what follows for stages after a failed or held one."""

import pytest

from slurm_jobs.status.reconcile import reconcile
from slurm_jobs.status.run_status import RunStatus
from tests.slurm_jobs.runs import (
    DONE,
    FAILED,
    NEVER,
    WAITS,
    answer,
    intent,
    run_records,
    stage,
    statuses,
)
from tests.slurm_jobs.runs import reconciled as run
from tests.slurm_jobs.status.stage_chain import CHAIN, PAIR

OVER_LIMIT = "PartitionTimeLimit: its time limit is longer than its partition allows"


@pytest.mark.parametrize(
    ("states", "done", "expected", "reasons"),
    [
        ({}, "abcr", "completed completed completed completed -> completed", {}),
        (
            {"a": "PENDING:Priority", "b": WAITS, "c": WAITS, "r": WAITS},
            "",
            "waiting waiting waiting waiting -> waiting",
            {},
        ),
        (
            {"a": "FAILED", "b": f"PENDING:{NEVER}", "c": WAITS},
            "r",
            "failed stranded stranded completed -> failed",
            {"c": "`a` failed"},
        ),
        (
            {"a": "FAILED", "b": "CANCELLED", "c": WAITS, "r": WAITS},
            "",
            "failed stranded stranded waiting -> waiting",
            {"c": "`a` failed"},
        ),
        (
            {"a": "FAILED", "b": f"PENDING:{NEVER}", "c": WAITS, "r": WAITS},
            "",
            "failed stranded stranded stranded -> failed",
            {"r": "`a` failed"},
        ),
        (
            {"a": "FAILED", "b": "CANCELLED", "c": "CANCELLED"},
            "r",
            "failed stranded stranded completed -> failed",
            {"c": "`a` failed"},
        ),
        ({"a": "FAILED"}, "r", "failed stranded stranded completed -> failed", {}),
        (
            {"c": "FAILED", "r": "RUNNING"},
            "ab",
            "completed completed failed running -> running",
            {},
        ),
        *(
            (
                {"b": said, "c": WAITS, "r": WAITS},
                "a",
                "completed stranded stranded stranded -> stranded",
                {"b": own, "c": f"`b` {of_others}{own}", "r": f"`b` {of_others}{own}"},
            )
            for said, own, of_others in (
                ("PENDING:JobHeldUser", "held (JobHeldUser)", "is "),
                (
                    "REQUEUE_HOLD:job requeued in held state",
                    "held (job requeued in held state)",
                    "is ",
                ),
                ("PENDING:JobHeldAdmin", "held by an administrator (JobHeldAdmin)", "is "),
                ("PENDING:PartitionTimeLimit", f"can never start ({OVER_LIMIT})", ""),
            )
        ),
    ],
    ids=[
        "all complete",
        "all in the queue",
        "after a failure",
        "afterany of a removed job",
        "afterany of a job that stays for ever, as of earlier versions",
        "removed by the site",
        "removed, and no accounts remember it",
        "afterany of a failure",
        "held by its user",
        "requeued and held",
        "held by an administrator",
        "over a limit",
    ],
)
def test_a_chain_says_what_can_still_run_and_which_stage_stops_the_rest(
    states: dict[str, str], done: str, expected: str, reasons: dict[str, str]
) -> None:
    found = run(CHAIN, states, done)
    assert statuses(found) == expected
    assert {name: found.stage(name).reason for name in reasons} == reasons


def test_what_comes_after_a_held_and_a_failed_element_never_starts() -> None:
    """Else it would wait for ever: `afterany` is not met before the held one has run."""
    states = {"a_0": "PENDING:JobHeldUser", "a_1": "FAILED", "b": WAITS}
    found = run([stage("a", 2), stage("b", a="afterany")], states)
    assert statuses(found) == "failed stranded -> failed"
    assert found.stage("b").reason == "`a` is held (JobHeldUser)"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("NODE_FAIL", ("stranded", "unmet", NEVER)),
        ("COMPLETED", ("cancelled", "", "cancelled by scancel")),
    ],
)
def test_a_job_cancelled_after_a_complete_parent_is_stranded(
    state: str, expected: tuple[str, str, str]
) -> None:
    (part,) = run(PAIR, {"a": state, "b": "CANCELLED"}, "a").stage("b").slices
    assert (part.status, part.wait, part.reason[: len(expected[2])]) == expected


@pytest.mark.parametrize(
    ("parents_job", "expected"),
    [(1, ("cancelled", "cancelled by scancel")), (3, ("stranded", NEVER))],
)
def test_a_parent_job_of_an_earlier_command_strands_no_stage(
    parents_job: int, expected: tuple[str, str]
) -> None:
    """`b` was submitted as 2 and, by a resume, as 4, which waits for jobs of that resume too."""
    jobs = [intent(1, "a", "1"), intent(2, "b", "2"), intent(4, "b", "4")]
    if parents_job == 3:
        jobs.insert(2, intent(3, "a", "3"))
    states = {str(parents_job): "NODE_FAIL", "4": "CANCELLED"}
    found = run(PAIR, states, "a", intents=jobs, source="sacct")
    (part,) = found.stage("b").slices
    assert found.stage("a").status == "completed"
    assert (part.status, part.reason[: len(expected[1])]) == expected


@pytest.mark.parametrize(
    ("last", "states", "done", "expected"),
    [
        ({}, {"mend": f"PENDING:{NEVER}"}, ["a"], "completed stranded -> completed"),
        ({}, {"mend": "CANCELLED"}, ["a"], "completed stranded -> completed"),
        (
            {"mend": "afterany", "a": "afterany"},
            {"mend": "CANCELLED", "last": "PENDING:Priority"},
            ["a"],
            "completed stranded waiting -> waiting",
        ),
        (
            {"mend": "afterany", "a": "afterany"},
            {"mend": "CANCELLED"},
            ["a", "last"],
            "completed stranded completed -> completed",
        ),
    ],
)
def test_afternotok_of_a_complete_stage_is_not_needed(
    last: dict[str, str], states: dict[str, str], done: list[str], expected: str
) -> None:
    stages = [stage("a"), stage("mend", a="afternotok"), *([stage("last", **last)] if last else [])]
    found = run(stages, states, done)
    assert statuses(found) == expected
    assert found.stage("mend").reason == "not needed: `a` completed"


def test_a_child_of_an_array_with_a_failed_slice_is_stranded_at_once() -> None:
    states = {"a_0": "FAILED", "a_1": "RUNNING", "b": "PENDING"}
    found = run([stage("a", 2), stage("b", a="afterok")], states)
    assert statuses(found) == "running stranded -> running"
    assert found.stage("b").reason == "`a` has slices that failed or were cancelled"


def slice_by_slice(**states: str) -> RunStatus:
    """a -> b -> c, two slices each, `aftercorr`; what is not said is complete."""
    stages = [stage("a", 2), stage("b", 2, a="aftercorr"), stage("c", 2, b="aftercorr")]
    ends = {name: {i: DONE for i in (0, 1) if f"{name}_{i}" not in states} for name in "abc"}
    return run(stages, states, ends=ends)


@pytest.mark.parametrize("ended", ["CANCELLED", "COMPLETED"])
def test_an_array_of_which_elements_still_wait_is_not_over(ended: str) -> None:
    found = slice_by_slice(
        a_0=ended, a_1="PENDING:Priority", b_0=WAITS, b_1=WAITS, c_0=WAITS, c_1=WAITS
    )
    assert (found.stage("a").status, found.status) == ("waiting", "waiting")


def test_a_failed_slice_strands_only_its_counterparts_and_is_the_root() -> None:
    found = slice_by_slice(a_1="FAILED", b_1=f"PENDING:{NEVER}", c_1=WAITS)
    assert statuses(found) == "failed stranded stranded -> failed"
    assert found.stage("c").counts == {"completed": 1, "stranded": 1}
    assert found.stage("c").reason == found.stage("b").reason == "`a` slice 1 failed"


def test_slices_that_waited_for_all_of_another_stage_are_stranded_with_it() -> None:
    """`aftercorr` of arrays whose elements do not correspond."""
    gone = {f"{name}_{i}": "CANCELLED" for name in "bc" for i in (0, 1)}
    found = slice_by_slice(a_1="FAILED", **gone)
    assert statuses(found) == "failed stranded stranded -> failed"
    assert found.stage("b").counts == {"stranded": 2}
    assert found.stage("b").slices[0].reason == "`a` has slices that failed or were cancelled"


def test_a_stage_with_a_stranded_slice_waits_while_another_can_start() -> None:
    found = slice_by_slice(
        a_1="FAILED", b_0="PENDING:Priority", b_1=f"PENDING:{NEVER}", c_0=WAITS, c_1=WAITS
    )
    assert statuses(found) == "failed waiting waiting -> waiting"
    assert found.stage("b").counts == {"waiting": 1, "stranded": 1}


def test_without_the_list_of_live_jobs_unknown_outweighs_failed() -> None:
    stages, ends = [stage("a"), stage("b")], {"a": {0: FAILED}}
    assert run(stages, {}, ends=ends).status == "failed"
    assert run(stages, {}, ends=ends, knows_the_living=False).status == "unknown"


def test_what_no_source_knows_is_unknown() -> None:
    assert run([stage("a")], {}).status == "unknown"


def test_a_stage_whose_lost_jobs_id_another_stage_has_now_is_not_running() -> None:
    lost = intent(1, "b", "12", job_name="lost")
    status = reconcile(
        run_records([stage("a"), stage("b")], [lost, intent(2, "a", "12")]),
        answer({"12": "RUNNING"}),
    )
    assert [each.status for each in status.stages] == ["running", "unknown"]
