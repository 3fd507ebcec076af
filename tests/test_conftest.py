"""What the fixtures and limits of every test do with one that leaks a handler, or hangs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def outcome(folder: Path, text: str, *words: str) -> str:
    """Return what pytest prints for a file of tests, with the settings and fixtures of ours."""
    path = folder / "test_it.py"
    path.write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", "pyproject.toml"]
    # pytest reads all folders above a file up to there, also those of thousands of earlier tests.
    command += ["-p", "no:cacheprovider", f"--confcutdir={folder}"]
    done = subprocess.run(
        [*command, str(path), *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.stdout + done.stderr


def test_one_that_leaks_a_handler_or_a_mask_fails_and_the_next_has_none(tmp_path: Path) -> None:
    text = """
import signal
from slurm_jobs.base.processes.stop_requests import install_stop_handler

def test_a():
    install_stop_handler()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGHUP])

def test_b():
    assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == set()
"""
    printed = outcome(tmp_path, text)
    assert "2 passed, 1 error" in printed
    assert (
        "does not restore the handler or the mask of SIGUSR2, SIGTERM, signal 43, SIGHUP" in printed
    )
    assert "ERROR at teardown of test_a" in printed


def test_one_that_hangs_fails_with_its_line_and_the_next_runs(tmp_path: Path) -> None:
    text = """
import multiprocessing, signal

def test_a():
    child = multiprocessing.get_context("fork").Process(target=signal.pause, daemon=True)
    child.start()
    child.join()

def test_b():
    pass
"""
    printed = outcome(tmp_path, text, "--timeout=2")
    assert "1 failed, 1 passed" in printed
    assert "test_it.py:7:" in printed
    assert "Failed: Timeout (>2.0s)" in printed


def test_slow_ones_have_a_longer_limit(tmp_path: Path) -> None:
    text = """
import pytest

@pytest.mark.slow
def test_a(request):
    assert request.node.get_closest_marker("timeout").args == (3600,)

@pytest.mark.slow
@pytest.mark.timeout(5000)
def test_b(request):
    assert [mark.args for mark in request.node.iter_markers("timeout")] == [(5000,)]

def test_c(request):
    assert request.node.get_closest_marker("timeout") is None
    assert request.config.getini("timeout") == "600"
"""
    assert "3 passed" in outcome(tmp_path, text)


def test_examples_do_not_depend_on_what_is_loaded(tmp_path: Path) -> None:
    text = """
import hashlib
from hypothesis import given, settings, strategies

drawn = hashlib.sha256()

@settings(max_examples=300)
@given(strategies.text() | strategies.integers() | strategies.floats())
def test_a(value):
    drawn.update(repr(value).encode())

def test_b():
    print("drawn", drawn.hexdigest())
"""
    alone = outcome(tmp_path, text, "-s")
    beside = outcome(tmp_path, f"import slurm_jobs.formats.manifests.keys\n{text}", "-s")
    assert "2 passed" in alone
    assert _drawn(alone) == _drawn(beside)


def _drawn(printed: str) -> str:
    (line,) = (line for line in printed.splitlines() if "drawn " in line)
    return line.partition("drawn ")[2][:64]
