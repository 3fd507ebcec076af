"""The command must be quick on a login node with a slow home file system.

There each module that is imported costs a look-up or several; the seconds are measured by
`benchmarks/orchestrator.py`.
"""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
HEAVY = ("torch", "transformers", "accelerate", "submitit", "rich", "numpy", "pipeline")
COMMANDS = {"help": (["--help"], 150), "check": (["check", str(ROOT / "configs/demo.yaml")], 450)}
"""With the most modules that each may import; Python alone has some 40."""


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_imports_little_and_nothing_heavy(name: str) -> None:
    arguments, at_most = COMMANDS[name]
    command = [sys.executable, "-X", "importtime", "-m", "slurm_jobs", *arguments]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    modules = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert "slurm_jobs.cli.main" in modules
    unwanted = HEAVY if name == "check" else (*HEAVY, "dataclasses", "inspect", "uuid", "difflib")
    heavy = {module for module in modules if module.partition(".")[0] in unwanted}
    assert heavy == set()
    assert len(modules) <= at_most


def test_looking_at_a_run_does_not_load_the_model_of_specs() -> None:
    """It takes twice as long as all the rest."""
    views = ("problems", "run_snapshot", "stages_table", "status_json")
    code = "import slurm_jobs.cli.runs.status"
    code += "".join(f", slurm_jobs.cli.run_view.{view}" for view in views)
    command = [sys.executable, "-X", "importtime", "-c", code]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    modules = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert "slurm_jobs.status.reconcile" in modules
    assert not {module for module in modules if module.partition(".")[0] in {"pydantic", "yaml"}}
