"""An interrupt while the command loads its modules ends it with 130 and a line."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INTERRUPT_AT = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
sys.argv = ["slurm-jobs", *{words!r}]
from slurm_jobs.__main__ import main
main()
"""


@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("slurm_jobs.cli.main", ["status"]),
        ("argparse", ["status"]),
        ("slurm_jobs.base.errors", ["status"]),
        ("slurm_jobs.cli.runs.status", ["status"]),
        ("slurm_jobs.cli.arguments", ["status"]),
        ("slurm_jobs.commands.run_search.find_run", ["status"]),
        ("slurm_jobs.commands.spec_reading.read_spec", ["check", "configs/demo.yaml"]),
        ("yaml", ["check", "configs/demo.yaml"]),
        ("rich.console", ["plan", "configs/demo.yaml"]),
    ],
)
def test_an_interrupt_while_loading_is_130_and_a_line(module: str, words: list[str]) -> None:
    """A real signal, sent at the moment when a module is looked for."""
    code = INTERRUPT_AT.format(module=module, words=words)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "\ninterrupted\n")


def test_an_impatient_second_interrupt_is_130_too() -> None:
    code = INTERRUPT_AT.format(
        module="slurm_jobs.commands.run_search.find_run", words=["status"]
    ).replace(
        "sys.argv", "import atexit; atexit.register(os.kill, os.getpid(), signal.SIGINT)\nsys.argv"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "\ninterrupted\n")
    assert signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
