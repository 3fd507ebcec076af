from collections.abc import Mapping

import pytest

from slurm_jobs.run_folder.ledger import Intent
from slurm_jobs.run_folder.run_records import RunMeta, RunRecords, StageRecords, StageSummary
from slurm_jobs.schedulers.protocol import Answer
from slurm_jobs.shared.records import CompletionName, Outcome, TaskAccounting
from slurm_jobs.status import RunStatus, SliceStatus, completed_slices, reconcile, slice_status

NEVER = "DependencyNeverSatisfied"
META = RunMeta(
    run_id="r", name="r", created_unix_s=0, submitted_by="u", host="h", scheduler="slurm",
    version="0", spec_file="s", max_cpus=None,
)  # fmt: skip


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
    attempts: tuple[int, ...] = (),
    outcomes: Mapping[int, Outcome] | None = None,
    token: str = "t-s",
) -> StageRecords:
    endings = {a: CompletionName(0, a, token, word) for a, word in (outcomes or {}).items()}
    return StageRecords(attempts={0: attempts}, endings={0: endings})


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


@pytest.mark.parametrize("refused", [None, "no such account"])
def test_what_was_not_submitted_is_stranded_unless_a_command_is_at_it(refused: str | None) -> None:
    found = None if refused is None else intent(job_id=None, refused=refused)
    assert status(found, records()) == ("stranded", "ledger")
    said = slice_status(0, found, records(), Answer()).reason
    assert "resume" in said
    assert (refused or "") in said
    now = slice_status(0, found, records(), Answer(), is_submitting=True)
    assert (now.status, now.reason) == ("waiting", "not submitted yet")


def test_the_local_schedulers_reason_why_a_task_was_not_started_is_told_also_after_a_stop() -> None:
    said = answer("FAILED", "no such folder", "local")
    for known in (records(), records((1,), {1: "stopped"})):
        found = slice_status(0, intent(), known, said)
        assert (found.status, found.reason) == ("failed", "no such folder")
    own = slice_status(0, intent(), records((1,), {1: "failed"}), said)
    assert own.ending is not None  # it tells of its own failure


def test_what_is_being_submitted_waits() -> None:
    found = slice_status(0, intent(job_id=None), records(), Answer(), is_submitting=True)
    assert found.status == "waiting"


def test_a_dependency_that_can_never_be_met_strands() -> None:
    said = answer("PENDING", NEVER, "squeue")
    assert status(intent(), records(), said) == ("stranded", "squeue")


@pytest.mark.parametrize(
    ("attempts", "said", "is_told"),
    [
        ((), Answer(), True),
        ((1,), Answer(), False),
        ((), Answer(problems=("sacct: no answer",)), False),
        ((), Answer(lagging={"12": "PENDING"}), False),
    ],
)
def test_a_task_that_never_started_and_that_nobody_knows_may_have_been_cancelled_while_it_waited(
    attempts: tuple[int, ...], said: Answer, *, is_told: bool
) -> None:
    reason = slice_status(0, intent(), records(attempts), said).reason
    assert ("cancelled while it waited looks like this); `resume` runs it" in reason) is is_told


def test_a_submission_that_was_cut_off_is_unknown_and_names_the_remedy() -> None:
    found = slice_status(0, intent(job_id=None), records(), Answer())
    assert found.status == "unknown"
    assert "resume" in found.reason


def test_a_cancelled_intent_is_cancelled_when_slurm_is_silent() -> None:
    assert status(intent(cancelled_slices=frozenset({0})), records()) == ("cancelled", "ledger")


def test_records_of_earlier_intents_prove_nothing_of_this_one() -> None:
    again = intent(token="t-again", base_attempts={0: 2})
    old = records((1, 2), {2: "completed"})
    assert status(again, old, answer("PENDING")) == ("waiting", "sacct")
    assert completed_slices(old, {0: again}) == frozenset()
    # A superseded job that came late: its attempt has a number above all that were known.
    late = records((1, 2, 3), {3: "completed"})
    assert status(again, late, answer("PENDING")) == ("waiting", "sacct")
    assert completed_slices(late, {0: again}) == frozenset()
    assert completed_slices(late, {0: intent()}) == {0}


def test_an_array_task_is_looked_up_under_its_own_id() -> None:
    found = intent(is_array=True, slices=(0, 1))
    said = answer("RUNNING", job="12_0")
    assert slice_status(0, found, records(), said).status == "running"
    assert slice_status(1, found, records(), said).status == "unknown"


def run(
    stages: Mapping[str, Mapping[str, str]],
    said: Mapping[str, tuple[str, str]],
    done: set[str],
    *,
    problems: tuple[str, ...] = (),
    source: str = "squeue",
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
    known = {
        n: records((1,), {1: "completed"}, f"t-{n}") if n in done else records() for n in stages
    }
    tasks = {
        name: TaskAccounting(job_id=name, state=state, source=source, reason=reason)
        for name, (state, reason) in said.items()
    }
    return reconcile(
        RunRecords(
            meta=META,
            stages=summaries,
            intents=tuple(intent(name, job_id=name) for name in stages),
            records=known,
        ),
        Answer(tasks=tasks, problems=problems, knows_the_living=not problems),
    )


CHAIN = {"a": {}, "b": {"a": "afterok"}, "c": {"b": "afterok"}, "r": {"c": "afterany"}}


def statuses(found: RunStatus) -> dict[str, str]:
    return {stage.stage.name: stage.status for stage in found.stages}


def test_a_run_is_completed_when_every_stage_is() -> None:
    found = run(CHAIN, {}, set(CHAIN))
    assert found.status == "completed"


def test_what_comes_after_a_failure_is_stranded_and_names_where_it_began() -> None:
    said = {"a": ("FAILED", ""), "b": ("PENDING", NEVER), "c": ("PENDING", "Dependency")}
    found = run(CHAIN, said, {"r"})
    assert statuses(found)["b"] == statuses(found)["c"] == "stranded"
    assert found.stage("c").reason == "`a` failed"
    assert found.status == "failed"


def test_what_comes_afterany_of_a_stage_that_can_never_start_runs() -> None:
    said = {"a": ("FAILED", ""), "b": ("CANCELLED", ""), "c": ("PENDING", "Dependency")}
    found = run(CHAIN, said | {"r": ("PENDING", "Dependency")}, set())
    assert statuses(found) == {"a": "failed", "b": "stranded", "c": "stranded", "r": "waiting"}
    assert found.status == "waiting"


def test_what_comes_afterany_of_a_job_that_stays_in_the_queue_for_ever_never_runs() -> None:
    """So it is with jobs of earlier versions, which Slurm does not take away."""
    said = {"a": ("FAILED", ""), "b": ("PENDING", NEVER), "c": ("PENDING", "Dependency")}
    found = run(CHAIN, said | {"r": ("PENDING", "Dependency")}, set())
    assert statuses(found)["r"] == "stranded"
    assert (found.stage("r").reason, found.status) == ("`a` failed", "failed")


OVER_LIMIT = "PartitionTimeLimit: its time limit is longer than its partition allows"


@pytest.mark.parametrize(
    ("state", "reason", "own"),
    [
        ("PENDING", "JobHeldUser", "held (JobHeldUser)"),
        ("REQUEUE_HOLD", "job requeued in held state", "held (job requeued in held state)"),
        ("PENDING", "JobHeldAdmin", "held by an administrator (JobHeldAdmin)"),
        ("PENDING", "PartitionTimeLimit", f"can never start ({OVER_LIMIT})"),
    ],
)
def test_what_is_held_or_can_never_start_and_all_that_waits_for_it_is_stranded_and_says_why(
    state: str, reason: str, own: str
) -> None:
    said = {"b": (state, reason), "c": ("PENDING", "Dependency"), "r": ("PENDING", "Dependency")}
    found = run(CHAIN, said, {"a"})
    assert statuses(found) == {
        "a": "completed", "b": "stranded", "c": "stranded", "r": "stranded"
    }  # fmt: skip
    word = "is " if own.startswith("held") else ""
    assert [s.reason for s in found.stages] == ["", own, *[f"`b` {word}{own}"] * 2]
    assert found.status == "stranded"


def test_a_reason_that_only_an_administrator_ends_is_explained_and_the_job_still_waits() -> None:
    said = {"a": ("PENDING", "ReqNodeNotAvail, UnavailableNodes:n[1-3]")}
    part = run({"a": {}}, said, set()).stage("a").slices[0]
    assert (part.status, part.wait) == ("waiting", "blocked")
    assert part.reason == (
        "ReqNodeNotAvail, UnavailableNodes:n[1-3]: the nodes that it needs are down or drained"
    )


def test_accounting_which_keeps_the_reason_of_the_submission_holds_nothing() -> None:
    found = run({"a": {}}, {"a": ("PENDING", "JobHeldUser")}, set(), source="sacct")
    assert statuses(found) == {"a": "waiting"}


def test_of_several_partitions_one_that_does_not_take_a_job_strands_nothing() -> None:
    said = answer("PENDING", "PartitionTimeLimit", "squeue")
    for several, expected in ((True, "waiting"), (False, "stranded")):
        part = slice_status(0, intent(), records(), said, several_partitions=several)
        assert part.status == expected


def test_what_comes_after_a_job_with_a_held_element_and_a_failed_one_never_starts() -> None:
    """Else it would wait for ever: `afterany` is not met before the held one has run."""
    held = answer("PENDING", "JobHeldUser", "squeue", "12_0").tasks
    failed = answer("FAILED", "", "sacct", "12_1").tasks
    waits = answer("PENDING", "Dependency", "squeue", "13").tasks
    summary = {"run": "x", "retries": 0, "fingerprint": "f"}
    found = reconcile(
        RunRecords(
            meta=META,
            stages=(
                StageSummary(name="a", num_slices=2, is_array=True, after={}, **summary),  # type: ignore[arg-type]
                StageSummary(
                    name="b", num_slices=1, is_array=False, after={"a": "afterany"}, **summary
                ),  # type: ignore[arg-type]
            ),
            intents=(
                intent("a", slices=(0, 1), is_array=True),
                intent("b", number=2, job_id="13"),
            ),
            records={"a": StageRecords(attempts={}, endings={}), "b": records()},
        ),
        Answer(tasks={**held, **failed, **waits}),
    )
    assert statuses(found) == {"a": "failed", "b": "stranded"}
    assert found.stage("b").reason == "`a` is held (JobHeldUser)"


def test_what_was_taken_away_after_work_that_is_complete_by_its_records_is_stranded() -> None:
    said = {"a": ("NODE_FAIL", ""), "b": ("CANCELLED", "")}
    found = run({"a": {}, "b": {"a": "afterok"}}, said, {"a"})
    assert (statuses(found)["b"], found.stage("b").slices[0].reason) == ("stranded", NEVER)
    said["a"] = ("COMPLETED", "")
    found = run({"a": {}, "b": {"a": "afterok"}}, said, {"a"})
    assert statuses(found)["b"] == "cancelled"


@pytest.mark.parametrize(
    ("parents_job", "expected"),
    [(1, ("cancelled", "cancelled by scancel")), (3, ("stranded", NEVER))],
)
def test_a_parents_job_of_an_earlier_command_strands_nobody(
    parents_job: int, expected: tuple[str, str]
) -> None:
    """`b` was handed in as 2 and, by a resume, as 4, which waits for what that handed in too."""
    jobs = [
        intent("a", number=1, token="a1", job_id="1"),
        intent("b", number=2, token="b2", job_id="2"),
        intent("b", number=4, token="b4", job_id="4"),
    ]
    if parents_job == 3:
        jobs.insert(2, intent("a", number=3, token="a3", job_id="3"))
    parents_id = str(parents_job)
    known = {"a": records((1,), {1: "completed"}, f"a{parents_job}"), "b": records()}
    stages = tuple(
        StageSummary(
            name=name, run="x", num_slices=1, is_array=False, retries=0, fingerprint="f",
            after=after,
        )
        for name, after in {"a": {}, "b": {"a": "afterok"}}.items()
    )  # fmt: skip
    tasks = {
        job_id: TaskAccounting(job_id=job_id, state=state, source="sacct")
        for job_id, state in {parents_id: "NODE_FAIL", "4": "CANCELLED"}.items()
    }
    found = reconcile(
        RunRecords(meta=META, stages=stages, intents=tuple(jobs), records=known),
        Answer(tasks=tasks),
    )
    (part,) = found.stage("b").slices
    assert found.stage("a").status == "completed"
    assert (part.status, part.reason[: len(expected[1])]) == expected


def test_a_job_that_could_never_start_and_that_nobody_remembers_is_stranded() -> None:
    """So it is where Slurm has taken it away and keeps no accounts."""
    found = run(CHAIN, {"a": ("FAILED", "")}, {"r"})
    assert statuses(found) == {"a": "failed", "b": "stranded", "c": "stranded", "r": "completed"}
    silent = run(CHAIN, {"a": ("FAILED", "")}, {"r"}, problems=("squeue: down",))
    assert statuses(silent)["b"] == "unknown"


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


def test_what_comes_afterany_of_a_stage_that_is_not_needed_still_counts() -> None:
    stages = {"a": {}, "mend": {"a": "afternotok"}, "last": {"mend": "afterany", "a": "afterany"}}
    said = {"mend": ("CANCELLED", ""), "last": ("PENDING", "Priority")}
    found = run(stages, said, {"a"})
    assert (statuses(found)["mend"], statuses(found)["last"]) == ("stranded", "waiting")
    assert found.status == "waiting"
    assert run(stages, {"mend": ("CANCELLED", "")}, {"a", "last"}).status == "completed"


def test_a_run_that_waits_is_no_failure() -> None:
    said = {"a": ("PENDING", "Priority"), "b": ("PENDING", "Dependency")}
    said |= {"c": ("PENDING", "Dependency"), "r": ("PENDING", "Dependency")}
    assert run(CHAIN, said, set()).status == "waiting"


def test_a_child_of_an_array_with_a_failed_slice_is_stranded_while_the_array_still_runs() -> None:
    array = StageSummary(
        name="a", run="x", num_slices=2, is_array=True, retries=0, fingerprint="f", after={}
    )
    child = StageSummary(
        name="b", run="x", num_slices=1, is_array=False, retries=0, fingerprint="f",
        after={"a": "afterok"},
    )  # fmt: skip
    tasks = {
        job: TaskAccounting(job_id=job, state=state, source="squeue")
        for job, state in [("12_0", "FAILED"), ("12_1", "RUNNING"), ("13", "PENDING")]
    }
    found = reconcile(
        RunRecords(
            meta=META,
            stages=(array, child),
            intents=(
                intent("a", is_array=True, slices=(0, 1)),
                intent("b", job_id="13"),
            ),
            records={"a": records(), "b": records()},
        ),
        Answer(tasks=tasks),
    )
    assert (found.stage("a").status, found.stage("b").status) == ("running", "stranded")
    assert found.stage("b").reason == "`a` has slices that failed or were cancelled"


def test_a_job_that_the_site_cancelled_because_it_could_never_start_is_stranded() -> None:
    stages = {"a": {}, "mend": {"a": "afternotok"}}
    found = run(stages, {"mend": ("CANCELLED", "")}, {"a"})
    assert (statuses(found)["mend"], found.status) == ("stranded", "completed")
    said = {"a": ("FAILED", ""), "b": ("CANCELLED", ""), "c": ("CANCELLED", "")}
    found = run(CHAIN, said, set())
    assert found.stage("c").reason == "`a` failed"
    assert not any(part.may_live for part in found.stage("c").slices)


def test_a_job_that_somebody_cancelled_by_hand_is_cancelled_and_says_so() -> None:
    found = run(CHAIN, {"a": ("CANCELLED", "")}, set())
    assert found.stage("a").slices[0].reason.startswith("cancelled by scancel")


@pytest.mark.parametrize("ended", ["CANCELLED", "COMPLETED"])
def test_an_array_of_which_elements_still_wait_is_not_over(ended: str) -> None:
    found = slice_by_slice(
        ("a_0", ended, ""),
        ("a_1", "PENDING", "Priority"),
        *((f"{name}_{i}", "PENDING", "Dependency") for name in "bc" for i in (0, 1)),
    )
    assert (statuses(found)["a"], found.status) == ("waiting", "waiting")


def slice_by_slice(*said: tuple[str, str, str]) -> RunStatus:
    """a -> b -> c, two slices each, `aftercorr`; what is not said is complete."""
    before = {"a": {}, "b": {"a": "aftercorr"}, "c": {"b": "aftercorr"}}
    stages = tuple(
        StageSummary(
            name=name, run="x", num_slices=2, is_array=True, retries=0, fingerprint="f", after=after
        )
        for name, after in before.items()
    )  # fmt: skip
    tasks = {
        job: TaskAccounting(job_id=job, state=state, source="squeue", reason=reason)
        for job, state, reason in said
    }
    known = {
        name: StageRecords(
            attempts={i: (1,) for i in (0, 1) if f"{name}_{i}" not in tasks},
            endings={
                i: {1: CompletionName(i, 1, f"t-{name}", "completed")}
                for i in (0, 1)
                if f"{name}_{i}" not in tasks
            },
        )
        for name in before
    }
    jobs = tuple(intent(name, job_id=name, slices=(0, 1), is_array=True) for name in before)
    return reconcile(
        RunRecords(meta=META, stages=stages, intents=jobs, records=known), Answer(tasks=tasks)
    )


def test_a_failed_slice_strands_its_like_alone_and_is_named_as_the_root() -> None:
    found = slice_by_slice(
        ("a_1", "FAILED", ""), ("b_1", "PENDING", NEVER), ("c_1", "PENDING", "Dependency")
    )
    assert statuses(found) == {"a": "failed", "b": "stranded", "c": "stranded"}
    assert found.stage("c").counts == {"completed": 1, "stranded": 1}
    assert found.stage("c").reason == found.stage("b").reason == "`a` slice 1 failed"
    assert found.status == "failed"


def test_slices_that_waited_for_all_of_the_other_stage_are_stranded_with_it() -> None:
    """`aftercorr` of arrays that do not stand side by side."""
    gone = [(f"{name}_{i}", "CANCELLED", "") for name in "bc" for i in (0, 1)]
    found = slice_by_slice(("a_1", "FAILED", ""), *gone)
    assert statuses(found) == {"a": "failed", "b": "stranded", "c": "stranded"}
    assert found.stage("b").counts == {"stranded": 2}
    assert found.stage("b").slices[0].reason == "`a` has slices that failed or were cancelled"


def test_a_stage_with_a_stranded_slice_waits_while_another_can_start() -> None:
    found = slice_by_slice(
        ("a_1", "FAILED", ""),
        ("b_0", "PENDING", "Priority"),
        ("b_1", "PENDING", NEVER),
        ("c_0", "PENDING", "Dependency"),
        ("c_1", "PENDING", "Dependency"),
    )
    assert statuses(found) == {"a": "failed", "b": "waiting", "c": "waiting"}
    assert found.stage("b").counts == {"waiting": 1, "stranded": 1}
    assert found.status == "waiting"


def test_while_nobody_says_what_lives_unknown_outweighs_failed() -> None:
    known = {"a": records((1,), {1: "failed"}, "t-a"), "b": records()}
    stages = tuple(
        StageSummary(
            name=name, run="x", num_slices=1, is_array=False, retries=0, fingerprint="f", after={}
        )
        for name in known
    )
    run_records = RunRecords(
        meta=META,
        stages=stages,
        intents=tuple(intent(name, job_id=name) for name in known),
        records=known,
    )
    assert reconcile(run_records, Answer()).status == "failed"
    silent = Answer(knows_the_living=False, problems=("squeue: down",))
    assert reconcile(run_records, silent).status == "unknown"


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


def test_what_only_a_lagging_sacct_takes_for_alive_is_unknown_and_says_so() -> None:
    said = Answer(lagging={"12": "RUNNING"})
    never_began = slice_status(0, intent(), records(), said)
    assert (never_began.status, never_began.source) == ("unknown", "ledger")
    assert "it still says RUNNING" in never_began.reason
    began = slice_status(0, intent(), records((1,)), said)
    assert (began.status, began.source) == ("unknown", "record")
    assert slice_status(0, intent(), records((1,), {1: "failed"}), said).status == "failed"
    assert slice_status(0, intent(), records((1,), {1: "completed"}), said).status == "completed"


def test_who_could_not_be_asked_stands_in_the_reason_for_not_knowing() -> None:
    said = Answer(problems=("sacct: Connection refused",))
    assert "sacct could not be asked" in slice_status(0, intent(), records(), said).reason


def test_a_stage_names_the_sources_of_what_decides_its_status() -> None:
    found = run({"a": {}, "b": {"a": "afterok"}}, {"b": ("RUNNING", "")}, {"a"})
    assert (found.stage("a").sources, found.stage("b").sources) == (("record",), ("squeue",))


def test_only_what_was_asked_for_has_an_age() -> None:
    found = reconcile(
        RunRecords(meta=None, stages=(), intents=(), records={}),  # type: ignore[arg-type]
        Answer(asked_unix_s=7.0, notes=("no accounts",)),
    )
    assert found.asked_for(["record", "sacct"]) == 7.0
    assert found.asked_for(["record", "ledger"]) is None
    assert found.notes == ("no accounts",)


def test_a_job_that_ended_well_before_its_supervisor_started_names_the_set_up() -> None:
    part = slice_status(0, intent(), records(), answer("COMPLETED"))
    assert (part.status, "a line of `setup:` has ended the job" in part.reason) == ("unknown", True)
    part = slice_status(0, intent(), records((1,)), answer("COMPLETED"))
    assert "setup" not in part.reason
