"""Samples in a terminal, a pipe, and a terminal without colours."""

from __future__ import annotations

import pytest

from slurm_jobs.report.samples.samples_terminal import choose_marks
from tests.slurm_jobs.report.samples.printed_samples import printed
from tests.slurm_jobs.report.samples.shown_samples import sample


def test_pipe_has_marks_and_whole_lines() -> None:
    lines = printed(sample(), width=30).splitlines()
    assert lines[0] == "supervised tokens are between [[[ and ]]]"
    assert lines[-2:] == [
        "  <user>(<image> x 3)</script><img src=x onerror=alert(1)>\\x1b[31m\\u202e[[[Two\\n",
        "  linesé<end>]]]",
    ]
    assert "8 tokens, 3 supervised, 3 of images; 1 image: 60x72 stored as 64x64" in lines[3]


def test_nothing_of_a_sample_reaches_the_terminal_raw() -> None:
    said = printed(sample(), force_terminal=True, color_system="truecolor", width=400)
    assert "\x1b[31m" not in said  # what the sample would have switched to red
    assert "\u202e" not in said
    assert "\\x1b[31m" in said
    assert "\x1b" not in printed(sample(problem="\x1b[2J gone"))


def test_colours_mark_learned_text_and_no_marks_are_printed() -> None:
    said = printed(sample(), force_terminal=True, color_system="standard", width=400)
    assert "\x1b[1;32mTwo\x1b[0m" in said
    assert "[[[" not in said
    assert "\x1b[36m(<image> x 3)\x1b[0m" in said


def test_terminal_without_colours_has_marks() -> None:
    said = printed(sample(), force_terminal=True, color_system="standard", no_color=True)
    assert "[[[\x1b[1mTwo" in said
    assert "\x1b[1;32m" not in said


def test_terminal_breaks_lines_at_its_width() -> None:
    said = printed(sample(), force_terminal=True, no_color=True, width=40)
    long = sample(pieces=["word " * 8] * 8, input_ids=list(range(8)), labels=[-100] * 8)
    lines = printed(long, force_terminal=True, no_color=True, width=40).splitlines()
    assert max(map(len, lines[2:])) <= 60  # of which codes are a part
    assert len(lines) > 10
    assert said.count("\n") > printed(sample()).count("\n")


@pytest.mark.parametrize(
    ("text", "marks"),
    [("a", ("[[[", "]]]")), ("a[[[", ("{{{", "}}}")), ("]]] }}}", (">>>", "<<<"))],
)
def test_marks_come_in_no_text(text: str, marks: tuple[str, str]) -> None:
    assert choose_marks([sample(pieces=[text] * 8)]) == marks


def test_an_unreadable_sample_is_printed_with_its_problem() -> None:
    broken = {"images": [], "input_ids": [], "labels": [], "pieces": [], "problem": "cut short"}
    assert printed(sample(**broken)).splitlines()[-1] == "  cut short"
