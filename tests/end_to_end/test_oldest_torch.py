"""The model and strategy tests in an environment with the oldest torch that is supported."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.end_to_end.test_packages import CHECKOUT, PROJECT, pip

TRAIN = PROJECT["optional-dependencies"]["train"]
(OLDEST,) = (match[1] for line in TRAIN if (match := re.match(r"torch>=([\d.]+),", line)))
FOLLOWS_TORCH = ("torch", "torchvision", "setuptools")
"""Their pins are those of another torch."""
TESTS = ("tests/pipeline/models", "tests/pipeline/training/strategies")


@pytest.mark.slow
def test_models_and_strategies_pass_with_the_oldest_torch(tmp_path: Path) -> None:
    """A CUDA build where the index has no other; it runs on a CPU, and takes 8 GB of disk."""
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    python = tmp_path / "env" / "bin" / "python"
    pins = (CHECKOUT / "constraints.txt").read_text().splitlines()
    kept = [pin for pin in pins if re.split(r"[=;]", pin)[0] not in FOLLOWS_TORCH]
    (tmp_path / "pins.txt").write_text("\n".join(kept))
    # Of the project, not the project: what runs is this checkout.
    needs = [line for line in [*PROJECT["dependencies"], *TRAIN] if not line.startswith("torch>")]
    tools = ["pytest", "pytest-xdist", "hypothesis", "jsonschema"]
    pip(python, "install", "-c", tmp_path / "pins.txt", f"torch=={OLDEST}.*", *needs, *tools)

    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYTEST"))}
    done = subprocess.run(
        [python, "-m", "pytest", "-q", "-rs", "-m", "not slow", *TESTS],
        cwd=CHECKOUT, env={**environment, "PYTHONPATH": str(CHECKOUT)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    print(done.stdout)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert re.search(r"\d+ passed", done.stdout)
