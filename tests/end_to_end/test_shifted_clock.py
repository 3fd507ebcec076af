"""A login node whose clock differs from that of the nodes and of Slurm."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.end_to_end.driver import Driver, kill, stage_of, wait_for, words_of

pytestmark = pytest.mark.cluster

SPEC = """
name: late
stages:
  a:
    run: "user_stages:work"
    array: {num_slices: 3}
    config: {hang: [1]}
    resources: {timeout_min: 5}
  b: {run: "user_stages:work", after: a, resources: {timeout_min: 5}}
"""


@pytest.mark.parametrize(
    ("offset", "is_submitted_there"),
    [
        ("-10m", True),
        ("+10m", False),
        *(
            pytest.param(*values, marks=pytest.mark.slow)
            for values in [("-10m", False), ("+10m", True), ("+3h", True), ("+3h", False)]
        ),
    ],
)
def test_one_resume_after_a_killed_supervisor_completes_the_run(
    on_slurm: Driver, offset: str, *, is_submitted_there: bool
) -> None:
    login = replace(on_slurm, command=("faketime", "-f", offset, *on_slurm.command))
    login.write("spec.yaml", SPEC)
    run_dir = (login if is_submitted_there else on_slurm).submit("spec.yaml")
    wait_for((run_dir / "tasks/a/s00001.a0001/hangs-0").exists, "the slice at work")
    created = json.loads((run_dir / "run.json").read_text())["created_unix_s"]
    assert (abs(created - time.time()) > 300) == is_submitted_there
    kill(json.loads((run_dir / "attempts/a/s00001.a0001.json").read_text())["pid"])

    def is_seen() -> Any:
        return stage_of(login.status(run_dir), "a")["status"] == "failed"

    wait_for(is_seen, "the death of the supervisor to be seen")
    login.run("resume", str(run_dir))
    assert words_of(login.wait(run_dir)) == {"a": "completed", "b": "completed"}
    attempts = [path.name for path in (run_dir / "attempts/a").iterdir()]
    assert sorted(attempts) == [
        "s00000.a0001.json",
        "s00001.a0001.json",
        "s00001.a0002.json",
        "s00002.a0001.json",
    ]
