from collections.abc import Mapping

import pytest

from slurm_jobs.common.records import Outcome, TaskAccounting
from slurm_jobs.reconcile import RunStatus, SliceStatus, completed_slices, reconcile, slice_status
from slurm_jobs.run.intents import Intent
from slurm_jobs.run.model import RunMeta, RunRecords, StageRecords, StageSummary
from slurm_jobs.schedulers.protocol import Answer

NEVER = "DependencyNeverSatisfied"


def intent(stage: str = "s", **values: object) -> Intent:
    known: dict[str, object] = {
        "number": 1,
        "token": f"t-{stage}",
        "stage": stage,
        "slices": (0,),
        "is_array": False,
        "fingerprint": "f",
        "job_name": "n",
        "time_unix_s": 0.0,
        "job_id": "12",
    }
    return Intent(**{**known, **values})  # type: ignore[arg-type]


def records(
    attempts: tuple[int, ...] = (), outcomes: Mapping[int, Outcome] | None = None
) -> StageRecords:
    return StageRecords(attempts={0: attempts}, outcomes={0: outcomes or {}})


def answer(state: str | None, reason: str = "", source: str = "sacct", job: str = "12") -> Answer:
    if state is None:
        return Answer()
    task = TaskAccounting(job_id=job, state=state, source=source, reason=reason)
    return Answer(tasks={job: task})


def status(
    found: Intent | None, known: StageRecords, said: Answer | None = None
) -> tuple[str, str]:
    result: SliceStatus = slice_status(0, found, known, said or Answer())
    return result.status, result.source


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
    assert status(intent(), records(attempts, outcomes), answer(state)) == expected


def test_what_was_never_submitted_waits() -> None:
    assert status(None, records()) == ("waiting", "ledger")


def test_a_dependency_that_can_never_be_met_strands() -> None:
    said = answer("PENDING", NEVER, "squeue")
    assert status(intent(), records(), said) == ("stranded", "squeue")


def test_a_submission_that_was_cut_off_is_unknown_and_names_the_remedy() -> None:
    found = slice_status(0, intent(job_id=None), records(), Answer())
    assert found.status == "unknown"
    assert "resume" in found.reason


def test_a_cancelled_intent_is_cancelled_when_slurm_is_silent() -> None:
    assert status(intent(cancelled=True), records()) == ("cancelled", "ledger")


def test_records_of_earlier_intents_prove_nothing_of_this_one() -> None:
    again = intent(base_attempts={0: 2})
    assert status(again, records((1, 2), {2: "completed"}), answer("PENDING")) == (
        "waiting",
        "sacct",
    )
    assert completed_slices(records((1, 2), {2: "completed"}), {0: again}) == frozenset()
    done = records((1, 2, 3), {2: "failed", 3: "completed"})
    assert completed_slices(done, {0: again}) == {0}


def test_an_array_task_is_looked_up_under_its_own_id() -> None:
    found = intent(is_array=True, slices=(0, 1))
    said = answer("RUNNING", job="12_0")
    assert slice_status(0, found, records(), said).status == "running"
    assert slice_status(1, found, records(), said).status == "unknown"


def run(
    stages: Mapping[str, Mapping[str, str]], said: Mapping[str, tuple[str, str]], done: set[str]
) -> RunStatus:
    """A run of plain stages; job ids are the stages' names."""
    summaries = tuple(
        StageSummary(
            name=name,
            run="x",
            num_slices=1,
            is_array=False,
            retries=0,
            fingerprint="f",
            after=after,
        )
        for name, after in stages.items()
    )
    meta = RunMeta(
        run_id="r", name="r", created_unix_s=0, submitted_by="u", host="h", scheduler="slurm",
        version="0", spec_file="s", max_cpus=None,
    )  # fmt: skip
    known = {n: records((1,), {1: "completed"}) if n in done else records() for n in stages}
    tasks = {
        name: TaskAccounting(job_id=name, state=state, source="squeue", reason=reason)
        for name, (state, reason) in said.items()
    }
    return reconcile(
        RunRecords(
            meta=meta,
            stages=summaries,
            intents=tuple(intent(name, job_id=name) for name in stages),
            records=known,
        ),
        Answer(tasks=tasks),
    )


CHAIN = {"a": {}, "b": {"a": "afterok"}, "c": {"b": "afterok"}, "r": {"c": "afterany"}}


def statuses(found: RunStatus) -> dict[str, str]:
    return {stage.stage.name: stage.status for stage in found.stages}


def test_a_run_is_completed_when_every_stage_is() -> None:
    found = run(CHAIN, {}, set(CHAIN))
    assert found.status == "completed"


def test_what_comes_after_a_failure_is_stranded_and_names_where_it_began() -> None:
    said = {"a": ("FAILED", ""), "b": ("PENDING", NEVER), "c": ("PENDING", "Dependency")}
    found = run(CHAIN, said | {"r": ("PENDING", "Dependency")}, set())
    assert statuses(found)["b"] == statuses(found)["c"] == "stranded"
    assert found.stage("c").reason == "`a` failed"
    assert found.status == "failed"


def test_a_stage_after_anything_still_runs_after_a_failure() -> None:
    said = {"c": ("FAILED", ""), "r": ("RUNNING", "")}
    found = run(CHAIN, said, {"a", "b"})
    assert statuses(found) == {"a": "completed", "b": "completed", "c": "failed", "r": "running"}
    assert found.status == "running"


def test_afternotok_of_a_complete_stage_does_not_spoil_the_run() -> None:
    stages = {"a": {}, "mend": {"a": "afternotok"}}
    found = run(stages, {"mend": ("PENDING", NEVER)}, {"a"})
    assert found.stage("mend").reason == "not needed: `a` completed"
    assert found.status == "completed"


def test_a_run_that_waits_is_no_failure() -> None:
    said = {"a": ("PENDING", "Priority"), "b": ("PENDING", "Dependency")}
    said |= {"c": ("PENDING", "Dependency"), "r": ("PENDING", "Dependency")}
    assert run(CHAIN, said, set()).status == "waiting"


def test_what_no_source_knows_is_unknown() -> None:
    assert run({"a": {}}, {}, set()).status == "unknown"


def test_problems_of_the_scheduler_are_passed_on() -> None:
    found = reconcile(
        RunRecords(
            meta=None,  # type: ignore[arg-type]
            stages=(),
            intents=(),
            records={},
        ),
        Answer(problems=("sacct: down",)),
    )
    assert found.problems == ("sacct: down",)
