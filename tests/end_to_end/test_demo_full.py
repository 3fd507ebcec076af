"""The demo as `make demo` runs it: it must really learn, measured by generation."""

from __future__ import annotations

import json
import shlex
import subprocess

import pytest

from tests.end_to_end.demo import assert_phases_are_the_wall_clock, copy_configs
from tests.end_to_end.driver import Driver


@pytest.mark.slow
def test_the_demo_captions_nine_of_ten_held_out_pictures_exactly_right(local: Driver) -> None:
    done = local.run("run", copy_configs(local))
    run_dir = next((local.folder / "runs").iterdir())
    found = json.loads((run_dir / "data/train/evaluation.json").read_text())
    assert found["num_distinct_references"] >= 48
    assert found["exact_match"] >= 0.9
    assert_phases_are_the_wall_clock(run_dir)
    lines = (run_dir / "data/train/generations.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    assert sum(row["generated"] == row["reference"] for row in rows) == found["num_exact"]
    tried = done.stdout.partition("\nTry next:\n")[2].splitlines()
    assert len(tried) == 3
    for line in tried:
        assert subprocess.run(shlex.split(line), cwd=local.folder, check=True).returncode == 0
