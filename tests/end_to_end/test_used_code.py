"""Files of the user's code that slices use are recorded in all of their processes, and a resume
with changed code repeats only the slices that used a changed file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.driver import Driver

WORK = """
import multiprocessing, os, subprocess, sys, threading
import shared


def late(name):
    __import__("importlib").import_module(name)


def alone(config, context):
    return None


def in_a_thread(config, context):
    thread = threading.Thread(target=late, args=["lazy"])
    thread.start()
    thread.join()


def in_a_pool(config, context):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        pool.map(late, ["lazy"])


def in_a_fresh_process(config, context):
    process = multiprocessing.get_context("spawn").Process(target=late, args=["lazy"])
    process.start()
    process.join()
    assert process.exitcode == 0


def in_a_program(config, context):
    path = os.pathsep.join(sys.path)
    command = [sys.executable, "-m", "lazy"]
    subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=True)


def another_program(config, context):
    subprocess.run(["true"], check=True)


WAYS = [alone, in_a_thread, in_a_pool, in_a_fresh_process, in_a_program, another_program]


def run(config, context):
    return WAYS[context.slice_index](config, context)
"""
SPEC = """
name: used
cluster: local
code: [shared.py, lazy.py, unrelated.py]
stages:
  work: {run: "work:run", array: {num_slices: 6}}
"""
PLAIN = ["shared.py", "work.py"]
LAZY = ["lazy.py", *PLAIN]


@pytest.fixture
def run_dir(local: Driver) -> Path:
    """A run whose slices use `lazy.py` in different processes, or not at all."""
    for name, text in {"work": WORK, "shared": "", "lazy": "", "unrelated": ""}.items():
        local.write(f"{name}.py", text)
    run_dir = local.submit_text(SPEC)
    local.wait(run_dir)
    return run_dir


def test_each_process_of_a_slice_records_what_it_uses(local: Driver, run_dir: Path) -> None:
    files = {}
    for path in (run_dir / "completions" / "work").iterdir():
        record = json.loads(path.read_text())
        assert record["outcome"] == "completed", record["reason"]
        used = run_dir / "used_code" / "work" / f"{record['used_code']}.json"
        files[record["slice_index"]] = json.loads(used.read_text())["files"]
    assert [files[index] for index in range(6)] == [PLAIN, LAZY, LAZY, LAZY, ["*"], PLAIN]

    def again(*options: str) -> str:
        return local.run("resume", str(run_dir), "--dry-run", *options).stdout

    local.write("unrelated.py", "x = 1\n")
    assert "runs again: work, slice 4 (code changed: unrelated.py)" in again("--update-code")
    local.write("lazy.py", "x = 1\n")
    said = again("--update-code")
    assert "runs again: work, slices 1-4" in said
    assert "repeats complete work: work, 4 slices that took" in said
    said = again("--update-code", "--keep-complete")
    assert "nothing is missing" in said
    assert "work, slices 1-4: kept, although earlier code made it" in said
    assert "nothing is missing" in again()
    said = again("--update-code", "--keep-complete", "--set", "stages.work.mixed_code=forbid")
    assert "work keeps nothing that changed code made: it has `mixed_code: forbid`" in said
    assert "runs again: work, slices 1-4" in said
    assert "runs again: work, slice 0 (asked for)" in again("--again", "work:0")
    mixed = ("--update-code", "--keep-complete", "--again", "work:0")
    local.run("resume", str(run_dir), *mixed)
    local.wait(run_dir)
    said = " ".join(local.run("report", str(run_dir)).stdout.split())
    assert "work: 2 copies of the code made the complete slices: 0 by code/" in said
