"""Colours only where they are wanted, and tables and reasons of bounded length."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from slurm_jobs.base.texts.truncation import MAX_LINE_CHARS
from slurm_jobs.cli.terminal.console import page_console, table_of
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.strangers_run import COLOUR, on_terminal, run

__all__ = ["run"]

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
@pytest.mark.parametrize("verb", ["status", "logs", "watch", "report"])
def test_no_colour_is_sent_where_none_is_wanted(run: RunPaths, verb: str, environment) -> None:
    sent = on_terminal([verb, str(run.run_dir)], **environment)
    colours = {
        code for code in COLOUR.findall(sent) if re.search(r"[\[;](3[0-8]|4[0-8]|9\d)", code)
    }
    assert colours == set()
    if "TERM" in environment:
        assert "\x1b" not in sent


@pytest.mark.parametrize("verb", ["status", "runs", "watch"])
@pytest.mark.parametrize("word", ["abc ", "/9j/4AAQ", "TOKEN=abc "])
def test_an_unbounded_reason_in_a_record_is_printed_bounded(
    run: RunPaths, verb: str, word: str
) -> None:
    for path in run.completions_dir("a").iterdir():
        values = json.loads(path.read_text())
        reason = f"rank 0: {word * (2_000_000 // len(word))}the end"
        path.write_text(json.dumps({**values, "reason": reason}))
    sent = on_terminal([verb, str(run.run_dir.parent if verb == "runs" else run.run_dir)])
    assert len(sent) < 60_000
    assert "Traceback" not in sent


def test_a_page_breaks_no_unbounded_text_into_lines(capsys: pytest.CaptureFixture[str]) -> None:
    page_console(width=80).print(table_of(["a", "b"], [["x" * 3_000_000, "y " * 1_000_000]]))
    assert len(capsys.readouterr().out) < 10 * MAX_LINE_CHARS
