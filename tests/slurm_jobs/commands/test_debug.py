"""Slices that can be called again, with the code of the run, and where they write."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.end_to_end.driver import Driver
from tests.slurm_jobs.cli.runs.debugged_run import CODE, debug, failed

__all__ = ["failed"]


def test_changed_code_is_called_only_with_update_code(failed: tuple[Driver, Path]) -> None:
    driver, run_dir = failed
    driver.write("own.py", CODE.replace("1 / rest", "1 / (rest + 4)"))
    try:
        assert debug(driver, run_dir, "half")[0] == 1
        code, out, _ = debug(driver, run_dir, "half", "--update-code")
    finally:
        driver.write("own.py", CODE)
    assert (code, 'returned {"half": 0.25}' in out) == (0, True)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["command"], "is a shell command"),
        (
            ["half", "--slice", "9"],
            "no attempt at it has started; of `half` these slices have: 0-3",
        ),
        (["hlaf"], "no stage `hlaf`; did you mean `half`?"),
    ],
)
def test_what_cannot_be_called_is_refused(
    failed: tuple[Driver, Path], words: list[str], problem: str
) -> None:
    driver, run_dir = failed
    code, out, errors = debug(driver, run_dir, *words)
    assert (code, out, problem in errors) == (2, "", True), errors
