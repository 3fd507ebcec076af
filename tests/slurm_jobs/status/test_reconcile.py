from collections.abc import Mapping

import pytest

from slurm_jobs.formats.records.attempt_records import CompletionName, Outcome, TaskAccounting
from slurm_jobs.run_folder.ledger import Intent
from slurm_jobs.run_folder.run_values import RunRecords, StageRecords
from slurm_jobs.schedulers.protocol import Answer, SourceProblem
from slurm_jobs.status.reconcile import reconcile
from slurm_jobs.status.run_status import RunStatus
from slurm_jobs.status.slice_status import SliceStatus, completed_slices, slice_status
from tests.slurm_jobs.runs import (
    DONE,
    FAILED,
    META,
    NEVER,
    WAITS,
    answer,
    intent,
    job,
    run_records,
    stage,
    statuses,
)
from tests.slurm_jobs.runs import reconciled as run

JOB = intent(1, "s", "12")


def records(
    attempts: tuple[int, ...] = (), outcomes: Mapping[int, Outcome] | None = None
) -> StageRecords:
    """Of slice 0, by `JOB`."""
    endings = {a: CompletionName(0, a, JOB.token, word) for a, word in (outcomes or {}).items()}
    return StageRecords(attempts={0: attempts}, endings={0: endings})


def sacct(said: str) -> Answer:
    return answer({"12": said}, "sacct")


def status(
    found: Intent | None = JOB, known: StageRecords | None = None, said: Answer | None = None
) -> SliceStatus:
    return slice_status(0, found, known or records(), said or Answer())


@pytest.mark.parametrize(
    ("attempts", "outcomes", "state", "expected"),
    [
        # The record proves; the scheduler's word does not.
        ((1,), {1: "completed"}, None, ("completed", "record")),
        ((1,), {1: "completed"}, "COMPLETED", ("completed", "record")),
        ((1,), {1: "completed"}, "NODE_FAIL", ("completed", "record")),
        ((1,), {1: "completed"}, "RUNNING", ("completed", "record")),
        ((1,), {}, "COMPLETED", ("unknown", "sacct")),
        ((), {}, "COMPLETED", ("unknown", "sacct")),
        # What still lives.
        ((), {}, "PENDING", ("waiting", "sacct")),
        ((1,), {}, "RUNNING", ("running", "sacct")),
        ((1, 2), {1: "failed"}, "RUNNING", ("running", "sacct")),
        ((1,), {1: "failed"}, "COMPLETING", ("failed", "record")),
        ((1,), {1: "stopped"}, "PENDING", ("waiting", "sacct")),
        ((1,), {}, "REQUEUED", ("waiting", "sacct")),
        # What failed, with and without a record.
        ((1,), {1: "failed"}, "FAILED", ("failed", "sacct")),
        ((1,), {1: "failed"}, None, ("failed", "record")),
        ((1,), {}, "NODE_FAIL", ("failed", "sacct")),
        ((1,), {}, "TIMEOUT", ("failed", "sacct")),
        ((1,), {}, "OUT_OF_MEMORY", ("failed", "sacct")),
        ((), {}, "FAILED", ("failed", "sacct")),
        ((1, 2), {1: "failed", 2: "completed"}, "COMPLETED", ("completed", "record")),
        ((1,), {1: "failed"}, "CANCELLED", ("cancelled", "sacct")),
        # Silence proves nothing.
        ((), {}, None, ("unknown", "ledger")),
        ((1,), {}, None, ("unknown", "record")),
        ((1, 2), {1: "failed"}, None, ("unknown", "record")),
    ],
)
def test_a_slice_has_the_status_that_its_sources_prove(
    attempts: tuple[int, ...],
    outcomes: dict[int, Outcome],
    state: str | None,
    expected: tuple[str, str],
) -> None:
    found = status(JOB, records(attempts, outcomes), sacct(state) if state else None)
    assert (found.status, found.source) == expected


@pytest.mark.parametrize("refused", [None, "no such account"])
def test_what_was_not_submitted_is_stranded_unless_a_command_is_at_it(refused: str | None) -> None:
    job = None if refused is None else intent(1, "s", None, refused=refused)
    found = status(job)
    assert (found.status, found.source) == ("stranded", "ledger")
    assert "resume" in found.reason
    assert (refused or "") in found.reason
    now = slice_status(0, job, records(), Answer(), is_submitting=True)
    assert (now.status, now.reason) == ("waiting", "not submitted yet")


def test_the_reason_why_a_local_task_did_not_start_is_kept_after_a_stop() -> None:
    said = answer({"12": "FAILED:no such folder"}, "local")
    for known in (records(), records((1,), {1: "stopped"})):
        found = status(JOB, known, said)
        assert (found.status, found.reason) == ("failed", "no such folder")
    own = status(JOB, records((1,), {1: "failed"}), said)
    assert own.ending is not None  # it tells of its own failure


@pytest.mark.parametrize(
    ("job_id", "is_submitting", "expected", "words"),
    [(None, True, "waiting", "being submitted"), (None, False, "unknown", "`resume` looks for")],
)
def test_a_job_without_an_id_is_being_submitted_or_was_cut_off(
    job_id: str | None, expected: str, words: str, *, is_submitting: bool
) -> None:
    job = intent(1, "s", job_id)
    found = slice_status(0, job, records(), Answer(), is_submitting=is_submitting)
    assert found.status == expected
    assert words in found.reason


@pytest.mark.parametrize(
    ("attempts", "said", "is_told"),
    [
        ((), Answer(), True),
        ((1,), Answer(), False),
        ((), Answer(problems=(SourceProblem("sacct", "no answer"),)), False),
        ((), Answer(lagging={job("12"): "PENDING"}), False),
    ],
)
def test_an_unknown_task_that_never_started_may_have_been_cancelled(
    attempts: tuple[int, ...], said: Answer, *, is_told: bool
) -> None:
    reason = status(JOB, records(attempts), said).reason
    assert ("cancelled while it waited looks like this); `resume` runs it" in reason) is is_told


def test_a_cancelled_intent_is_cancelled_when_slurm_is_silent() -> None:
    found = status(intent(1, "s", "12", cancelled_slices=frozenset({0})))
    assert (found.status, found.source) == ("cancelled", "ledger")


@pytest.mark.parametrize(
    "old",
    [
        records((1, 2), {2: "completed"}),
        # A superseded job that came late: its attempt has a number above all that were known.
        records((1, 2, 3), {3: "completed"}),
    ],
)
def test_records_of_earlier_intents_prove_nothing_of_this_one(old: StageRecords) -> None:
    again = intent(2, "s", "12", base_attempts={0: 2})
    assert status(again, old, sacct("PENDING")).status == "waiting"
    assert completed_slices(old, {0: again}) == frozenset()
    assert completed_slices(old, {0: JOB}) == {0}


def test_an_array_task_is_looked_up_under_its_own_id() -> None:
    job, said = intent(1, "s", "12", 2), answer({"12_0": "RUNNING"})
    found = [slice_status(index, job, records(), said).status for index in (0, 1)]
    assert found == ["running", "unknown"]


def test_what_only_a_lagging_sacct_takes_for_alive_is_unknown_and_says_so() -> None:
    said = Answer(lagging={job("12"): "RUNNING"})
    never_began = status(JOB, records(), said)
    assert (never_began.status, never_began.source) == ("unknown", "ledger")
    assert "it still says RUNNING" in never_began.reason
    began = status(JOB, records((1,)), said)
    assert (began.status, began.source) == ("unknown", "record")
    assert status(JOB, records((1,), {1: "failed"}), said).status == "failed"
    assert status(JOB, records((1,), {1: "completed"}), said).status == "completed"


def test_the_reason_of_an_unknown_status_names_the_command_that_failed() -> None:
    said = Answer(problems=(SourceProblem("sacct", "Connection refused"),))
    assert "sacct could not be queried" in status(JOB, records(), said).reason


def test_a_job_that_ended_well_before_its_supervisor_names_the_set_up() -> None:
    part = status(JOB, records(), sacct("COMPLETED"))
    assert (part.status, "a line of `setup:` has ended the job" in part.reason) == ("unknown", True)
    assert "setup" not in status(JOB, records((1,)), sacct("COMPLETED")).reason


def test_a_job_killed_before_its_supervisor_does_not_blame_the_set_up() -> None:
    killed = TaskAccounting(
        job_id="12", job_name=JOB.job_name, state="FAILED", source="sacct", signal=9
    )
    part = status(said=Answer(tasks={killed.key: killed}))
    assert part.reason == "FAILED by SIGKILL before its supervisor started; see its log"


def test_one_of_several_partitions_that_refuses_a_job_strands_nothing() -> None:
    said = answer({"12": "PENDING:PartitionTimeLimit"})
    for several, expected in ((True, "waiting"), (False, "stranded")):
        part = slice_status(0, JOB, records(), said, several_partitions=several)
        assert part.status == expected


CHAIN = [stage("a"), stage("b", a="afterok"), stage("c", b="afterok"), stage("r", c="afterany")]
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


def test_a_job_that_was_removed_may_not_live() -> None:
    found = run(CHAIN, {"a": "FAILED", "b": "CANCELLED", "c": "CANCELLED"})
    assert not any(part.may_live for part in found.stage("c").slices)


def test_a_job_that_no_source_can_be_asked_about_was_not_removed() -> None:
    silent = {"problems": (SourceProblem("squeue", "down"),), "knows_the_living": False}
    assert run(CHAIN, {"a": "FAILED"}, "r", **silent).stage("b").status == "unknown"


def test_a_reason_that_only_an_administrator_can_end_is_explained() -> None:
    reason = "ReqNodeNotAvail, UnavailableNodes:n[1-3]"
    (part,) = run([stage("a")], {"a": f"PENDING:{reason}"}).stage("a").slices
    assert (part.status, part.wait) == ("waiting", "blocked")
    assert part.reason == f"{reason}: the nodes that it needs are down or drained"


def test_accounting_which_keeps_the_reason_of_the_submission_holds_nothing() -> None:
    found = run([stage("a")], {"a": "PENDING:JobHeldUser"}, source="sacct")
    assert statuses(found) == "waiting -> waiting"


def test_what_comes_after_a_held_and_a_failed_element_never_starts() -> None:
    """Else it would wait for ever: `afterany` is not met before the held one has run."""
    states = {"a_0": "PENDING:JobHeldUser", "a_1": "FAILED", "b": WAITS}
    found = run([stage("a", 2), stage("b", a="afterany")], states)
    assert statuses(found) == "failed stranded -> failed"
    assert found.stage("b").reason == "`a` is held (JobHeldUser)"


PAIR = [stage("a"), stage("b", a="afterok")]


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


def test_a_job_cancelled_by_scancel_is_cancelled_with_that_reason() -> None:
    found = run(CHAIN, {"a": "CANCELLED"})
    assert found.stage("a").slices[0].reason.startswith("cancelled by scancel")


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


def test_a_stage_names_the_sources_of_what_decides_its_status() -> None:
    found = run(PAIR, {"b": "RUNNING"}, "a")
    assert (found.stage("a").sources, found.stage("b").sources) == (("record",), ("squeue",))


def test_problems_and_notes_are_passed_on_and_only_queries_have_an_age() -> None:
    said = Answer(
        problems=(SourceProblem("sacct", "down"),), notes=("no accounts",), asked_unix_s=7.0
    )
    found = reconcile(RunRecords(meta=META, stages=(), intents=(), records={}), said)
    assert (found.problems, found.notes) == (("sacct: down",), ("no accounts",))
    assert found.query_time_of(["record", "sacct"]) == 7.0
    assert found.query_time_of(["record", "ledger"]) is None


def test_a_stage_whose_lost_jobs_id_another_stage_has_now_is_not_running() -> None:
    lost = intent(1, "b", "12", job_name="lost")
    status = reconcile(
        run_records([stage("a"), stage("b")], [lost, intent(2, "a", "12")]),
        answer({"12": "RUNNING"}),
    )
    assert [each.status for each in status.stages] == ["running", "unknown"]
