"""Notes on a rank keep their text in a record, and a forged one does no harm."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from slurm_jobs.formats.records.rank_note import RankNote, joined_notes, rank_note_from_json
from slurm_jobs.formats.records.record_json import record_to_json

NOTE = RankNote(
    before="2 s after SIGTERM ",
    rank=0,
    node="n1",
    after=" was at run",
    stacks="/run/rank-*.txt",
    more=" (and 1 more idle)",
)
TEXT = "2 s after SIGTERM rank 0 on n1 was at run. Stacks: /run/rank-*.txt (and 1 more idle)"


def test_a_note_that_is_read_is_the_one_that_was_written() -> None:
    assert rank_note_from_json(record_to_json(NOTE)) == NOTE
    assert NOTE.text == TEXT


def test_notes_on_several_ranks_are_one_text_with_all_places() -> None:
    other = replace(NOTE, rank=2, node="n2", stacks="/other")
    assert joined_notes([NOTE, other]) == TEXT.replace("0 on n1", "0,2 on n1, n2")


@pytest.mark.parametrize(
    "forged", [{"rank": "0"}, {"rank": -1}, {"rank": True}, {"node": None}, {"after": ["a"]}]
)
def test_a_note_with_a_forged_field_has_only_its_text(forged: dict[str, Any]) -> None:
    values = {**record_to_json(NOTE), **forged}
    assert rank_note_from_json(values) is None
    assert rank_note_from_json({**values, "text": "at\nrun"}) == RankNote(before="at\\nrun")


def test_the_fields_of_a_forged_note_are_short_and_without_controls() -> None:
    note = rank_note_from_json(
        {**record_to_json(NOTE), "node": "n1\n\x1b[2J", "after": "a " * 10**6}
    )
    assert note is not None
    assert note.node == "n1\\n\\x1b[2J"
    assert len(note.after) <= 2000
