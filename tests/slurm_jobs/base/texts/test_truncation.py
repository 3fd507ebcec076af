"""Foreign text in messages, records and errors: bounded, with what was left out counted."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_jobs.base.texts.truncation import (
    MAX_LINE_CHARS,
    MAX_LINES,
    truncated,
    truncated_lines,
    truncated_values,
)

HUGE = "/9j/4AAQSkZJRgABAQ" * 50_000


@given(st.text(alphabet="ab \n", max_size=400), st.integers(1, 12))
def test_a_text_is_bounded_and_says_how_many_characters_are_left_out(text: str, times: int) -> None:
    whole = text * times
    short = truncated(whole)
    assert len(short) <= MAX_LINE_CHARS
    assert truncated(short) == short
    if len(whole) <= MAX_LINE_CHARS:
        assert short == whole
        return
    match = re.search(r" \.\.\. \(([\d,]+) characters left out\) \.\.\. ", short)
    assert match is not None
    head, tail = short[: match.start()], short[match.end() :]
    assert whole.startswith(head)
    assert whole.endswith(tail)
    assert int(match[1].replace(",", "")) == len(whole) - len(head) - len(tail)


@pytest.mark.parametrize("at", range(1400, 1520, 7))
def test_a_cut_leaves_no_half_of_a_secret_that_could_not_be_known_as_one(at: int) -> None:
    secret = "hf_" + "0123456789abcdef" * 2
    head = ("word " * 400)[: at - 1] + " "
    text = f"{head}HF_TOKEN={secret} {'more ' * 4000}"
    short = truncated(text)
    assert secret in short or secret[:8] not in short


def test_many_lines_are_bounded_too() -> None:
    short = truncated_lines("line\n" * 1_000_000)
    assert len(short.split("\n")) <= MAX_LINES + 1
    assert "lines left out" in short


def test_json_values_are_truncated_in_names_and_values() -> None:
    short = truncated_values({HUGE: [HUGE, 1, None], "n": {"m": "x"}})
    assert max(len(name) for name in short) <= MAX_LINE_CHARS
    assert len(str(short)) < 3 * MAX_LINE_CHARS
    assert short["n"] == {"m": "x"}
