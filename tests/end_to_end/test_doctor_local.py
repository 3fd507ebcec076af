"""`slurm-jobs doctor` on this machine: what it finds, prints and leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Any

from tests.end_to_end.driver import Driver, processes_naming, wait_for

SPEC = """
name: here
cluster: profile.yaml
stages:
  work: {shell: "true", python: PYTHON, resources: {tasks_per_node: 2}}
"""


def _spec(driver: Driver, *, local_dir: str | None = None) -> str:
    """Its Python has nothing installed, so that no PyTorch is loaded."""
    bare = driver.folder / "bare"
    command = [sys.executable, "-m", "venv", "--without-pip", str(bare)]
    subprocess.run(command, check=True, capture_output=True)
    folder = local_dir or str(driver.folder / "node-local")
    driver.write("profile.yaml", f"scheduler: local\nnode_local_dir: {folder}\n")
    driver.write("spec.yaml", SPEC.replace("PYTHON", str(bare / "bin" / "python")))
    return "spec.yaml"


def _standings(values: Any) -> dict[str, str]:
    return {check["name"]: check["standing"] for check in values["checks"]}


def test_this_machine_is_checked_and_a_drill_comes_back_with_its_counter(local: Driver) -> None:
    values = local.json("doctor", _spec(local), "--drill")
    found = _standings(values)
    for name in ("hard-links", "packages", "node-runs_dir", "node-signal", "clock", "drill"):
        assert found[name] == "ok", values
    assert found["file-rates"] == "unknown"
    drill = next(check for check in values["checks"] if check["name"] == "drill")
    assert "SIGUSR2 came" in drill["told"]
    assert "by each of 2 ranks" in drill["told"]
    # None of it is the user's newest run.
    assert local.json("runs")["runs"] == []
    (folder,) = local.folder.glob("runs/*")
    assert folder.name == f".doctor-{os.getuid()}"


def test_problems_come_first_with_what_to_do_and_the_exit_code_says_so(local: Driver) -> None:
    spec = _spec(local, local_dir="/proc/nowhere")
    done = local.run("doctor", spec, check=1)
    first = done.stdout.splitlines()[0]
    assert first.startswith("PROBLEM    nodes (the job): 0 of 1 nodes were checked: failed")
    assert "/proc/nowhere" in done.stdout
    assert "logs" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("this run is kept for a day: runs/.doctor-")


def test_without_a_job_nothing_is_submitted_or_made(local: Driver) -> None:
    local.run("doctor", "--no-nodes", "--set", "cluster=local")
    assert list(local.folder.iterdir()) == [local.folder / "user_stages.py"]


def test_ctrl_c_cancels_the_job_and_prints_what_was_found_so_far(local: Driver) -> None:
    process = subprocess.Popen(
        [*local.command, "doctor", _spec(local), "--no-nodes", "--drill"],
        cwd=local.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    found = "runs/.doctor-*/here-drill-*/tasks/drill/*/rank-00001.started.json"
    wait_for(lambda: list(local.folder.glob(found)), "the drill at work")
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted; its jobs are cancelled" in errors
    assert "hard-links" in output
    (run_dir,) = local.folder.glob("runs/.doctor-*/here-drill-*")
    wait_for(lambda: not processes_naming(str(run_dir)), "the end of its processes")
    assert local.status(run_dir)["status"] == "cancelled"
