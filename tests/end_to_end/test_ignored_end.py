"""A stage that does not end at its time limit: what its main thread waits for is recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.driver import Driver, stage_of

STAGES = """
import multiprocessing, signal, time

def sleep_on():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(0.05)

def joins(config, context):
    child = multiprocessing.get_context("fork").Process(target=sleep_on)
    child.start()
    time.sleep(1)
    child.terminate()
    child.join()

def computes(config, context):
    while True:
        sum(range(100_000))
"""
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
    shell: "trap '' TERM; while true; do sleep 0.05; done"
    resources: *limit
"""
PLACES = {
    "joins": "2 s after SIGTERM rank 0 on {node} was at joins (ignores.py:14), in join. Stacks: ",
    "computes": "was at computes (ignores.py:1",
}


def reasons(driver: Driver, timeout_min: float) -> tuple[Path, Any, dict[str, str]]:
    """Run the stages to their limit; the run's folder, its status, and what is said of each."""
    cluster = "local" if driver.cluster is None else "auto"
    driver.write("ignores.py", STAGES)
    driver.write("spec.yaml", SPEC.format(cluster=cluster, timeout_min=timeout_min))
    run_dir = driver.submit("spec.yaml")
    status = driver.wait(run_dir, timeout_s=300)
    lines = driver.run("status", str(run_dir), check=None).stdout.splitlines()
    names = ("joins", "computes", "command")
    said = {
        name: next(line for line in lines if line.startswith(f"{name} failed")) for name in names
    }
    return run_dir, status, said


def test_the_line_that_waits_is_in_the_record_and_the_status(local: Driver) -> None:
    run_dir, status, said = reasons(local, 0.05)
    for name, place in PLACES.items():
        (part,) = stage_of(status, name)["slices"]
        assert part["state"] == "TIMEOUT"
        (path,) = (run_dir / "completions" / name).iterdir()
        record = json.loads(path.read_text())
        for text in (record["reason"], said[name]):
            assert place.format(node="local0") in text
        assert record["reason"].startswith("After SIGTERM from outside")
    assert said["command"].endswith("reached its time limit of 0.05 min (resources.timeout_min)")


@pytest.mark.cluster
@pytest.mark.slow
def test_it_is_in_the_status_where_slurm_ends_the_job(on_slurm: Driver) -> None:
    _, _, said = reasons(on_slurm, 1)
    for name, place in PLACES.items():
        assert place.partition("{node}")[2] in said[name]
        assert "reached its time limit of 1 min" in said[name]
