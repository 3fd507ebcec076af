"""A shell goes on after the signal that ended what it waited for: its 0 proves nothing then."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.end_to_end.driver import Driver, stage_of, wait_for

WORK = """
name: half
cluster: {cluster}
stages:
  a:
    shell: |
      {shell}
    array: {{num_slices: {slices}}}
    resources: {{timeout_min: 5, mem_gb: 0.1{partition}}}
"""
REASON = "ended with exit code 0 after SIGTERM"


def write(driver: Driver, shell: str, *, cluster: str = "local", slices: int = 1) -> None:
    """Write a spec whose slices touch a file where the shell says BEGUN."""
    begun = 'touch "$SLURM_JOBS_OUTPUT_DIR/on-$SLURM_JOBS_SLICE"'
    partition = "" if cluster == "local" else ", slurm: {partition: cpu}"
    text = WORK.format(
        cluster=cluster, shell=shell.replace("BEGUN", begun), slices=slices, partition=partition
    )
    driver.write("spec.yaml", text)


@pytest.mark.parametrize(
    "shell",
    [
        "trap 'echo cleaning' TERM; sleep 1000 & BEGUN; wait; echo the end",
        # The signal may come to the supervisor alone, and the command ends of its own accord.
        "BEGUN; trap '' TERM; kill -TERM $(ps -o ppid= -p $PPID); exit 0",
    ],
    ids=["trapped", "ending"],
)
def test_a_command_that_ends_with_0_after_sigterm_is_not_complete(
    local: Driver, shell: str
) -> None:
    write(local, shell)
    run_dir = local.submit("spec.yaml")
    wait_for((run_dir / "data/a/on-0").exists, "the command at work")
    if "sleep" in shell:
        (run,) = (run_dir / "attempts/a").glob("*.json")
        os.kill(int(json.loads(run.read_text())["pid"]), signal.SIGTERM)
    (part,) = stage_of(local.wait(run_dir), "a")["slices"]
    assert part["status"] == "failed"
    assert REASON in part["reason"]
    assert "a, slice 0" in local.run("resume", str(run_dir), "--dry-run").stdout


@pytest.mark.cluster
def test_no_slice_that_scancel_ended_is_complete(on_slurm: Driver) -> None:
    write(on_slurm, "BEGUN; sleep 1000 && touch whole; echo the end", cluster="auto", slices=8)
    run_dir = on_slurm.submit("spec.yaml")
    begun = run_dir / "data/a"
    wait_for(lambda: len(list(begun.glob("on-*"))) >= 4, "slices at work")
    on_slurm.run("cancel", str(run_dir), "--yes")
    parts = stage_of(on_slurm.wait(run_dir), "a")["slices"]
    assert "completed" not in {part["status"] for part in parts}
    assert not list((run_dir / "completions/a").glob("*.completed.json"))
