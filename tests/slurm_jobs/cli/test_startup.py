"""The command must be quick on a login node with a slow home file system."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
HEAVY = ("torch", "transformers", "accelerate", "submitit", "rich", "numpy", "pipeline")
COMMANDS = {"help": (["--help"], 0.25), "check": (["check", str(ROOT / "configs/demo.yaml")], 0.6)}


def cpu_time_s(arguments: list[str]) -> float:
    """User and system time of one call; a busy machine lengthens the wall clock alone."""
    process = subprocess.Popen(
        [sys.executable, "-m", "slurm_jobs", *arguments], cwd=ROOT, stdout=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_starts_quickly(name: str) -> None:
    arguments, limit_s = COMMANDS[name]
    times = []
    for _ in range(5):  # caches are cold once, and neighbours steal cycles: the best counts
        times.append(cpu_time_s(arguments))
        if times[-1] < limit_s:
            return
    pytest.fail(f"{name} took {min(times):.2f} s of processor time at best; allowed: {limit_s} s")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_imports_nothing_heavy(name: str) -> None:
    arguments, _ = COMMANDS[name]
    command = [sys.executable, "-X", "importtime", "-m", "slurm_jobs", *arguments]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    modules = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert "slurm_jobs.cli" in modules
    heavy = {module for module in modules if module.partition(".")[0] in HEAVY}
    assert heavy == set()


def test_looking_at_a_run_does_not_load_the_model_of_specs() -> None:
    """It takes twice as long as all the rest."""
    command = [sys.executable, "-X", "importtime", "-c", "import slurm_jobs.cli.look"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    modules = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert "slurm_jobs.reconcile" in modules
    assert not {module for module in modules if module.partition(".")[0] in {"pydantic", "yaml"}}
