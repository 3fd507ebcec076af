"""The verb `debug`: what it leaves behind, and when `logs` offers it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.end_to_end.driver import Driver
from tests.slurm_jobs.cli.runs.debugged_run import debug, failed

__all__ = ["failed"]


def test_logs_offers_the_debugger_for_what_a_function_raised(failed: tuple[Driver, Path]) -> None:
    driver, run_dir = failed
    errors = driver.run("logs", str(run_dir)).stderr
    assert errors.endswith(f"debug runs/{run_dir.name} half --slice 2\n")


def test_the_output_is_removed_unless_it_is_to_be_kept(failed: tuple[Driver, Path]) -> None:
    driver, run_dir = failed
    for words in ([], ["--keep"]):
        _, _, errors = debug(driver, run_dir, "half", "--slice", "0", *words)
        folder = Path(errors.partition("it writes to ")[2].strip())
        assert (folder / "half.txt").exists() == bool(words)
        assert not list(run_dir.rglob("half.txt.*"))
    assert folder.parent.stat().st_mode & 0o077 == 0
    subprocess.run(["rm", "-r", str(folder.parent)], check=True)
