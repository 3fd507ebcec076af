"""A fake scheduler stands in: Slurm and the local one cannot be made to refuse a job that they
took, or to fall silent between a submission and its lookup."""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slurm_jobs.base.errors import RunFailedError, SchedulerError, SubmissionUnknownError
from slurm_jobs.formats.config import DependencyKind
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.plan.make_plan import make_plan
from slurm_jobs.plan.planned import Done, Plan, PlannedJob
from slurm_jobs.run.parents import TRUSTED_S, SubmittedJob
from slurm_jobs.run.snapshot import CodeSnapshot
from slurm_jobs.run.submission import (
    Connections,
    RunContext,
    job_dependencies,
    submit_plan,
    write_plan,
)
from slurm_jobs.run_folder.ledger import Entry, append_entry, intents, read_ledger
from slurm_jobs.run_folder.orders import JobOrder, read_order
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.submission_lock import submitting
from slurm_jobs.schedulers.protocol import Answer, JobDependencies, Question
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.profile import LOCAL


@dataclass
class FakeScheduler:
    """Takes jobs under ids from 11 on; `error` is what it says instead of the second id."""

    paths: RunPaths
    error: BaseException | None = None
    fails_at: int = 2
    takes_it_all_the_same: bool = False
    lookup_error: SchedulerError | None = None
    name: str = "fake"
    queued: dict[str, str] = field(default_factory=dict)
    seen: list[tuple[JobOrder, JobDependencies]] = field(default_factory=list)
    was_started: bool = False
    answer: Answer | None = None

    def render(self, order: JobOrder, dependencies: JobDependencies) -> str:
        return f"# {order.job_name} {dict(dependencies)}\n"

    def submit(self, order: JobOrder, dependencies: JobDependencies) -> str:
        # What a job needs exists before it can start.
        assert read_order(self.paths.job_json(order.token)) == order
        script = self.paths.batch_script(order.token).read_text()
        assert script == self.render(order, dependencies)
        assert Path(order.log_dir).is_dir()
        assert read_ledger(self.paths.ledger_dir)[-1].kind == "intent"
        self.seen.append((order, dependencies))
        fails = self.error is not None and len(self.seen) == self.fails_at
        if not fails or self.takes_it_all_the_same:
            self.queued[order.job_name] = str(10 + len(self.seen))
        if fails:
            assert self.error is not None
            raise self.error
        return self.queued[order.job_name]

    def start(self) -> None:
        self.was_started = True

    def find(self, job_names: Sequence[str]) -> Mapping[str, str]:
        if self.lookup_error is not None:
            raise self.lookup_error
        return {name: self.queued[name] for name in job_names if name in self.queued}

    def query(self, question: Question) -> Answer:
        assert self.answer is not None, "a quick submit asks nothing"
        return self.answer

    def accounting(self, question: Question) -> Answer:
        raise NotImplementedError

    def cancel(self, job_ids: Sequence[str]) -> None:
        raise NotImplementedError


STAGES: Mapping[str, Mapping[str, Any]] = {
    "a": {"run": "own:a", "array": {"num_slices": 4, "max_running": 2}},
    "b": {"run": "own:b", "after": "a"},
    "c": {"run": "report", "after": {"a": "afterok", "b": "afterany"}},
}


def plan(done: Done | None = None) -> Plan:
    spec = RunSpec.model_validate({"name": "words", "cluster": "local", "stages": STAGES})
    return make_plan(spec, LOCAL, done=done)


def context(tmp_path: Path, **behaviour: Any) -> tuple[RunContext, FakeScheduler]:
    paths = RunPaths(tmp_path / "run")
    scheduler = FakeScheduler(paths, **behaviour)
    snapshot = CodeSnapshot(folder=paths.code_snapshot("f"), user_fingerprint="u")
    made = RunContext(
        paths=paths,
        run_id="words-1",
        scheduler=scheduler,
        snapshot=snapshot,
        spec_dir=str(tmp_path),
        limit=None,
        main_addr=None,
    )
    return made, scheduler


def submit_all(given: RunContext, *arguments: Any, **options: Any) -> list[SubmittedJob]:
    """Within a turn of its own."""
    with submitting(given.paths) as turn:
        return submit_plan(given, *arguments, turn=turn, **options)


def ledger(given: RunContext) -> list[Entry]:
    """But for the entries that begin and end the turn."""
    entries = read_ledger(given.paths.ledger_dir)
    return [entry for entry in entries if entry.kind not in {"begin", "end"}]


def kinds(given: RunContext) -> list[str]:
    return [entry.kind for entry in ledger(given)]


def test_each_job_is_intended_then_submitted_before_the_next(tmp_path: Path) -> None:
    given, scheduler = context(tmp_path)
    told: list[SubmittedJob] = []
    made = submit_all(given, plan(), Connections(), on_job=told.append)
    assert made == told
    assert [(job.stage, job.job_id, job.num_tasks) for job in made] == [
        ("a", "11", 4),
        ("b", "12", 1),
        ("c", "13", 1),
    ]
    assert kinds(given) == ["intent", "submitted"] * 3
    assert [entry.token for entry in ledger(given)] == [j.token for j in made for _ in range(2)]
    assert [intent.job_id for intent in intents(ledger(given))] == ["11", "12", "13"]
    assert [dict(dependencies) for _, dependencies in scheduler.seen] == [
        {},
        {"afterok": [made[0].job]},
        {"afterok": [made[0].job], "afterany": [made[1].job]},
    ]
    assert [intent.dependencies for intent in intents(ledger(given))] == [
        {kind: tuple(keys) for kind, keys in dependencies.items()}
        for _, dependencies in scheduler.seen
    ]
    assert scheduler.was_started


@pytest.mark.parametrize(
    ("stage", "beginning", "num_submitted", "remedies"),
    [
        (None, "none of the jobs of ", 0, ["resume"]),
        ("b", "2 of the 3 jobs of ", 2, ["resume", "cancel"]),
        ("c", "all jobs of ", 3, ["status"]),
    ],
)
def test_ctrl_c_says_how_many_jobs_are_queued_and_how_to_go_on(
    tmp_path: Path, stage: str | None, beginning: str, num_submitted: int, remedies: list[str]
) -> None:
    given, scheduler = context(tmp_path / "a folder")

    def interrupt(job: SubmittedJob) -> None:
        if job.stage == stage:
            raise KeyboardInterrupt

    if stage is None:
        scheduler.error = KeyboardInterrupt()
        scheduler.fails_at = 1
    with pytest.raises(KeyboardInterrupt, match=f"^{beginning}'.*' were submitted") as stopped:
        submit_all(given, plan(), Connections(), on_job=interrupt)
    commands = re.findall(r"slurm-jobs (\w+) '(.*?)'", str(stopped.value))
    assert commands == [(verb, str(given.paths.run_dir)) for verb in remedies]
    assert kinds(given).count("submitted") == num_submitted


def test_the_name_of_a_job_holds_its_token_so_that_it_can_be_found(tmp_path: Path) -> None:
    given, scheduler = context(tmp_path)
    made = submit_all(given, plan(), Connections())
    expected = [f"words.{job.stage}.{job.token}" for job in made]
    assert [order.job_name for order, _ in scheduler.seen] == expected
    assert [intent.job_name for intent in intents(ledger(given))] == expected


def test_attempts_of_earlier_jobs_are_noted_in_the_intent(tmp_path: Path) -> None:
    given, _ = context(tmp_path)
    folder = given.paths.attempts_dir("a")
    folder.mkdir(parents=True)
    for name in ("s00001.a0001.json", "s00001.a0002.json", "s00003.a0001.json"):
        (folder / name).write_text("{}")
    submit_all(given, plan(Done(completed={"a": frozenset({0, 3})})), Connections())
    first = intents(ledger(given))[0]
    assert (first.slices, dict(first.base_attempts)) == ((1, 2), {1: 2})


@pytest.mark.parametrize("kind", [SchedulerError, SubmissionUnknownError])
def test_a_job_that_was_taken_in_spite_of_an_error_is_written_down(
    tmp_path: Path, kind: type[SchedulerError]
) -> None:
    given, scheduler = context(tmp_path, error=kind("socket timed out"), takes_it_all_the_same=True)
    made = submit_all(given, plan(), Connections())
    assert [job.job_id for job in made] == ["11", "12", "13"]
    assert kinds(given) == ["intent", "submitted"] * 3
    assert len(scheduler.queued) == 3


def test_a_refused_job_is_written_down_and_ends_the_submission(tmp_path: Path) -> None:
    given, scheduler = context(tmp_path, error=SchedulerError("invalid account"))
    with pytest.raises(SchedulerError, match="invalid account") as caught:
        submit_all(given, plan(), Connections())
    assert not isinstance(caught.value, SubmissionUnknownError)
    remedy = f"slurm-jobs resume {given.paths.run_dir} (with --update-spec if you changed the"
    assert remedy in str(caught.value)
    assert kinds(given) == ["intent", "submitted", "intent", "refused"]
    assert intents(ledger(given))[1].refused == "invalid account"
    assert len(scheduler.seen) == 2


@pytest.mark.parametrize(
    "behaviour",
    [
        # Refused, it seems, and nobody can say.
        {"error": SchedulerError("no"), "lookup_error": SchedulerError("squeue: down")},
        # Nobody knows, and it is not to be found (yet).
        {"error": SubmissionUnknownError("socket timed out")},
        {
            "error": SubmissionUnknownError("socket timed out"),
            "takes_it_all_the_same": True,
            "lookup_error": SchedulerError("squeue: down"),
        },
    ],
)
def test_a_job_that_may_have_been_taken_is_left_open_to_be_looked_up(
    tmp_path: Path, behaviour: dict[str, Any]
) -> None:
    given, scheduler = context(tmp_path, **behaviour)
    with pytest.raises(SubmissionUnknownError) as caught:
        submit_all(given, plan(), Connections())
    assert kinds(given) == ["intent", "submitted", "intent"]
    open_one = intents(ledger(given))[1]
    assert (open_one.job_id, open_one.refused) == (None, None)
    for words in (str(behaviour["error"]), str(behaviour.get("lookup_error", "")), "resume"):
        assert words in str(caught.value)
    assert open_one.job_name in str(caught.value)
    assert len(scheduler.seen) == 2


def keys(*job_ids: str) -> list[JobKey]:
    return [JobKey("n", job_id) for job_id in job_ids]


def dependencies_of(stage: str, connections: Connections, *submitted: str) -> JobDependencies:
    """Of a job; `submitted` are stages whose jobs have the ids `new-STAGE`."""
    planned = {job.stage: job for job in plan().jobs}
    jobs = [
        SubmittedJob(planned=planned[name], token="t", job=JobKey("n", f"new-{name}"))
        for name in submitted
    ]
    job = planned[stage]
    return job_dependencies(plan(), job, jobs, connections)


@pytest.mark.parametrize(
    ("connections", "submitted", "expected"),
    [
        # Nothing above runs: all is complete.
        (Connections(), (), {}),
        (Connections(), ("a", "b"), {"afterok": keys("new-a"), "afterany": keys("new-b")}),
        (Connections(), ("b",), {"afterany": keys("new-b")}),
        # What goes on is waited for besides what is new.
        (
            Connections(active={"a": dict.fromkeys(keys("12_0", "12_3"), frozenset({0}))}),
            ("a",),
            {"afterok": keys("new-a", "12_0", "12_3")},
        ),
        (
            Connections(active={"a": dict.fromkeys(keys("12"), frozenset({0})), "b": {}}),
            (),
            {"afterok": keys("12")},
        ),
        # What is ending is waited for by jobs of its own stage alone, however it ends.
        (Connections(ending={"a": keys("12")}), (), {}),
        (Connections(ending={"c": keys("14")}), (), {"afterany": keys("14")}),
        (
            Connections(
                active={"b": dict.fromkeys(keys("13"), frozenset({0}))}, ending={"c": keys("14")}
            ),
            (),
            {"afterany": keys("13", "14")},
        ),
    ],
)
def test_a_job_comes_after_whatever_of_its_parents_is_not_complete(
    connections: Connections,
    submitted: tuple[str, ...],
    expected: dict[DependencyKind, list[JobKey]],
) -> None:
    assert dependencies_of("c", connections, *submitted) == expected


def only_job(active: set[int], completed: set[int]) -> PlannedJob:
    """The job of stage `a`, of whose four slices two may run at once."""
    done = Done(active={"a": frozenset(active)}, completed={"a": frozenset(completed)})
    return next(job for job in plan(done).jobs if job.stage == "a")


@pytest.mark.parametrize(
    ("active", "completed", "max_running", "after_active"),
    [
        (set(), {0}, 2, False),
        ({0}, set(), 1, False),  # together they are two
        ({0, 1}, set(), 2, True),
        ({0, 1, 2}, set(), 2, True),  # queued behind the throttle count as well
    ],
)
def test_what_still_runs_and_what_is_new_keep_the_throttle_together(
    active: set[int], completed: set[int], max_running: int, *, after_active: bool
) -> None:
    job = only_job(active, completed)
    assert job.slices == tuple(i for i in range(4) if i not in active | completed)
    assert (job.max_running, job.after_active) == (max_running, after_active)


@pytest.mark.parametrize(
    ("active", "expected"),
    [({0}, {}), ({0, 1}, {"afterany": keys("12_0", "12_1")})],
)
def test_a_job_for_which_there_is_no_room_waits_for_what_still_runs(
    active: set[int], expected: dict[DependencyKind, list[JobKey]]
) -> None:
    job = only_job(active, set())
    going = {JobKey("n", f"12_{i}"): frozenset({i}) for i in sorted(active)}
    assert job_dependencies(plan(), job, [], Connections(active={"a": going})) == expected


def test_plans_are_numbered_and_never_replaced(tmp_path: Path) -> None:
    given, _ = context(tmp_path)
    first = write_plan(given, plan())
    text = given.paths.plan(first).read_text()
    second = write_plan(given, plan(Done(active={"a": frozenset({0})})))
    assert (first, second) == (1, 2)
    assert given.paths.plan(first).read_text() == text


def test_a_command_that_was_taken_for_dead_submits_no_more(tmp_path: Path) -> None:
    """It was suspended between two jobs, and a resume on another host went in meanwhile."""
    given, scheduler = context(tmp_path)

    def let_another_in(_job: SubmittedJob) -> None:
        who = {"pid": 7, "host": "elsewhere", "process_start": None}
        first = read_ledger(given.paths.ledger_dir)[0]
        append_entry(given.paths.ledger_dir, "begin", "other", who)
        append_entry(given.paths.ledger_dir, "end", first.token, {"ended_by": "other"})

    with pytest.raises(RunFailedError, match="pid 7 on elsewhere"):
        submit_all(given, plan(), Connections(), on_job=let_another_in)
    assert len(scheduler.seen) == 1
    assert kinds(given) == ["intent", "submitted"]  # no intent that would bar the other's jobs


def test_a_delayed_submit_leaves_no_intent_for_what_can_never_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Suspended after its first job, which Slurm took away and forgot meanwhile."""
    given, scheduler = context(tmp_path)
    scheduler.answer = Answer()

    def hold_up(_job: SubmittedJob) -> None:
        late_s = time.time() + TRUSTED_S + 1
        monkeypatch.setattr("slurm_jobs.run.parents.time", SimpleNamespace(time=lambda: late_s))

    with pytest.raises(SchedulerError, match="`b` comes after `a`, whose job 11 is gone"):
        submit_all(given, plan(), Connections(), on_job=hold_up)
    assert kinds(given) == ["intent", "submitted"]
