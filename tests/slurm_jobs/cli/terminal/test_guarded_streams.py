"""Nothing that a stranger wrote steers a terminal or reaches a pipe, whatever the command."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.command import run_command
from tests.slurm_jobs.cli.strangers_run import COLOUR, EVIL, on_terminal, run

__all__ = ["run"]

ROOT = Path(__file__).resolve().parents[4]
OUR_MOVES = re.compile(r"\x1b\[(\?25[lh]|2K|1A)|\r(?=\x1b)")
"""By which the live view is drawn anew in its place."""
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.mark.parametrize("verb", ["status", "runs", "logs", "watch", "report", "resume"])
def test_a_terminal_is_steered_by_no_name_reason_or_log_line(run: RunPaths, verb: str) -> None:
    words = {"runs": ["--dir", str(run.run_dir.parent)], "resume": [str(run.run_dir), "--dry-run"]}
    sent = on_terminal([verb, *words.get(verb, [str(run.run_dir)])])
    if verb == "watch":
        sent = OUR_MOVES.sub("", sent)
    found = CONTROLS.findall(COLOUR.sub("", sent))
    assert set(found) <= ({"\r"} if verb == "logs" else set()), sent
    assert "Traceback" not in sent


@pytest.mark.parametrize("verb", ["status", "runs", "watch", "report"])
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_pipe_gets_no_colour_and_no_control_character(
    run: RunPaths, verb: str, as_json: list[str]
) -> None:
    words = {"runs": ["--dir", str(run.run_dir.parent)], "resume": [str(run.run_dir), "--dry-run"]}
    done = subprocess.run(
        [sys.executable, "-m", "slurm_jobs", verb, *words.get(verb, [str(run.run_dir)]), *as_json],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TERM": "xterm-256color"},
    )
    assert not CONTROLS.search(done.stdout + done.stderr)
    assert "Traceback" not in done.stderr
    if as_json:
        json.loads(done.stdout)


def test_a_log_in_a_pipe_is_the_log(run: RunPaths) -> None:
    command = [sys.executable, "-m", "slurm_jobs", "logs", str(run.run_dir), "a"]
    out = subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout
    assert out.decode() == f"{EVIL}\nlast line\n"


def test_a_wrong_word_is_printed_without_control_characters(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in (["\x1b]0;x\x07"], ["status", "--\x1b[2Jx"], ["status", "\x1b[2Jx"]):
        run_command(*words, code=2)
        said = capsys.readouterr()
        assert not CONTROLS.search(said.out + said.err)
