"""What is noted of a node: facts, whatever nvidia-smi does, and nothing of the environment else."""

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.base.redact import looks_secret
from slurm_jobs.formats.records.task_context import TaskContext
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.worker import node_facts
from slurm_jobs.worker.node_facts import SHOWN_VARIABLES, note_node, read_gpus
from tests.contexts import make_context

H200 = "0, NVIDIA H200, GPU-11c0, 143771, 570.86.15"


@pytest.fixture
def context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TaskContext:
    """Of a node without nvidia-smi."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    return make_context("s", tmp_path / "run", run_dir=tmp_path / "run")


def noted(context: TaskContext, **variables: str) -> dict[str, Any]:
    target = context.task_dir / "node.json"
    note_node(context, target, variables)
    values: dict[str, Any] = json.loads(target.read_text())
    return values


def nvidia_smi(tmp_path: Path, script: str) -> None:
    """An nvidia-smi that does what `script` says: there is no GPU where the tests run."""
    path = tmp_path / "bin" / "nvidia-smi"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)


def test_modules_and_the_allocation_are_noted_and_other_variables_are_not(
    context: TaskContext,
) -> None:
    facts = noted(
        context,
        LOADEDMODULES="gcc/12:cuda/12.4",
        SLURM_JOB_ID="12",
        SLURM_JOB_NODELIST="gpu[01-02]",
        SLURM_MY_TOKEN="s3cr3t",
        HF_TOKEN="s3cr3t",
    )
    assert facts["modules"] == ["gcc/12", "cuda/12.4"]
    assert facts["variables"] == {"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "gpu[01-02]"}
    assert "s3cr3t" not in json.dumps(facts)
    assert not any(map(looks_secret, SHOWN_VARIABLES))


def test_a_node_without_modules_slurm_or_gpus_is_noted_as_such(context: TaskContext) -> None:
    facts = noted(context)
    assert (facts["modules"], facts["variables"], facts["gpus"]) == ([], {}, [])
    assert facts["gpu_problem"] == ""
    assert facts["python_on_path"] is None
    assert facts["host"]["name"] == os.uname().nodename


def test_gpus_are_named_with_memory_and_driver(context: TaskContext, tmp_path: Path) -> None:
    nvidia_smi(tmp_path, f"echo '{H200}'; echo '1, NVIDIA X, GPU-2, [N/A], 570.86.15'")
    facts = noted(context)
    assert facts["gpu_problem"] == ""
    assert [(g["name"], g["memory_bytes"], g["driver_version"]) for g in facts["gpus"]] == [
        ("NVIDIA H200", 143771 * 2**20, "570.86.15"),
        ("NVIDIA X", None, "570.86.15"),
    ]


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo 'No devices were found'", ""),
        ("echo broken >&2; exit 9", "nvidia-smi: broken"),
        ("sleep 1000", "nvidia-smi: no answer in 0.2 s"),
    ],
)
def test_whatever_nvidia_smi_does_the_other_facts_are_noted(
    context: TaskContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, problem: str
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin", prepend=os.pathsep)
    monkeypatch.setattr(node_facts, "NVIDIA_LIMIT_S", 0.2 if "sleep" in script else 60.0)
    nvidia_smi(tmp_path, script)
    facts = noted(context)
    assert (facts["gpus"], facts["gpu_problem"]) == ([], problem)
    assert facts["memory_bytes"]


def test_facts_stand_there_before_nvidia_smi_has_answered(
    context: TaskContext, tmp_path: Path
) -> None:
    target = context.task_dir / "node.json"
    nvidia_smi(tmp_path, f"/bin/cat {target} > {tmp_path}/seen; echo '{H200}'")
    assert noted(context)["gpus"]
    seen = json.loads((tmp_path / "seen").read_text())
    assert "had not answered" in seen["gpu_problem"]
    assert seen["host"]


def test_a_line_of_another_form_is_no_gpu() -> None:
    assert read_gpus("") == []
    assert len(read_gpus(f"{H200}\nFailed to initialize NVML: Driver/library mismatch\n")) == 1


def test_equal_pythons_share_one_private_file(context: TaskContext) -> None:
    fingerprints = {noted(context)["python"] for _ in range(3)}
    paths = RunPaths(context.run_dir)
    (file,) = paths.pythons_dir.iterdir()
    assert {file} == {paths.python(f) for f in fingerprints}
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    python = json.loads(file.read_text())
    assert python["executable"] == sys.executable
    assert python["packages"]["pytest"] == pytest.__version__
