"""Plans: what decides a stage's work, and which jobs a submit or a resume has."""

from typing import Any

import pytest

from slurm_jobs.plan.fingerprints import changed_fields
from slurm_jobs.plan.make_plan import make_plan
from slurm_jobs.plan.planned import Done
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.profile import ClusterProfile
from tests.slurm_jobs.plan.planned_stages import plan, spec

SLICES = frozenset(range(4))


def fingerprints(given: RunSpec, code: str = "c") -> dict[str, str]:
    return {stage.name: stage.fingerprint for stage in plan(given, code=code).stages}


def changed(given: RunSpec, code: str = "c") -> set[str]:
    before, after = fingerprints(spec()), fingerprints(given, code)
    return {name for name in before if before[name] != after[name]}


@pytest.mark.parametrize(
    "values",
    [
        {"resources": {"nodes": 7, "gpus_per_node": 1, "timeout_min": 5, "slurm": {"qos": "x"}}},
        {"retries": 3},
        {"setup": ["module load x"]},
        {"python": "/other/python"},
        {"node_local_dir": "/scratch"},
    ],
)
def test_fingerprints_do_not_change_with_how_a_stage_runs(values: dict[str, Any]) -> None:
    assert changed(spec(train=values)) == set()


def test_fingerprints_do_not_change_with_the_throttle() -> None:
    assert changed(spec(tokens={"array": {"num_slices": 4, "max_running": 1}})) == set()


@pytest.mark.parametrize(
    "values",
    [
        {"config": {"url": "y"}},
        {"run": "own:fetch2"},
        {"environment": {"A": "1"}},
        {"array": {"num_slices": 2}},
    ],
)
def test_what_decides_an_output_changes_the_stage_and_all_after_it(values: dict[str, Any]) -> None:
    assert changed(spec(fetch=values)) == {"fetch", "tokens", "train", "report", "mend"}


def test_a_change_leaves_the_stages_before_alone() -> None:
    assert changed(spec(train={"config": {"lr": 1}})) == {"train", "report"}


def test_the_limit_changes_every_stage() -> None:
    assert len(changed(spec().model_copy(update={"limit": 5}))) == 5


def test_the_users_code_changes_the_stages_that_run_it_and_those_after() -> None:
    given = RunSpec.model_validate(
        {
            "name": "a",
            "stages": {
                "prep": {"run": "preprocess"},
                "own": {"run": "own:f", "after": "prep"},
            },
        }
    )
    one, two = fingerprints(given, "c1"), fingerprints(given, "c2")
    assert one["prep"] == two["prep"]
    assert one["own"] != two["own"]


def jobs(done: Done) -> dict[str, tuple[int, ...]]:
    return {job.stage: job.slices for job in plan(done=done).jobs}


def test_a_first_plan_has_a_job_for_every_stage_in_order() -> None:
    made = plan()
    assert [job.stage for job in made.jobs] == ["fetch", "tokens", "train", "report", "mend"]
    assert made.jobs[1].slices == (0, 1, 2, 3)
    assert made.jobs[1].max_running == 2
    assert made.jobs[0].slices == (0,)


def test_a_resume_runs_the_missing_slices_and_all_that_comes_after() -> None:
    completed = {"fetch": frozenset({0}), "tokens": frozenset({0, 3}), "train": frozenset({0})}
    done = Done(completed=completed)
    assert jobs(done) == {"tokens": (1, 2), "train": (0,), "report": (0,), "mend": (0,)}


def test_a_resume_leaves_active_slices_alone() -> None:
    done = Done(
        completed={"fetch": frozenset({0}), "tokens": frozenset({0})},
        active={"tokens": frozenset({1, 2}), "train": frozenset({0}), "report": frozenset({0})},
    )
    assert jobs(done)["tokens"] == (3,)


def test_a_stage_whose_parent_runs_again_runs_all_its_slices_again() -> None:
    assert jobs(Done(completed={"tokens": SLICES}))["tokens"] == (0, 1, 2, 3)


def test_afternotok_is_not_needed_once_its_parent_is_complete() -> None:
    done = Done(completed={"fetch": frozenset({0}), "tokens": SLICES})
    assert jobs(done) == {"train": (0,), "report": (0,)}


def test_afternotok_is_still_needed_while_its_parent_may_fail() -> None:
    done = Done(
        completed={"fetch": frozenset({0}), "tokens": frozenset({0})},
        active={"tokens": frozenset({1, 2, 3})},
    )
    assert "mend" in jobs(done)


def test_nothing_is_planned_when_all_is_complete() -> None:
    names = ("fetch", "train", "report")
    completed = {**dict.fromkeys(names, frozenset({0})), "tokens": SLICES}
    assert jobs(Done(completed=completed)) == {}


def test_the_fields_that_changed_are_named_by_their_keys() -> None:
    before = {stage.name: stage.fields for stage in plan().stages}
    given = spec(
        fetch={"config": {"url": "y", "more": {"a": 1}}, "environment": {"A": "1"}},
        tokens={"array": {"num_slices": 5}},
    )
    now = {stage.name: stage.fields for stage in plan(given, code="c2").stages}
    changed_keys = {name: changed_fields(before[name], now[name]) for name in before}
    assert changed_keys == {
        "fetch": ["code", "config.more.a", "config.url", "environment.A"],
        "tokens": ["array.num_slices", "code"],
        "train": ["code"],
        "report": [],
        "mend": ["code"],
    }


def test_values_do_not_stand_in_the_fields_in_the_clear() -> None:
    secret = "hunter2-0123456789"
    given = spec(fetch={"environment": {"API_TOKEN": secret}})
    assert secret not in str(plan(given).stage("fetch").fields)


def test_what_a_stage_says_wins_over_spec_and_profile() -> None:
    profile = ClusterProfile.model_validate(
        {
            "slurm": {"partition": "cpu", "account": "x"},
            "gpu_slurm": {"partition": "gpu", "qos": "long"},
            "python": "/p/python",
            "setup": ["one"],
            "environment": {"A": "profile", "B": "profile"},
        }
    )
    given = RunSpec.model_validate(
        {
            "name": "a",
            "setup": ["two"],
            "environment": {"B": "spec", "C": "spec"},
            "stages": {
                "s": {
                    "shell": "x",
                    "setup": ["three"],
                    "environment": {"C": "stage"},
                    "resources": {"gpus_per_node": 1, "slurm": {"qos": "short"}},
                },
                "t": {"shell": "x", "python": "/s/python"},
            },
        }
    )
    made = make_plan(given, profile)
    stage = made.stage("s")
    assert stage.resources.slurm == {"partition": "gpu", "account": "x", "qos": "short"}
    assert stage.setup == ("one", "two", "three")
    assert stage.environment == {"A": "profile", "B": "spec", "C": "stage"}
    assert stage.python == "/p/python"
    assert made.stage("t").python == "/s/python"
    assert made.stage("t").resources.slurm["partition"] == "cpu"


def test_what_comes_after_a_stage_that_is_not_needed_is_not_needed_either() -> None:
    stages = {
        "q": {"shell": "true"},
        "mend": {"shell": "true", "after": {"q": "afternotok"}},
        "mended": {"shell": "true", "after": "mend"},
        "last": {"shell": "true", "after": {"mended": "afterany"}},
    }
    given = RunSpec.model_validate({"name": "a", "cluster": "local", "stages": stages})
    done = Done(completed={"q": frozenset({0})})
    assert [job.stage for job in plan(given, done).jobs] == ["last"]
    everything = Done(completed={name: frozenset({0}) for name in ("mended", "last")})
    assert [job.stage for job in plan(given, everything).jobs] == [*stages]
