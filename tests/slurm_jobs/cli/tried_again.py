"""Runs of one stage whose slices were tried again, as Slurm and the supervisor leave them."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.formats.records.attempt_records import (
    AttemptRecord,
    CompletionName,
    CompletionRecord,
    Outcome,
    StopRequest,
)
from slurm_jobs.formats.records.record_json import record_to_json
from slurm_jobs.run_folder.ledger import append_entry
from slurm_jobs.run_folder.orders import name_of_job
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.run.fabricate import make_run
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm, make_fake_slurm

NAME = name_of_job("r", "train", "t")


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    monkeypatch.setenv("COLUMNS", "120")
    fake = make_fake_slurm(tmp_path / "bin", monkeypatch)
    fake.says("squeue", "")
    return fake


def make(tmp_path: Path, num_slices: int) -> RunPaths:
    """A run of the stage `train`, submitted as job 7."""
    paths = make_run(tmp_path / "r", {"train": num_slices}, created_unix_s=1000.0)
    _submitted(paths, "t", "7", num_slices)
    for folder in (paths.attempts_dir("train"), paths.completions_dir("train")):
        folder.mkdir(parents=True)
    return paths


def submit_again(paths: RunPaths, token: str, job: str) -> None:
    """Submit the only slice in another job."""
    _submitted(paths, token, job, 1)


def _submitted(paths: RunPaths, token: str, job: str, num_slices: int) -> None:
    values = {
        "stage": "train",
        "slices": f"0-{num_slices - 1}",
        "is_array": num_slices > 1,
        "fingerprint": "f",
        "job_name": name_of_job("r", "train", token),
        "base_attempts": {},
    }
    append_entry(paths.ledger_dir, "intent", token, values)
    append_entry(paths.ledger_dir, "submitted", token, {"job_id": job})


def began(
    paths: RunPaths,
    attempt: int,
    start_s: float,
    *,
    index: int = 0,
    job: str = "7",
    token: str = "t",
) -> None:
    record = AttemptRecord(
        stage="train", slice_index=index, attempt=attempt, job_id=job, token=token, fingerprint="f",
        started_unix_s=start_s, node_names=(f"v{attempt}",), host="h", pid=1, num_ranks=1,
        scheduler="slurm", restart=attempt - 1,
    )  # fmt: skip
    write_json_atomic(paths.attempt("train", index, attempt), record_to_json(record))


def ended(
    paths: RunPaths,
    attempt: int,
    end_s: float,
    outcome: Outcome,
    *,
    index: int = 0,
    reason: str = "",
    stop_request: StopRequest | None = None,
    token: str = "t",
) -> None:
    record = CompletionRecord(
        stage="train", slice_index=index, attempt=attempt, job_id="7", token=token, outcome=outcome,
        fingerprint="f", started_unix_s=0.0, ended_unix_s=end_s, exit_code=0, reason=reason,
        stop_request=stop_request,
    )  # fmt: skip
    name = CompletionName(index, attempt, token, outcome)
    write_json_atomic(paths.completion("train", name), record_to_json(record))


def row(state: str, start_s: int, end_s: int, job: str = "7") -> str:
    """A start, as sacct prints it."""
    times = f"1000|1000|{start_s}|{end_s}"
    return f"{job}|{state}|0:0|{times}|v1|2|2G||00:01.000|600||None|{NAME}\n"


@pytest.fixture
def stopped_twice(tmp_path: Path, slurm: FakeSlurm) -> RunPaths:
    """A training that was preempted, reached its time limit, and was cancelled."""
    paths = make(tmp_path, 1)
    began(paths, 1, 2000.0)
    ended(paths, 1, 2060.0, "stopped", stop_request="sigterm")
    began(paths, 2, 2070.0)
    ended(paths, 2, 2300.0, "stopped", stop_request="time limit")
    began(paths, 3, 2310.0)
    rows = [row("PREEMPTED", 1999, 2061), row("REQUEUED", 2069, 2301), row("CANCELLED", 2309, 2400)]
    slurm.says("sacct", "".join(rows))
    return paths
