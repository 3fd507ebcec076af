"""A function under Python's debugger: where it opens, and what its end means."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from tests.end_to_end.driver import Driver, wait_for
from tests.slurm_jobs.cli.runs.debugged_run import CODE, debug, failed

__all__ = ["failed"]

WAITS = """
import pathlib, time

def half(config, context):
    rounds = 1
    pathlib.Path("waits").touch()
    while True:
        time.sleep(0.1)
"""


def files(run_dir: Path) -> dict[str, float]:
    return {str(p): p.stat().st_mtime for p in run_dir.rglob("*") if p.is_file()}


def test_the_debugger_opens_where_the_failed_slice_raised(failed: tuple[Driver, Path]) -> None:
    driver, run_dir = failed
    before = files(run_dir)
    code, out, errors = debug(driver, run_dir, "half", typed="p rest, where, last_folder\nq\n")
    assert (code, "(0, ('by-setup', 'by-spec', 1), '/by-setup')" in out) == (1, True), out
    assert "ZeroDivisionError" in errors
    assert "half slice 2: calling its function as in attempt 1" in errors
    assert files(run_dir) == before


def test_a_function_that_returns_can_be_followed_from_its_first_line(
    failed: tuple[Driver, Path],
) -> None:
    driver, run_dir = failed
    code, out, _ = debug(
        driver, run_dir, "half", "--slice", "1", "--stop", typed="n\nn\np rest\nc\n"
    )
    assert code == 0
    assert "(Pdb) 1\n" in out
    assert 'the function returned {"half": 1.0}' in out


def test_a_debugger_that_is_left_early_is_no_success(failed: tuple[Driver, Path]) -> None:
    driver, run_dir = failed
    code, out, errors = debug(driver, run_dir, "half", "--slice", "1", "--stop", typed="q\n")
    assert (code, "left before" in out) == (1, True)
    assert not Path(errors.partition("it writes to ")[2].partition("\n")[0]).exists()


def test_ctrl_c_opens_the_debugger_where_the_function_waits(failed: tuple[Driver, Path]) -> None:
    driver, run_dir = failed
    driver.write("own.py", CODE + WAITS)
    command = [*driver.command, "debug", str(run_dir), "half", "--slice", "1", "--update-code"]
    process = subprocess.Popen(
        command,
        cwd=driver.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_for((driver.folder / "waits").exists, "the function at work")
        os.killpg(process.pid, signal.SIGINT)
        out, _ = process.communicate("p rounds\nq\n", timeout=120)
    finally:
        process.kill()
        driver.write("own.py", CODE)
    assert (process.returncode, "(Pdb) 1\n" in out) == (1, True), out
