"""Where a training begins that runs again."""

from dataclasses import replace

import pytest

from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.commands.resuming.training_starts import (
    learns_differently,
    start_of,
    training_starts,
)
from slurm_jobs.formats.records.attempt_records import CompletionName
from slurm_jobs.formats.records.job_resources import JobResources
from slurm_jobs.plan.fingerprints import hash_of
from slurm_jobs.plan.planned import Plan, PlannedJob, PlannedStage
from slurm_jobs.plan.stage_dependencies import Dependency
from slurm_jobs.run_folder.paths import RunPaths

FIELDS = {
    "run": "r",
    "config.num_steps": "n",
    "config.checkpoint.every_steps": "20",
    "after.consolidate": "c",
}
RESOURCES = JobResources(
    nodes=1, tasks_per_node=1, cpus_per_task=1, gpus_per_node=0, gpu=(), mem_gb=1, timeout_min=1,
    signal_lead_s=1, slurm={},
)  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "start"),
    [
        ({"config.checkpoint.every_steps": "30"}, "continues"),
        ({"config.checkpoint.every_min": "1", "config.precision": "fp32"}, "continues"),
        ({"config.strategy": "ddp", "config.sharding.within": "node"}, "continues"),
        ({"environment.OMP_NUM_THREADS": "1"}, "continues"),
        ({"config.optimizer.learning_rate": "1"}, "depends"),  # it may be the default
        ({"config.checkpoint.every_steps": "30", "config.seed": "1"}, "depends"),
        ({"config.checkpoint.every_steps": "30", "after.consolidate": "d"}, "depends"),
        ({"config.dataset": "elsewhere"}, "depends"),
        ({"config.checkpoints": "30"}, "depends"),
        ({}, "depends"),
    ],
)
def test_a_training_goes_on_where_only_what_may_change_has_changed(changes, start):
    now = {**FIELDS, **changes}
    assert start_of(FIELDS, now, is_asked=False) == start_of(now, FIELDS, is_asked=False) == start
    assert start_of(FIELDS, now, is_asked=True) == "requested"


TRAINED = {
    "config.phases": hash_of([]),
    "config.num_epochs": "null",
    "config.num_steps": "10",
    "config.optimizer.learning_rate": "1",
    "config.batching.kind": "auto",
    "config.dataset": "d",
    "config.strategy": "fsdp2",
    "after.consolidate": "c",
}


@pytest.mark.parametrize(
    ("changes", "is_sure"),
    [
        ({"config.optimizer.learning_rate": "2"}, True),
        ({"config.num_steps": "20"}, True),
        ({"config.strategy": "ddp", "config.optimizer.learning_rate": "2"}, True),
        ({"config.num_steps": "null", "config.num_epochs": "2"}, False),  # they may be as many
        ({"config.batching.kind": "packed"}, False),  # it may have been chosen
        ({"config.dataset": "e"}, False),
        ({"config.strategy": "ddp"}, False),
        ({"config.seed": "0"}, False),  # new, and perhaps the default
        ({"after.consolidate": "d"}, False),
        ({"config.phases": "a", "config.optimizer.learning_rate": "2"}, False),
        ({}, False),
    ],
)
def test_a_training_that_surely_learns_otherwise_is_known_before(changes, is_sure):
    now = {**TRAINED, **changes}
    assert learns_differently(TRAINED, now) == learns_differently(now, TRAINED) == is_sure


def planned(fingerprint, changes=(), parent=None):
    """A plan that runs `fit`, and before it the stage `parent`, if any."""
    after = () if parent is None else (Dependency(stage=parent, kind="afterok"),)
    stage = PlannedStage(
        name="fit", origin="", run="train", shell=None, fingerprint=fingerprint,
        fields={**FIELDS, **dict(changes)}, num_slices=1, is_array=False, slices_per_task=1,
        retries=0, after=after, config={}, python=None, setup=(), environment={}, node_local_dir="",
        resources=RESOURCES,
    )  # fmt: skip
    jobs = tuple(
        PlannedJob(stage=name, slices=(0,), resources=RESOURCES, max_running=None, why="")
        for name in (parent, "fit")
        if name is not None
    )
    return Plan(
        name="run", stages=(replace(stage, name=parent or "up", run="report"), stage), jobs=jobs
    )


@pytest.fixture
def paths(tmp_path):
    """Attempt 1 wrote checkpoints under plan 1; plan 2 changed the seed, and nothing began."""
    paths = RunPaths(tmp_path)
    (paths.output_dir("fit") / "checkpoints").mkdir(parents=True)
    paths.attempts_dir("fit").mkdir(parents=True)
    paths.plans_dir.mkdir()
    write_json_atomic(paths.attempt("fit", 0, 1), {"fingerprint": "one", "num_again": 0})
    plans = {1: ("one", FIELDS), 2: ("two", {**FIELDS, "config.seed": "1"})}
    for number, (fingerprint, fields) in plans.items():
        stage = {"name": "fit", "fingerprint": fingerprint, "fields": fields}
        write_json_atomic(paths.plan(number), {"stages": [stage]})
    return paths


CHECKPOINT = {"config.checkpoint.every_steps": "30"}


def test_a_training_is_compared_with_the_work_that_its_last_attempt_did(paths):
    assert training_starts(paths, planned("three", CHECKPOINT), {}) == {"fit": "continues"}
    seed = {**CHECKPOINT, "config.seed": "1"}
    assert training_starts(paths, planned("four", seed), {}) == {"fit": "depends"}


def test_a_training_unlike_all_its_attempts_is_reported_to_start_again(paths):
    before = {**FIELDS, "config.phases": hash_of([]), "config.seed": "0"}
    stage = {"name": "fit", "fingerprint": "one", "fields": before}
    write_json_atomic(paths.plan(1), {"stages": [stage]})
    other = {"config.phases": hash_of([]), "config.seed": "2"}
    assert training_starts(paths, planned("three", other), {}) == {"fit": "changed"}
    last = {**before, "config.seed": "1"}  # it may have saved nothing, and left those of the first
    stages = [{"name": "fit", "fingerprint": "two", "fields": last}]
    write_json_atomic(paths.plan(2), {"stages": stages})
    write_json_atomic(paths.attempt("fit", 0, 2), {"fingerprint": "two", "num_again": 0})
    assert training_starts(paths, planned("three", other), {}) == {"fit": "changed"}
    first = {**other, "config.seed": "0", "config.log_every_steps": "9"}
    assert training_starts(paths, planned("four", first), {}) == {"fit": "depends"}


def test_nothing_is_reported_about_a_training_that_is_only_missing(paths):
    assert training_starts(paths, planned("one"), {"fit": {0: 0}}) == {}
    assert training_starts(paths, planned("one"), {"fit": {0: 1}}) == {"fit": "requested"}
    again = planned("one", parent="consolidate")
    assert training_starts(paths, again, {}) == {"fit": "depends"}


def test_nothing_is_reported_about_a_training_without_checkpoints(paths):
    (paths.output_dir("fit") / "checkpoints").rmdir()
    assert training_starts(paths, planned("three", CHECKPOINT), {}) == {}


def test_a_complete_training_without_checkpoints_is_reported_to_run_again(paths):
    complete = CompletionName(0, 1, "t", "completed")
    paths.completions_dir("fit").mkdir(parents=True)
    write_json_atomic(paths.completion("fit", complete), {})
    assert training_starts(paths, planned("three", CHECKPOINT), {}) == {"fit": "removed"}
    (paths.output_dir("fit") / "checkpoints/step-00000004").mkdir()
    assert training_starts(paths, planned("three", CHECKPOINT), {}) == {"fit": "continues"}


def test_checkpoints_of_phases_are_checkpoints_too(paths):
    (paths.output_dir("fit") / "checkpoints").rename(paths.output_dir("fit") / "phases")
    assert training_starts(paths, planned("three", CHECKPOINT), {}) == {"fit": "continues"}


def test_a_damaged_record_of_the_last_attempt_ends_no_resume(paths):
    paths.attempt("fit", 0, 1).write_text("{")
    assert training_starts(paths, planned("three", CHECKPOINT), {}) == {"fit": "depends"}
