"""Planning, reconciling and resuming an array of N tasks from synthetic records.

    python -m benchmarks.simulation N

Prints one JSON value: the seconds of each step, and the peak memory of this process. No scheduler
is called; the answers of squeue and sacct are synthetic: nine of ten tasks are complete, one of a
hundred failed, the rest is pending. The folder of records is written and read, too.
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from slurm_jobs.cluster.limits import ClusterLimits
from slurm_jobs.formats.records.attempt_records import TaskAccounting
from slurm_jobs.plan.make_plan import make_plan
from slurm_jobs.plan.planned import Plan, PlannedJob
from slurm_jobs.run.prepare_resume import sort_out
from slurm_jobs.run_folder.ledger import Intent
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_stage_records
from slurm_jobs.run_folder.run_values import RunMeta, RunRecords, StageRecords, StageSummary
from slurm_jobs.schedulers.protocol import Answer
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.profile import ClusterProfile
from slurm_jobs.status.reconcile import reconcile

T = TypeVar("T")

MAX_ARRAY_SIZE = 1001
"""Slurm's default: the largest index is one less."""


def main() -> None:
    """Run the simulation of N tasks."""
    print(json.dumps(simulate(int(sys.argv[1]))))


def simulate(num_tasks: int) -> dict[str, float]:
    """Return seconds by step, `total_s` and `max_rss_mb`."""
    spent: dict[str, float] = {}

    def timed(step: str, work: Callable[[], T]) -> T:
        start_s = time.perf_counter()
        result = work()
        spent[f"{step}_s"] = time.perf_counter() - start_s
        return result

    spec = _spec(num_tasks)
    limits = ClusterLimits(max_array_size=MAX_ARRAY_SIZE)
    profile = ClusterProfile()
    plan = timed("plan", lambda: make_plan(spec, profile, limits=limits))
    intents = _intents(plan)
    folder = Path(tempfile.mkdtemp(prefix="slurm-jobs-simulation-"))
    try:
        _write_records(RunPaths(folder), intents)
        records = timed("read", lambda: read_stage_records(RunPaths(folder), "tokens"))
    finally:
        shutil.rmtree(folder)
    run = _run(plan, intents, records)
    answer = _answer(intents)
    status = timed("reconcile", lambda: reconcile(run, answer))
    fingerprints = {stage.name: stage.fingerprint for stage in plan.stages}
    living = {job for job, task in answer.tasks.items() if task.state == "PENDING"}
    prepared = timed("sort out", lambda: sort_out(run, status, fingerprints, living=living))
    smaller = timed(
        "plan the rest", lambda: make_plan(spec, profile, done=prepared.done, limits=limits)
    )
    assert sum(len(job.slices) for job in smaller.jobs if job.stage == "tokens") == sum(
        _fate(i) == "FAILED" for i in range(num_tasks)
    )
    spent["total_s"] = sum(spent.values())
    spent["max_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return spent


def _spec(num_tasks: int) -> RunSpec:
    stages: dict[str, Any] = {
        "tokens": {"run": "own:tokens", "array": {"num_slices": num_tasks}},
        "merge": {"run": "own:merge", "after": "tokens"},
    }
    return RunSpec.model_validate({"name": "large", "cluster": "auto", "stages": stages})


def _fate(index: int) -> str:
    if index % 10:
        return "COMPLETED"
    return "FAILED" if index % 100 == 0 else "PENDING"


def _intents(plan: Plan) -> list[Intent]:
    return [_intent(plan, job, number) for number, job in enumerate(plan.jobs, start=1)]


def _intent(plan: Plan, job: PlannedJob, number: int) -> Intent:
    stage = plan.stage(job.stage)
    return Intent(
        number=number,
        token=f"{number:08x}",
        stage=job.stage,
        slices=job.slices,
        is_array=stage.is_array,
        fingerprint=stage.fingerprint,
        job_name=f"large.{job.stage}.{number:08x}",
        time_unix_s=0.0,
        job_id=str(1000 + number),
        submitted_unix_s=0.0,
        slices_per_task=job.slices_per_task,
    )


def _write_records(paths: RunPaths, intents: list[Intent]) -> None:
    """Write empty records: their contents are read only for failures that are shown."""
    for folder in (paths.attempts_dir("tokens"), paths.completions_dir("tokens")):
        folder.mkdir(parents=True)
    for intent in intents:
        for index in intent.slices if intent.stage == "tokens" else ():
            fate = _fate(index)
            if fate == "PENDING":
                continue
            name = f"s{index:05d}.a0001"
            (paths.attempts_dir("tokens") / f"{name}.json").touch()
            ending = f"{name}.{intent.token}.{fate.lower()}.json"
            (paths.completions_dir("tokens") / ending).touch()


def _run(plan: Plan, intents: list[Intent], records: StageRecords) -> RunRecords:
    meta = RunMeta(
        run_id="large", name="large", created_unix_s=0.0, submitted_by="ada", host="login-1",
        scheduler="slurm", version="0", spec_file="large.yaml",
    )  # fmt: skip
    summaries = tuple(
        StageSummary(
            name=stage.name,
            run=stage.run,
            num_slices=stage.num_slices,
            is_array=stage.is_array,
            retries=0,
            fingerprint=stage.fingerprint,
            after={d.stage: d.kind for d in stage.after},
        )
        for stage in plan.stages
    )
    none = StageRecords(attempts={}, endings={})
    return RunRecords(
        meta=meta,
        stages=summaries,
        intents=tuple(intents),
        records={"tokens": records, "merge": none},
    )


def _answer(intents: list[Intent]) -> Answer:
    tasks = {}
    for intent in intents:
        for index in intent.slices:
            job = intent.element(index)
            assert job is not None
            state = _fate(index) if intent.stage == "tokens" else "PENDING"
            tasks[job] = TaskAccounting(
                job_id=job.job_id, job_name=job.name, state=state, source="squeue"
            )
    return Answer(tasks=tasks, asked_unix_s=1.0)


if __name__ == "__main__":
    main()
