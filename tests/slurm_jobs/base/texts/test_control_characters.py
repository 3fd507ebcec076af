"""Characters that control a terminal are shown as their codes."""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from slurm_jobs.base.texts.control_characters import escaped_json, plain

CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@given(st.text())
def test_plain_text_is_printable_but_for_its_lines_and_tabs(text: str) -> None:
    assert not CONTROLS.search(plain(text))
    assert plain(plain(text)) == plain(text)


def test_what_hides_is_shown_as_its_code() -> None:
    hidden = "\xad\u180e\u200b\u206a\ufff9\U000e0001\U000e0041"
    assert plain(hidden).isascii()
    assert escaped_json(json.dumps(hidden, ensure_ascii=False)).isascii()


@given(st.text())
def test_escaped_json_reads_back_as_it_was(text: str) -> None:
    printed = escaped_json(json.dumps(text, ensure_ascii=False))
    assert not CONTROLS.search(printed)
    assert json.loads(printed) == text
