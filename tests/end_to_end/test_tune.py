"""`slurm-jobs tune` on this machine: real trials, and a planted cause that a knob mends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.causes import PLANTS, READS
from tests.end_to_end.driver import COMMAND, Driver, kill, rank_pid, wait_for
from tests.pipeline.build import (
    run_consolidate,
    run_preprocess,
    write_csv_manifest,
    write_processor,
)

SPEC = """
# a small training
name: small
cluster: local
environment: ENVIRONMENT
stages:
  train:
    run: train
    resources: {cpus_per_task: 1, mem_gb: 2, timeout_min: 10}
    config:
      device: cpu   # no GPU here
      dataset: DATA
      model:
        vision: {hidden_size: SIZE, num_layers: 3, num_heads: 2}
        language: {hidden_size: SIZE, num_layers: 3, num_heads: 2}
      strategy: single
      num_steps: 100
      global_batch_size: 8
      num_compute_threads: 1
      LOADER
  later: {run: report, after: train}
"""
ENOUGH = "num_prefetch_batches: 8"
TOO_FEW = """num_prefetch_batches: 1   # as the cause is planted, too few
      num_loader_threads: 4"""
SLOW_READS = [{"where": READS, "sleep_s": 0.2}]
"""As a slow file system makes them: few threads are at work while one step is read ahead."""


@pytest.fixture(scope="module")
def dataset_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dataset")
    values = {
        "manifest": str(write_csv_manifest(folder / "source", 64)),
        "processor": str(write_processor(folder / "processor")),
        "num_threads": 1,
    }
    _, parts_dir = run_preprocess(folder / "prep", values)
    return run_consolidate(folder / "set", parts_dir)[1]


def write_spec(driver: Driver, dataset_dir: Path, *, is_slow: bool = False) -> None:
    planted = {"PYTHONPATH": str(PLANTS), "TEST_PLANTS": json.dumps(SLOW_READS if is_slow else [])}
    text = SPEC.replace("DATA", str(dataset_dir)).replace("ENVIRONMENT", json.dumps(planted))
    text = text.replace("LOADER", TOO_FEW if is_slow else ENOUGH)
    # The planted wait is to be the step: what else runs on this machine then shows little in it.
    driver.write("small.yaml", text.replace("SIZE", "16" if is_slow else "96"))


def run_of(driver: Driver) -> Path:
    (run_dir,) = (driver.folder / "runs").iterdir()
    return run_dir


def trials_of(run_dir: Path) -> list[dict[str, object]]:
    paths = sorted((run_dir / "data" / "train" / "trials").glob("*.json"))
    return [json.loads(path.read_text()) for path in paths]


@pytest.mark.slow
def test_a_too_small_budget_fails_with_the_least_and_keeps_its_trial(
    local: Driver, dataset_dir: Path
) -> None:
    write_spec(local, dataset_dir)
    done = local.run("tune", "small.yaml", "--budget", "0.1", check=1)
    assert "is too small" in done.stderr
    assert "give --budget" in done.stderr
    way_on = done.stderr.splitlines()[-1]
    assert " resume runs/small-tune-" in way_on
    assert " --set stages.train.config.budget_min=" in way_on
    assert " --set stages.train.resources.timeout_min=" in way_on
    (probe,) = trials_of(run_of(local))
    assert probe["purpose"] == "probe"
    assert probe["failure"] == ""


@pytest.mark.slow
def test_ctrl_c_leaves_the_tuning_running_and_says_how_to_come_back(
    local: Driver, dataset_dir: Path
) -> None:
    write_spec(local, dataset_dir)
    words = [*COMMAND, "tune", "small.yaml", "--budget", "0.1"]
    process = subprocess.Popen(
        words, cwd=local.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    while "train: running" not in process.stdout.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "the run continues" in said
    assert f"tune {os.path.relpath(run_of(local), local.folder)}" in said
    assert local.status(run_of(local))["status"] == "running"
    local.run("cancel", str(run_of(local)), "--yes")


@pytest.mark.slow
@pytest.mark.alone
def test_a_killed_tuning_continues_and_removes_the_planted_cause(
    local: Driver, dataset_dir: Path
) -> None:
    write_spec(local, dataset_dir, is_slow=True)
    submitted = subprocess.Popen(
        [*COMMAND, "tune", "small.yaml", "--budget", "8"],  # 4 are too few on a slow core
        cwd=local.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: (local.folder / "runs").is_dir() and run_of(local), "the run")
    run_dir = run_of(local)
    wait_for(
        lambda: len(trials_of(run_dir)) >= 3 or submitted.poll() is not None,
        "three trials",
        timeout_s=300,
    )
    assert submitted.poll() is None, local.run("logs", str(run_dir)).stdout
    pid = wait_for(lambda: rank_pid(run_dir, "train", "s00000.a0001", 0), "its rank")
    kill(pid)
    assert submitted.wait(60) == 1
    before = trials_of(run_dir)
    local.run("resume", str(run_dir))
    result = local.json("tune", str(run_dir), "--out", "tuned.yaml")

    assert trials_of(run_dir)[: len(before)] == before
    assert [t["purpose"] for t in trials_of(run_dir)].count("probe") == 1
    kept = {one["key"]: one["value"] for one in result["kept"]}
    first = result["tried"][0]
    assert (first["name"], first["outcome"]) == ("num_prefetch_batches: 2", "kept")
    assert result["findings"][0]["rule"] == "data-wait"
    assert result["data"]["word"] == "faster"
    assert result["closing"]["word"] == "faster"
    assert result["closing"]["low"] > 1.2
    text = (local.folder / "tuned.yaml").read_text()
    assert f"num_prefetch_batches: {kept['num_prefetch_batches']}   # as the cause" in text
    assert "# no GPU here" in text
    local.run("check", "tuned.yaml")
    assert "times" in local.run("tune", str(run_dir)).stdout


@pytest.mark.slow
@pytest.mark.alone
def test_a_healthy_training_keeps_nothing(local: Driver, dataset_dir: Path) -> None:
    write_spec(local, dataset_dir)
    result = local.json("tune", "small.yaml", "--budget", "4")
    assert result["kept"] == []
    assert result["closing"] is None
    spec = Path(result["spec"]["path"]).read_text()
    assert spec == (local.folder / "small.yaml").read_text()
