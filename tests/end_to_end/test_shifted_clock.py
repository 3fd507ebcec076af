"""A login node whose clock differs from that of the nodes and of Slurm."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.driver import Driver, kill, stage_of, wait_for, words_of

pytestmark = pytest.mark.cluster
(LIBRARY, *_) = [*Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), Path("libfaketime.so.1")]
SHIFT = "LD_PRELOAD", "FAKETIME", "NO_FAKE_STAT"

SPEC = f"""
name: late
setup: ["unset {" ".join(SHIFT)}"]
stages:
  a:
    run: "user_stages:work"
    array: {{num_slices: 3}}
    config: {{hang: [1]}}
    resources: {{timeout_min: 5}}
  b: {{run: "user_stages:work", after: a, resources: {{timeout_min: 5}}}}
"""


def shifted(driver: Driver, offset_s: int) -> Driver:
    """The same user at a login node whose clock is off by so many seconds."""
    values = (str(LIBRARY), f"{offset_s:+d}", "1")
    words = [f"{name}={value}" for name, value in zip(SHIFT, values, strict=True)]
    return replace(driver, command=("env", *words, *driver.command))


@pytest.mark.parametrize("offset_s", [-600, 600])
def test_a_resume_after_a_killed_supervisor_completes_the_run(
    on_slurm: Driver, offset_s: int
) -> None:
    login = shifted(on_slurm, offset_s)
    login.write("spec.yaml", SPEC)
    run_dir = login.submit("spec.yaml")
    created = json.loads((run_dir / "run.json").read_text())["created_unix_s"]
    assert abs(created - time.time() - offset_s) < 60
    wait_for((run_dir / "tasks/a/s00001.a0001/hangs-0").exists, "the slice at work")
    record = json.loads((run_dir / "attempts/a/s00001.a0001.json").read_text())
    kill(record["pid"])

    def is_seen() -> Any:
        status = login.status(run_dir)
        print(json.dumps(status)[:3000])
        return stage_of(status, "a")["status"] in {"failed", "unknown"}

    wait_for(is_seen, "the death of the supervisor to be seen")
    print(login.run("resume", str(run_dir), check=None))
    status = login.wait(run_dir)
    assert words_of(status) == {"a": "completed", "b": "completed"}
