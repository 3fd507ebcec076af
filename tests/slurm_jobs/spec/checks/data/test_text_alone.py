"""Data without pictures is an error of `check`, by its outcome and not by names of keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from slurm_jobs.formats.manifests.text import MAX_ROWS
from tests.slurm_jobs.spec.checks.preprocess_spec import SPEC, write_processor
from tests.slurm_jobs.spec.conftest import Check, Notes

ASKED = {"question": "What is it?", "answer": "A cat."}
CHAT = {"messages": [{"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}]}
SEEN = {"image": "a.png", **ASKED}
PLACE = "7:17: stages.p.config.manifest: m.jsonl: "
TEXT_ONLY = "      text_only: true\n"
TURN = {"role": "user", "content": "?", "mood": "glad"}
MOODY = {"messages": [TURN, {"role": "assistant", "content": "!"}]}
BAD = {**CHAT, "video": "v.mp4"}


@pytest.fixture(autouse=True)
def _processor(tmp_path: Path) -> None:
    write_processor(tmp_path)


def write(folder: Path, *rows: dict[str, Any]) -> str:
    (folder / "m.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return SPEC.format(name="m.jsonl")


@pytest.mark.parametrize(
    ("row", "keys"),
    [
        ({"image_id": 458752, **ASKED}, "`image_id`, `question`, `answer`"),
        ({"dicom_path": "x", **ASKED}, "`dicom_path`, `question`, `answer`"),
        ({"scan": "a.dcm", **ASKED}, "`scan`, `question`, `answer`"),
        ({"image": "", **ASKED}, "`image`, `question`, `answer`"),
        (CHAT, "`messages`"),
    ],
)
def test_rows_without_a_picture_are_one_error_with_keys_and_remedy(
    check: Check, tmp_path: Path, row: dict[str, Any], keys: str
) -> None:
    text = write(tmp_path, row, row)
    (line,) = check(text)
    assert line == (
        f"{PLACE}none of the first 2 rows has a picture that is read, so the model would learn to "
        f"answer without seeing. The first, m.jsonl:1, has the keys {keys}. If a key holds the "
        "picture, set `columns: {image: KEY}`; if text alone is meant, set `text_only: true`"
    )
    assert check(text + TEXT_ONLY) == []
    (line,) = check(text + "      text_only: false\n")
    assert line.startswith(PLACE)


def test_the_remedy_of_the_message_reads_the_picture(check: Check, tmp_path: Path) -> None:
    text = write(tmp_path, {"scan": "a", **ASKED})
    (tmp_path / "a").write_bytes(b"GIF89a")
    assert check(text + "      columns: {image: scan}\n") == []


@pytest.mark.parametrize("rows", [[ASKED, SEEN], [SEEN, *[ASKED] * 50], [*[CHAT] * 900, SEEN]])
def test_one_picture_among_the_first_rows_is_enough(
    check: Check, tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    assert check(write(tmp_path, *rows)) == []
    assert check(write(tmp_path, *rows) + TEXT_ONLY) == []


@pytest.mark.parametrize(
    "rows", [[ASKED] * MAX_ROWS, [{"id": "x" * 50_000, **ASKED}] * 50, [{"scan": 1, **ASKED}, CHAT]]
)
def test_pictures_may_come_after_the_first_rows(
    check: Check, notes: Notes, tmp_path: Path, rows: list[dict[str, Any]]
) -> None:
    more = [CHAT] * MAX_ROWS
    text = write(tmp_path, *rows, *more, SEEN)
    assert check(text) == []
    (note,) = [note for note in notes(text) if "has a picture that is read" in note]
    assert "If no other row has one, `consolidate` fails" in note
    assert "would learn" not in note
    assert not [note for note in notes(text + TEXT_ONLY) if "a picture that" in note]


@pytest.mark.parametrize("row", [{"dicom_path": "x", **ASKED}, MOODY])
def test_unread_keys_of_all_first_rows_may_be_the_picture(
    check: Check, notes: Notes, tmp_path: Path, row: dict[str, Any]
) -> None:
    text = write(tmp_path, *[row] * MAX_ROWS, SEEN)
    (line,) = check(text)
    assert "none of the first 1,000 rows has a picture that is read. The first" in line
    assert "name them in `columns.ignore`" in line
    ignored = text + "      columns: {ignore: [dicom_path, mood]}\n"
    assert check(ignored) == []
    assert [note for note in notes(ignored) if "`consolidate` fails" in note]


def test_rows_that_cannot_be_used_have_no_say(check: Check, tmp_path: Path) -> None:
    (line,) = check(write(tmp_path, BAD, *[CHAT] * 200))
    assert "none of the first 200 rows has a picture that is read" in line
    assert "The first, m.jsonl:2, has" in line
    (line,) = check(write(tmp_path, BAD))
    assert "cannot be used" in line


def test_a_table_without_pictures_is_an_error(check: Check, tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist([{"scan": 3, **ASKED}]), tmp_path / "m.parquet")
    (line,) = check(SPEC.format(name="m.parquet"))
    assert "m.parquet: the first row does not have a picture that is read" in line
    assert "The first, m.parquet:row 0, has the keys" in line


def test_consolidate_may_accept_text_alone(check: Check, tmp_path: Path) -> None:
    more = "  c: {run: consolidate, after: p, config: {text_only: true}}\n"
    assert check(write(tmp_path, CHAT) + more) == []


@pytest.mark.parametrize(
    ("own", "merging", "num_problems"),
    [("true", None, 0), ("true", "false", 1), ("false", "true", 0), ("false", None, 1)],
)
def test_the_stage_that_consolidates_decides(
    check: Check, tmp_path: Path, own: str, merging: str | None, num_problems: int
) -> None:
    config = "" if merging is None else f", config: {{text_only: {merging}}}"
    text = write(tmp_path, CHAT) + f"      text_only: {own}\n"
    assert len(check(text + f"  c: {{run: consolidate, after: p{config}}}\n")) == num_problems


def test_text_alone_is_accepted_for_one_data_set_of_a_spec(check: Check, tmp_path: Path) -> None:
    more = "".join(
        f"  {name}: {{run: preprocess, config: {{manifest: m.jsonl, processor: proc}}}}\n"
        f"  {name}2: {{run: consolidate, after: {name}, config: {{text_only: {accepts}}}}}\n"
        for name, accepts in (("q", "true"), ("r", "null"))
    )
    text = write(tmp_path, CHAT) + "  p2: {run: consolidate, after: p}\n" + more
    assert [line.split("stages.")[1][:1] for line in check(text)] == ["p", "r"]


def test_it_is_a_note_where_an_earlier_stage_may_write_the_rows(
    check: Check, notes: Notes, tmp_path: Path
) -> None:
    text = write(tmp_path, CHAT).replace("preprocess\n", "preprocess\n    after: make\n")
    text = text.replace("stages:\n", "stages:\n  make: {shell: python make.py}\n")
    assert check(text) == []
    (note,) = notes(text)
    assert "the first row does not have a picture that is read" in note


def test_held_out_rows_without_pictures_are_a_note(
    check: Check, notes: Notes, tmp_path: Path
) -> None:
    (tmp_path / "held.jsonl").write_text(json.dumps(CHAT) + "\n")
    text = write(tmp_path, SEEN)
    train = (
        "  c: {run: consolidate, after: p}\n"
        "  t: {run: train, after: c, config: {device: cpu, strategy: single, num_steps: 1,\n"
        "      evaluate: {manifest: held.jsonl}}}\n"
    )
    assert check(text + train) == []
    assert [note for note in notes(text + train) if "does not have a picture" in note]
    assert not [note for note in notes(text + TEXT_ONLY + train) if "picture" in note]


def test_doubtful_answers_are_notes_with_their_number_and_place(
    notes: Notes, tmp_path: Path
) -> None:
    page = {"image": "a.png", "caption": "<html><body>404</body></html>"}
    early = {**CHAT, "messages": [CHAT["messages"][1], *CHAT["messages"]]}
    (tmp_path / "a.png").write_bytes(b"GIF89a")
    found = notes(write(tmp_path, SEEN, {**SEEN, "answer": "nan"}, page, early, early))
    assert [note.partition("m.jsonl: ")[2][:62] for note in found] == [
        "in 1 of the first 5 rows, beginning with m.jsonl:2, the answer",
        "in 1 of the first 5 rows, beginning with m.jsonl:3, the captio",
        "in 2 of the first 5 rows, beginning with m.jsonl:4, the conver",
    ]
