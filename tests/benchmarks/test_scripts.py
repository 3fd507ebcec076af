"""The scripts that `make bench` runs, in short, but those that need peers of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        "preprocess",
        "staging",
        "packing",
        "growth",
        "resume",
        "checkpointing",
        *("report", "statistics", "updates", "families"),
    ],
)
def test_script_runs_and_measures_ours(script: str, tmp_path: Path) -> None:
    argv = [sys.executable, "-m", f"benchmarks.{script}", "--quick"]
    argv += ["--json", str(tmp_path / "found.json")]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["rows"]
    assert all(row["ours"] is not None for row in found["rows"])
