"""Run folders as a submit to Slurm leaves them, without a Slurm."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.formats.records.attempt_records import CompletionName, CompletionRecord, Outcome
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.run_folder.ledger import append_entry, intents, read_ledger
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.schedulers.fake_slurm import name_of


def make_run(
    run_dir: Path,
    stages: Mapping[str, int],
    *,
    after: Mapping[str, Mapping[str, str]] | None = None,
    origins: Mapping[str, str] | None = None,
    scheduler: str = "slurm",
    created_unix_s: float | None = None,
    **meta_values: Any,
) -> RunPaths:
    """A run of stages with so many slices (1: no array); nothing is submitted yet."""
    paths = RunPaths(run_dir)
    run_dir.mkdir(parents=True)
    meta = {
        "run_id": run_dir.name,
        "name": run_dir.name,
        "created_unix_s": time.time() if created_unix_s is None else created_unix_s,
        "submitted_by": "ada",
        "host": "login-1",
        "scheduler": scheduler,
        "version": "0.1.0",
        "spec_file": "/home/ada/spec.yaml",
        **meta_values,
    }
    write_json_atomic(paths.run_json, meta)
    paths.plans_dir.mkdir()
    listed = [
        {
            "name": name,
            "origin": (origins or {}).get(name, ""),
            "run": "shell",
            "num_slices": num_slices,
            "is_array": num_slices > 1,
            "retries": 0,
            "fingerprint": "f",
            "after": dict((after or {}).get(name, {})),
        }
        for name, num_slices in stages.items()
    ]
    write_json_atomic(paths.plan(1), {"stages": listed})
    return paths


def submit(paths: RunPaths, stage: str, num_slices: int, job_id: str | None) -> str:
    """Write down a job as `submit` does, and return its token; id None: it was cut off."""
    token = f"t-{stage}-{job_id}"
    values = {
        "stage": stage,
        "slices": f"0-{num_slices - 1}" if num_slices > 1 else "0",
        "is_array": num_slices > 1,
        "fingerprint": "f",
        "job_name": name_of(job_id or token),
        "base_attempts": {},
    }
    append_entry(paths.ledger_dir, "intent", token, values)
    if job_id is not None:
        append_entry(paths.ledger_dir, "submitted", token, {"job_id": job_id})
    return token


def submitted_run(run_dir: Path, num_slices: int, **meta_values: Any) -> RunPaths:
    """A run of the stage `a`, of which all slices were submitted as job 1."""
    paths = make_run(run_dir, {"a": num_slices}, **meta_values)
    submit(paths, "a", num_slices, "1")
    return paths


def end(
    paths: RunPaths,
    stage: str,
    slices: Sequence[int],
    outcome: Outcome = "completed",
    **values: Any,
) -> None:
    """Write down that attempt 1 of these slices began and ended so."""
    for folder in (paths.attempts_dir(stage), paths.completions_dir(stage)):
        folder.mkdir(parents=True, exist_ok=True)
    entries = read_ledger(paths.ledger_dir)
    token = next((i.token for i in intents(entries) if i.stage == stage), f"t-{stage}-1")
    for index in slices:
        paths.attempt(stage, index, 1).write_text("{}")
        record = CompletionRecord(
            stage=stage,
            slice_index=index,
            attempt=1,
            job_id="1",
            token=token,
            outcome=outcome,
            fingerprint="f",
            started_unix_s=0.0,
            ended_unix_s=1.0,
            exit_code=0 if outcome == "completed" else 1,
            **values,
        )
        name = CompletionName(index, 1, token, outcome)
        write_json_atomic(paths.completion(stage, name), record_to_json(record))
