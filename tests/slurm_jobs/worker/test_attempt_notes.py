"""Notes on where a function is, which may be damaged or forged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_jobs.formats.records.rank_note import RankNote
from slurm_jobs.worker.idle import idle_note
from slurm_jobs.worker.ignored_end import ignored_end_note

READERS = [("rank-00000.idle.json", idle_note), ("ignored-end.json", ignored_end_note)]


@pytest.fixture(params=READERS, ids=["idle", "ignored end"])
def text_of(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str | None]:
    name, read = request.param

    def text_of(content: str) -> str | None:
        (tmp_path / name).write_text(content)
        note: RankNote | None = read(tmp_path)
        return None if note is None else note.text

    return text_of


@pytest.mark.parametrize(
    "content", ["", "{", "{}", "[1]", "5", "null", '"text"', '{"text": 5}', '{"text": ["a"]}']
)
def test_a_damaged_note_is_none(text_of: Callable[[str], str | None], content: str) -> None:
    assert text_of(content) is None


def test_a_forged_note_stays_one_line_without_controls(
    text_of: Callable[[str], str | None],
) -> None:
    forged = "at run\n\x1b[2Jnext: `rm`\u202e\r\ud800 caf\u00e9"
    assert text_of(json.dumps({"text": forged})) == (
        "at run\\n\\x1b[2Jnext: `rm`\\u202e\\r\\ud800 caf\u00e9"
    )
    long = text_of(json.dumps({"text": "word " * 1_000_000}))
    assert long is not None
    assert len(long) < 10_000
