"""`slurm-jobs probe` on this machine: what it prints, leaves, and does when it is interrupted."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.end_to_end.driver import Driver, wait_for

SPEC = """
name: here
cluster: profile.yaml
stages:
  work: {shell: "true", python: PYTHON, resources: {cpus_per_task: 1}}
"""
SMALL = ("--file-mb", "4")


def _spec(driver: Driver, *, python: str = sys.executable, local_dir: str | None = None) -> str:
    folder = local_dir or str(driver.folder / "node-local")
    driver.write("profile.yaml", f"scheduler: local\nnode_local_dir: {folder}\n")
    driver.write("spec.yaml", SPEC.replace("PYTHON", python))
    return "spec.yaml"


def _bare_python(driver: Driver) -> str:
    """A Python with nothing installed."""
    folder = driver.folder / "bare"
    command = [sys.executable, "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return str(folder / "bin" / "python")


def _files(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


@pytest.mark.slow
def test_two_probes_at_once_print_their_nodes_and_leave_only_their_records(
    local: Driver,
) -> None:
    # Without torch, so that this is quick: what needs it says which package is missing.
    spec = _spec(local, python=_bare_python(local))
    argv = [*local.command, "probe", spec, *SMALL]
    both = [
        subprocess.Popen(argv, cwd=local.folder, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in both:
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 0, output
        assert socket.gethostname() in output
        assert "package torch is missing" in output
        assert "no GPU" in output
    probes = local.folder / "runs" / f".probes-{os.getuid()}"
    assert len(list((probes / socket.gethostname()).glob("*.json"))) == 2
    assert _files(probes / ".scratch") == []
    assert _files(local.folder / "node-local") == []
    listed = local.json("runs")
    assert {run["status"] for run in listed["runs"]} == {"completed"}
    assert len(listed["runs"]) == 2


def test_ctrl_c_leaves_the_job_and_says_how_to_get_its_numbers(
    local: Driver,
) -> None:
    spec = _spec(local, python=_bare_python(local))
    process = subprocess.Popen(
        [*local.command, "probe", spec, *SMALL],
        cwd=local.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: list(local.folder.glob("runs/*/attempts/probe/*.json")), "an attempt")
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "the run continues" in errors
    assert "status runs/here-probe-" in errors
    (run_dir,) = local.folder.glob("runs/here-probe-*")
    assert f"probe runs/{run_dir.name}\n" in errors
    # It waits for the job, which goes on.
    values = local.json("probe", str(run_dir))
    assert (values["status"], values["run_id"]) == ("completed", run_dir.name)
    assert [probe["node"] for probe in values["nodes"]] == [socket.gethostname()]
    again = local.run("probe", f"runs/{run_dir.name}").stdout
    assert "cores usable" in again
    refused = local.run("probe", str(run_dir), "--minutes", "9", check=2)
    assert "--minutes is for a spec" in refused.stderr


@pytest.mark.slow
def test_files_of_a_killed_probe_are_gone_once_the_next_one_has_run(
    local: Driver,
) -> None:
    spec = _spec(local, python=_bare_python(local))
    run_dir = _submitted(local, spec)
    scratch = local.folder / "runs" / f".probes-{os.getuid()}" / ".scratch"
    folders = [scratch, local.folder / "node-local"]
    wait_for(lambda: any(list(f.rglob("owner.json")) for f in folders), "a probe at work")
    started = run_dir / "tasks/probe/s00000.a0001/rank-00000.started.json"
    os.kill(json.loads(started.read_text())["pid"], signal.SIGKILL)
    assert local.wait(run_dir)["status"] == "failed"
    # The large file is gone with the process, or the kill came before its name was removed, when
    # it was empty.
    assert [path for f in folders for path in f.rglob("large") if path.stat().st_size] == []
    local.run("resume", str(run_dir), "--set", "stages.probe.config.file_mb=4")
    assert local.wait(run_dir)["status"] == "completed"
    assert [path for folder in folders for path in _files(folder)] == []


def _submitted(local: Driver, spec: str) -> Path:
    """The run of a probe that goes on by itself."""
    process = subprocess.Popen(
        [*local.command, "probe", spec, "--json"], cwd=local.folder, stdout=subprocess.DEVNULL
    )
    found = wait_for(lambda: list(local.folder.glob("runs/here-probe-*/attempts")), "a run")
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    process.wait(timeout=30)
    return found[0].parent


def test_a_node_local_folder_that_cannot_be_made_is_named_with_what_to_do(local: Driver) -> None:
    done = local.run("probe", _spec(local, local_dir="/proc/nowhere"), *SMALL, check=1)
    assert "node_local_dir is /proc/nowhere" in done.stdout
    assert "name a folder there that you may write in" in done.stdout


@pytest.mark.slow
def test_the_whole_of_it_as_json_with_what_torch_measures(local: Driver) -> None:
    values = local.json("probe", _spec(local), *SMALL)
    (probe,) = values["nodes"]
    assert values["status"] == "completed"
    assert probe["numbers"]["matmul_fp32_flops_per_s"] > 1e8
    assert "--nodes 2" in probe["reasons"]["network"]
    assert values["slow"] == values["problems"] == []


def test_a_run_that_is_no_probe_is_refused(local: Driver) -> None:
    run_dir = local.submit(_spec(local))
    refused = local.run("probe", str(run_dir), check=2)
    assert "is not a probe (its stages: work)" in refused.stderr
