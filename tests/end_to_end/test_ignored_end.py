"""A stage that does not end at its time limit: what its main thread waits for is recorded."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from tests.end_to_end.driver import Driver, stage_of, wait_for

STAGES = """
import multiprocessing, signal, time

def sleep_on(ready):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready.set()
    while True:
        time.sleep(0.05)

def joins(config, context):
    fork = multiprocessing.get_context("fork")
    ready = fork.Event()
    child = fork.Process(target=sleep_on, args=(ready,))
    child.start()
    ready.wait()
    child.terminate()
    (context.output_dir / "on-0").touch()
    child.join()

def computes(config, context):
    (context.output_dir / f"on-{context.rank}").touch()
    while True:
        sum(range(100_000))
"""
JOIN = STAGES.splitlines().index("    child.join()") + 1
NUM_RANKS = {"joins": 1, "command": 1, "computes": 2}
"""In the order in which two cores can run them."""
SPEC = """
name: ignores
cluster: {cluster}
stages:
  joins:
    run: "ignores:joins"
    resources: &limit {{timeout_min: {timeout_min}, signal_lead_s: 0}}
  computes:
    run: "ignores:computes"
    resources: {{tasks_per_node: 2, timeout_min: {timeout_min}, signal_lead_s: 0}}
  command:
    shell: "trap '' TERM; touch $SLURM_JOBS_OUTPUT_DIR/on-0; while true; do sleep 0.05; done"
    resources: *limit
"""
PLACES = {
    "joins": f"2 s after SIGTERM rank 0 on {{node}} was at joins (ignores.py:{JOIN}), in join. ",
    "computes": "was at computes (ignores.py:",
}


def submitted(driver: Driver, timeout_min: float) -> Path:
    cluster = "local" if driver.cluster is None else "auto"
    driver.write("ignores.py", STAGES)
    driver.write("spec.yaml", SPEC.format(cluster=cluster, timeout_min=timeout_min))
    return driver.submit("spec.yaml")


def failures(driver: Driver, run_dir: Path) -> dict[str, str]:
    """Wait for the end, and return what `status` says of each stage."""
    driver.wait(run_dir, timeout_s=300)
    lines = driver.run("status", str(run_dir), check=None).stdout.splitlines()
    return {
        name: next(line for line in lines if line.startswith(f"{name} failed"))
        for name in NUM_RANKS
    }


def test_the_line_that_waits_is_in_the_record_and_the_status(local: Driver) -> None:
    run_dir = submitted(local, 20)
    for name, num_ranks in NUM_RANKS.items():
        for rank in range(num_ranks):
            wait_for((run_dir / f"data/{name}/on-{rank}").exists, f"{name} at work")
        attempt = json.loads((run_dir / f"attempts/{name}/s00000.a0001.json").read_text())
        os.kill(attempt["pid"], signal.SIGTERM)
    said = failures(local, run_dir)
    for name in NUM_RANKS:
        (path,) = (run_dir / "completions" / name).iterdir()
        reason = json.loads(path.read_text())["reason"]
        assert reason.startswith("After SIGTERM from outside")
        for text in (reason, said[name]):
            assert PLACES.get(name, "was killed").format(node="local0") in text
    assert said["command"].endswith("did not end within 8 s, and was killed")


def test_the_line_that_waits_is_in_the_status_of_a_cancelled_stage(local: Driver) -> None:
    run_dir = submitted(local, 20)
    wait_for((run_dir / "data/joins/on-0").exists, "joins at work")
    local.run("cancel", str(run_dir), "--yes")
    status = local.wait(run_dir)
    place = PLACES["joins"].format(node="local0")
    said = local.run("status", str(run_dir), check=None).stdout
    assert f"joins cancelled, with a note: {place}" in said
    assert f"by `slurm-jobs cancel`; {place}" in stage_of(status, "joins")["slices"][0]["reason"]


@pytest.mark.cluster
@pytest.mark.slow
def test_it_is_in_the_status_where_slurm_ends_the_job(on_slurm: Driver) -> None:
    said = failures(on_slurm, submitted(on_slurm, 1))
    for name, place in PLACES.items():
        assert place.rpartition("{node}")[2] in said[name]
        assert "reached its time limit of 1 min" in said[name]
