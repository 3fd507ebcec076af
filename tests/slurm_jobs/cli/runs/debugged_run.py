"""A run in which a slice failed, and the command that debugs it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.driver import Driver

SPEC = """\
name: own
cluster: local.yaml
setup: ["export FROM_SETUP=by-setup", "export PATH=$PATH:/by-setup"]
environment: {FROM_SPEC: by-spec}
stages:
  half: {run: "own:half", array: {num_slices: 4}, config: {first: 2}}
  command: {shell: "true"}
"""
CODE = """\
import os

def half(config, context):
    rest = config["first"] - context.slice_index
    where = os.environ["FROM_SETUP"], os.environ["FROM_SPEC"], context.num_ranks
    last_folder = os.environ["PATH"].split(":")[-1]
    (context.output_dir / "half.txt").write_text("written")
    return {"half": 1 / rest}
"""


@pytest.fixture(scope="module")
def failed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Driver, Path]:
    """A run in which slice 2 failed."""
    driver = Driver(tmp_path_factory.mktemp("debug"))
    driver.write("local.yaml", "scheduler: local\n")
    driver.write("own.py", CODE)
    driver.write("spec.yaml", SPEC)
    run_dir = driver.submit("spec.yaml")
    assert driver.wait(run_dir)["status"] == "failed"
    return driver, run_dir


def debug(driver: Driver, *words: str | Path, typed: str = "") -> tuple[int, str, str]:
    """Return the exit code, output and errors of the command, whose user types these lines."""
    done = subprocess.run(
        [*driver.command, "debug", *map(str, words)],
        cwd=driver.folder,
        input=typed,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr
