"""Failures of an array on a real Slurm, as `status` and `logs` name them."""

from __future__ import annotations

import re

import pytest

from tests.end_to_end.driver import Driver

pytestmark = pytest.mark.cluster

CODE = """
import os, signal, sys, time

def embed(config, context):
    index = context.slice_index
    time.sleep(2)  # so that several nodes have work
    if index in {1, 3, 5}:
        raise ValueError("caption is empty")
    if index == 6:
        print("cannot open part 6", file=sys.stderr)
        sys.exit(3)
    if index == 7:
        keeper = os.getppid()
        supervisor = int(open(f"/proc/{keeper}/stat").read().rpartition(")")[2].split()[1])
        os.kill(supervisor, signal.SIGKILL)
        time.sleep(60)
    print("row", index)
    return {}
"""
SPEC = """
name: causes
stages:
  embed:
    run: faulty:embed
    array: {num_slices: 8}
  save: {shell: "echo quota exceeded >&2; exit 4"}
"""


def test_equal_causes_are_one_line_in_status_and_one_log_in_logs(on_slurm: Driver) -> None:
    on_slurm.write("faulty.py", CODE)
    run_dir = on_slurm.submit_text(SPEC)
    on_slurm.wait(run_dir)
    lines = on_slurm.run("status", str(run_dir), check=1).stdout.splitlines()
    # Which source answers first depends on how late the accounting is.
    causes = (re.match(r"(embed slices? [\d,]+|save) failed(?=: | \()", line) for line in lines)
    told = {cause[1]: cause.string for cause in causes if cause is not None}
    assert set(told) == {"embed slices 1,3,5", "embed slice 6", "embed slice 7", "save"}
    assert told["embed slices 1,3,5"].endswith(": ValueError: caption is empty")
    assert told["embed slice 6"].endswith("exit code 3; its log ends with: cannot open part 6")
    assert "FAILED before its supervisor could record why" in told["embed slice 7"]
    assert told["save"].endswith("exit code 4; its log ends with: quota exceeded")

    printed = on_slurm.run("logs", str(run_dir), "--tail", "1")
    assert printed.stdout.count("ValueError: caption is empty") == 2  # the line and one log
    assert "logs of all 6 failed slices" in printed.stderr
    every = on_slurm.run("logs", str(run_dir), "--failed", "--tail", "1").stdout
    assert every.count("ValueError: caption is empty") == 1 + 3
    assert "row 0" not in every
