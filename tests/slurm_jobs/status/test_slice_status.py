"""Status of one slice, from its records and the scheduler's answer."""

from collections.abc import Mapping

import pytest

from slurm_jobs.formats.records.attempt_records import CompletionName, Outcome, TaskAccounting
from slurm_jobs.run_folder.ledger import Intent
from slurm_jobs.run_folder.run_values import StageRecords
from slurm_jobs.schedulers.protocol import Answer, SourceProblem
from slurm_jobs.status.slice_status import (
    UNRECORDED,
    SliceStatus,
    completed_slices,
    slice_status,
    unrecorded_text,
)
from tests.slurm_jobs.runs import answer, intent, job, stage, statuses
from tests.slurm_jobs.runs import reconciled as run
from tests.slurm_jobs.status.stage_chain import CHAIN

MIB = float(1 << 20)


def task(state: str = "FAILED", used: float | None = 900.0) -> TaskAccounting:
    return TaskAccounting(
        job_id="7",
        state=state,
        source="sacct",
        max_rss_bytes=None if used is None else used * MIB,
        requested_mem_bytes=512 * MIB,
    )


def test_a_task_over_its_memory_is_named_with_both_sizes() -> None:
    text = unrecorded_text(task())
    assert text.startswith("FAILED after it had used 900 MiB of the 512 MiB of memory")
    assert "resources.mem_gb" in text


@pytest.mark.parametrize("other", [task(used=100.0), task(used=None), task("NODE_FAIL")])
def test_other_ends_without_a_record_do_not_blame_memory(other: TaskAccounting) -> None:
    assert unrecorded_text(other) == f"{other.state} {UNRECORDED}"


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


def test_a_cancelled_task_that_still_runs_is_running_and_says_so() -> None:
    cancelled = intent(1, "s", "12", cancelled_slices=frozenset({0}))
    found = status(cancelled, records((1,)), sacct("RUNNING"))
    assert (found.status, found.cause) == ("running", "cancelled here")


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


def test_a_job_cancelled_by_scancel_is_cancelled_with_that_reason() -> None:
    found = run(CHAIN, {"a": "CANCELLED"})
    assert found.stage("a").slices[0].reason.startswith("cancelled by scancel")
