"""GPU-hours of a run are those of its attempts, or a lower bound, or not known with a reason."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path

import pytest

from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.formats.records.attempt_records import (
    AttemptRecord,
    CompletionName,
    CompletionRecord,
    TaskAccounting,
)
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.run.run_use import RunUse, run_use
from slurm_jobs.run_folder.orders import order_to_json
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_run
from slurm_jobs.schedulers.protocol import Answer
from slurm_jobs.status.reconcile import reconcile
from tests.slurm_jobs.run.fabricate import make_run, submit
from tests.slurm_jobs.schedulers.fake_slurm import name_of
from tests.slurm_jobs.worker.orders import order

NOW_S = 1_000_000.0
HOUR_S = 3600.0


def add_job(paths: RunPaths, stage: str, job_id: str, *, nodes: int = 1, gpus: int = 0) -> str:
    """A job of one slice with so many nodes and GPUs on each; return its token."""
    token = submit(paths, stage, 1, job_id)
    written = order()
    resources = dataclasses.replace(written.resources, nodes=nodes, gpus_per_node=gpus)
    path = paths.job_json(token)
    path.parent.mkdir(parents=True)
    write_json_atomic(path, order_to_json(dataclasses.replace(written, resources=resources)))
    return token


def begin(paths: RunPaths, stage: str, attempt: int, token: str, *, hours_ago: float) -> None:
    record = AttemptRecord(
        stage=stage, slice_index=0, attempt=attempt, job_id="1", token=token, fingerprint="f",
        started_unix_s=NOW_S - hours_ago * HOUR_S, node_names=("gpu-1",), host="gpu-1", pid=1,
        num_ranks=1, scheduler="slurm", restart=0,
    )  # fmt: skip
    path = paths.attempt(stage, 0, attempt)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(path, record_to_json(record))


def finish(paths: RunPaths, stage: str, attempt: int, token: str, *, hours: float) -> None:
    """An attempt that has ended after so many hours, with its two records."""
    begin(paths, stage, attempt, token, hours_ago=100)
    record = CompletionRecord(
        stage=stage, slice_index=0, attempt=attempt, job_id="1", token=token, outcome="failed",
        fingerprint="f", started_unix_s=0.0, ended_unix_s=hours * HOUR_S, exit_code=1,
    )  # fmt: skip
    name = CompletionName(0, attempt, token, "failed")
    path = paths.completion(stage, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(path, record_to_json(record))


def answer(job_id: str, state: str, source: str) -> Answer:
    task = TaskAccounting(job_id=job_id, job_name=name_of(job_id), state=state, source=source)
    return Answer(tasks={task.key: task})


def use_of(paths: RunPaths, said: Answer | None = None) -> RunUse:
    run = read_run(paths.run_dir)
    said = said or Answer()
    return run_use(paths.run_dir, run, reconcile(run, said), said, NOW_S)


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return make_run(tmp_path / "r", {"prep": 1, "train": 1}, created_unix_s=NOW_S - 200 * HOUR_S)


def test_attempts_count_with_the_gpus_of_their_own_job(paths: RunPaths) -> None:
    finish(paths, "prep", 1, add_job(paths, "prep", "1"), hours=9)
    finish(paths, "train", 1, add_job(paths, "train", "2", nodes=2, gpus=4), hours=1.5)
    finish(paths, "train", 2, add_job(paths, "train", "3", nodes=1, gpus=2), hours=3)
    hours = use_of(paths).gpu_hours
    assert hours.value == pytest.approx(2 * 4 * 1.5 + 2 * 3)
    assert hours.at_least == ""


def test_a_run_without_gpus_used_none_and_its_attempts_are_not_read(paths: RunPaths) -> None:
    token = add_job(paths, "prep", "1")
    finish(paths, "prep", 1, token, hours=9)
    os.truncate(paths.completion("prep", CompletionName(0, 1, token, "failed")), 0)
    assert use_of(paths).gpu_hours.value == 0


def test_a_running_attempt_counts_until_now(paths: RunPaths) -> None:
    token = add_job(paths, "train", "2", gpus=4)
    begin(paths, "train", 1, token, hours_ago=2)
    hours = use_of(paths, answer("2", "RUNNING", "squeue")).gpu_hours
    assert hours.value == pytest.approx(8)
    assert hours.at_least == ""


def test_an_attempt_without_an_end_makes_a_lower_bound(paths: RunPaths) -> None:
    token = add_job(paths, "train", "2", gpus=4)
    finish(paths, "train", 1, token, hours=1)
    begin(paths, "train", 2, token, hours_ago=2)
    hours = use_of(paths, answer("2", "TIMEOUT", "sacct")).gpu_hours
    assert hours.value == pytest.approx(4)
    assert hours.at_least == "an attempt has no recorded end"


def test_more_attempts_than_a_list_reads_are_not_known(tmp_path: Path) -> None:
    paths = make_run(tmp_path / "r", {"train": 1})
    begin(paths, "train", 1, add_job(paths, "train", "2", gpus=1), hours_ago=1)
    for attempt in range(2, 1002):
        paths.attempt("train", 0, attempt).touch()
    hours = use_of(paths).gpu_hours
    assert (hours.value, hours.missing) == (None, "it has over 1,000 attempts; `report` reads them")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda path: path.write_text("{"), "is damaged"),
        (
            lambda path: path.write_text(path.read_text().replace('"nodes": 1', '"nodes": "x"')),
            "no c",
        ),
        (lambda path: (path.unlink(), os.mkfifo(path)), "named pipe"),
    ],
)
def test_a_damaged_order_makes_the_hours_unknown_and_is_named(paths, change, problem) -> None:
    token = add_job(paths, "train", "2", gpus=4)
    finish(paths, "train", 1, token, hours=1)
    change(paths.job_json(token))
    use = use_of(paths)
    assert (use.gpu_hours.value, use.gpu_hours.missing) == (None, "a record cannot be read")
    assert problem in use.problems[0]
    assert "job.json" in use.problems[0]
