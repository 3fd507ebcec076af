"""A stage's function is called again under Python's debugger, and the run stays as it is."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.driver import Driver, wait_for

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


WAITS = """
import pathlib, time

def half(config, context):
    rounds = 1
    pathlib.Path("waits").touch()
    while True:
        time.sleep(0.1)
"""


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


def test_changed_code_is_called_only_with_update_code(failed: tuple[Driver, Path]) -> None:
    driver, run_dir = failed
    driver.write("own.py", CODE.replace("1 / rest", "1 / (rest + 4)"))
    try:
        assert debug(driver, run_dir, "half")[0] == 1
        code, out, _ = debug(driver, run_dir, "half", "--update-code")
    finally:
        driver.write("own.py", CODE)
    assert (code, 'returned {"half": 0.25}' in out) == (0, True)


def test_the_output_is_removed_unless_it_is_to_be_kept(failed: tuple[Driver, Path]) -> None:
    driver, run_dir = failed
    for words in ([], ["--keep"]):
        _, _, errors = debug(driver, run_dir, "half", "--slice", "0", *words)
        folder = Path(errors.partition("it writes to ")[2].strip())
        assert (folder / "half.txt").exists() == bool(words)
        assert not list(run_dir.rglob("half.txt.*"))
    assert folder.parent.stat().st_mode & 0o077 == 0
    subprocess.run(["rm", "-r", str(folder.parent)], check=True)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["command"], "is a shell command"),
        (
            ["half", "--slice", "9"],
            "no attempt at it has started; of `half` these slices have: 0-3",
        ),
        (["hlaf"], "`hlaf`"),
    ],
)
def test_what_cannot_be_called_is_refused(
    failed: tuple[Driver, Path], words: list[str], problem: str
) -> None:
    driver, run_dir = failed
    code, out, errors = debug(driver, run_dir, *words)
    assert (code, out, problem in errors) == (2, "", True), errors


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


def test_logs_offers_the_debugger_for_what_a_function_raised(failed: tuple[Driver, Path]) -> None:
    driver, run_dir = failed
    errors = driver.run("logs", str(run_dir)).stderr
    assert errors.endswith(f"debug runs/{run_dir.name} half --slice 2\n")
