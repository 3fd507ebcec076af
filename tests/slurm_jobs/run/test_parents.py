"""A fake scheduler and a fake clock stand in: Slurm forgets a job after minutes at the soonest."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from slurm_jobs.base.errors import SchedulerError
from slurm_jobs.formats.records.attempt_records import (
    CompletionName,
    TaskAccounting,
    completion_name,
)
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.plan.make_plan import make_plan
from slurm_jobs.plan.planned import Plan, PlannedJob
from slurm_jobs.run.parents import REMEMBERED_S, TRUSTED_S, Parents, SubmittedJob
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.schedulers.protocol import Answer, JobDependencies, Question
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.profile import LOCAL

STAGES = {
    "clean": {"run": "own:a"},
    "cut": {"run": "own:b", "array": {"num_slices": 3}},
    "train": {"run": "own:c", "after": ["clean", "cut"]},
}
BEGAN = 1_700_000_000.0


class Fake:
    """A scheduler that says what it is told to, and a clock that stands until it is moved."""

    def __init__(self, states: Mapping[str, str], *, knows: bool = True, name: str = "fake"):
        self.states, self.knows, self.name = dict(states), knows, name
        self.asked: list[Question] = []
        self.slurm_ahead_s = 0.0
        self.end_unix_s: float | None = None
        self.now_unix_s = BEGAN

    def time(self) -> float:
        return self.now_unix_s

    def query(self, question: Question) -> Answer:
        self.asked.append(question)
        tasks = {}
        for job_id, state in self.states.items():
            job = key(job_id)
            tasks[job] = TaskAccounting(
                job_id=job_id,
                job_name=job.name,
                state=state,
                source="sacct",
                submit_unix_s=BEGAN + self.slurm_ahead_s,
                end_unix_s=self.end_unix_s,
            )
        return Answer(tasks=tasks, knows_the_living=self.knows)


def key(job_id: str) -> JobKey:
    """`clean` is job 11, and `cut` array 12."""
    whole = job_id.partition("_")[0]
    stage = {"11": "clean", "12": "cut"}.get(whole, "other")
    return JobKey(f"words.{stage}.t{whole}", job_id)


def plan() -> Plan:
    spec = RunSpec.model_validate({"name": "words", "cluster": "local", "stages": STAGES})
    return make_plan(spec, LOCAL)


def job_of(stage: str) -> PlannedJob:
    return next(job for job in plan().jobs if job.stage == stage)


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return RunPaths(tmp_path / "run")


HandIn = Callable[..., Parents]


@pytest.fixture
def hand_in(paths: RunPaths, monkeypatch: pytest.MonkeyPatch) -> HandIn:
    """Submit `clean` as job 11 and `cut` as array 12, so many seconds ago."""

    def submitted(
        fake: Fake,
        ago_s: float = TRUSTED_S + 1,
        active: Mapping[str, Mapping[JobKey, frozenset[int]]] | None = None,
    ) -> Parents:
        monkeypatch.setattr("slurm_jobs.run.parents.time", fake)
        parents = Parents(paths, fake, active)  # type: ignore[arg-type]
        for job_id, stage in (("11", "clean"), ("12", "cut")):
            token = f"t{job_id}"
            job = JobKey(f"words.{stage}.{token}", job_id)
            parents.add(SubmittedJob(planned=job_of(stage), token=token, job=job))
        fake.now_unix_s += ago_s
        return parents

    return submitted


def complete(paths: RunPaths, stage: str, token: str, slices: Sequence[int]) -> None:
    folder = paths.completions_dir(stage)
    folder.mkdir(parents=True)
    for index in slices:
        (folder / completion_name(CompletionName(index, 1, token, "completed"))).write_text("{}")


CLEAN: JobDependencies = {"afterok": [key("11")]}
CUT: JobDependencies = {"aftercorr": [key("12")]}
TRAIN = job_of("train")


@pytest.mark.parametrize(
    ("dependencies", "states", "why"),
    [
        (CLEAN, {}, "`clean`, whose job 11 is gone"),
        (CLEAN, {"11": "CANCELLED"}, "`clean`, whose job 11 ended as CANCELLED"),
        (CUT, {"12_0": "RUNNING", "12_1": "COMPLETED"}, "`cut`, whose job 12 is gone"),
        (CUT, {"12_0": "RUNNING", "12_1": "PENDING", "12_2": "FAILED"}, "ended as FAILED"),
    ],
)
def test_a_slow_submit_stops_at_a_parent_that_can_no_longer_be_waited_for(
    paths: RunPaths,
    hand_in: HandIn,
    dependencies: JobDependencies,
    states: Mapping[str, str],
    why: str,
) -> None:
    parents = hand_in(Fake(states))
    with pytest.raises(SchedulerError, match="cannot wait for it") as caught:
        parents.refuse_gone(TRAIN, dependencies)
    for words in ("`train` comes after", why, f"slurm-jobs resume {paths.run_dir}"):
        assert words in str(caught.value)


@pytest.mark.parametrize(
    ("dependencies", "states", "completed"),
    [
        (CLEAN, {"11": "PENDING"}, ()),
        (CLEAN, {"11": "COMPLETED"}, ()),
        (CLEAN, {}, (0,)),
        (CUT, {"12_0": "COMPLETED", "12_1": "RUNNING"}, (2,)),
    ],
)
def test_what_lives_or_ended_well_is_waited_for_however_slow_the_submit(
    paths: RunPaths,
    hand_in: HandIn,
    dependencies: JobDependencies,
    states: Mapping[str, str],
    completed: Sequence[int],
) -> None:
    stage, job_id = ("clean", "11") if dependencies is CLEAN else ("cut", "12")
    complete(paths, stage, f"t{job_id}", completed)
    fake = Fake(states)
    hand_in(fake).refuse_gone(TRAIN, dependencies)
    (question,) = fake.asked
    expected = ({f"words.{stage}.t{job_id}": job_id}, BEGAN)
    assert (question.jobs, question.since_unix_s) == expected


@pytest.mark.parametrize("slurm_ahead_s", [0.0, 600.0, -600.0])
def test_what_ended_a_moment_ago_is_left_to_slurm_whatever_its_clock_says(
    hand_in: HandIn, slurm_ahead_s: float
) -> None:
    """It takes away what waits for that, and starts what comes `afterany`."""
    fake = Fake({"11": "FAILED"})
    fake.slurm_ahead_s, fake.end_unix_s = slurm_ahead_s, BEGAN + slurm_ahead_s
    parents = hand_in(fake)
    parents.refuse_gone(TRAIN, CLEAN)
    fake.now_unix_s += REMEMBERED_S
    with pytest.raises(SchedulerError, match="ended as FAILED"):
        parents.refuse_gone(TRAIN, CLEAN)


def test_a_record_of_another_job_does_not_speak_for_one_that_is_gone(
    paths: RunPaths, hand_in: HandIn
) -> None:
    complete(paths, "clean", "before", (0,))
    with pytest.raises(SchedulerError, match="is gone"):
        hand_in(Fake({})).refuse_gone(TRAIN, CLEAN)


def test_a_submit_that_nothing_holds_up_asks_nothing(hand_in: HandIn) -> None:
    fake = Fake({})
    hand_in(fake, ago_s=TRUSTED_S).refuse_gone(TRAIN, {**CLEAN, **CUT})
    assert not fake.asked


def test_it_asks_once_for_all_parents_and_again_only_when_that_is_old(hand_in: HandIn) -> None:
    fake = Fake({"11": "RUNNING", "12": "PENDING"})
    parents = hand_in(fake)
    for _ in range(2):
        parents.refuse_gone(TRAIN, {**CLEAN, **CUT})
    assert [sorted(question.jobs.values()) for question in fake.asked] == [["11", "12"]]
    fake.now_unix_s += TRUSTED_S + 1
    parents.refuse_gone(TRAIN, CLEAN)
    assert len(fake.asked) == 2


@pytest.mark.parametrize(
    ("fake", "dependencies"),
    [
        (Fake({}, knows=False), CLEAN),  # nobody can say: Slurm took the id
        (Fake({}, name="local"), CLEAN),  # its book forgets nothing
        (Fake({}), {"afterany": [key("11")]}),  # what is gone has ended
        (Fake({}), {"afterok": [key("9"), key("10_2")]}),  # handed in by another command
    ],
)
def test_what_may_be_waited_for_all_the_same_is(
    hand_in: HandIn, fake: Fake, dependencies: JobDependencies
) -> None:
    hand_in(fake).refuse_gone(TRAIN, dependencies)
    assert len(fake.asked) == (not fake.knows)


@pytest.mark.parametrize("job_id", ["9", "10_2"])
def test_a_job_that_continues_is_waited_for_only_while_its_id_is_its_own(
    paths: RunPaths, hand_in: HandIn, job_id: str
) -> None:
    """A slow resume: the job ended and was forgotten, and another may have its id by now."""
    going = key(job_id)
    active = {"clean": {going: frozenset({0})}}
    fake = Fake({job_id: "RUNNING"})
    hand_in(fake, active=active).refuse_gone(TRAIN, {"afterok": [going]})
    assert [dict(question.jobs) for question in fake.asked] == [{going.name: going.job.job_id}]
    with pytest.raises(SchedulerError, match=f"whose job {job_id} is gone"):
        hand_in(Fake({}), active=active).refuse_gone(TRAIN, {"afterok": [going]})
    complete(paths, "clean", f"t{going.job.job_id}", (0,))
    hand_in(Fake({}), active=active).refuse_gone(TRAIN, {"afterok": [going]})
