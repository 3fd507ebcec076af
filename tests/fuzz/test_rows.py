"""Rows with foreign keys, spellings, nulls and types: nothing raises, nothing is dropped unseen."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from pipeline.preprocess.manifest import read_manifest
from slurm_jobs.base.errors import SlurmJobsError
from slurm_jobs.formats.manifests.keys import (
    FILE_NAMES,
    LOSS_KEYS,
    UNLEARNED_KEYS,
    is_metadata,
    normal,
    says_nothing,
)
from slurm_jobs.formats.manifests.messages import ManifestRow
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.text import first_rows
from tests.fuzz.budget import bounded, examples

NO = frozenset({"false", "0", "0.0", "-0.0", "no"})
YES = frozenset({"true", "1", "1.0", "yes"})
KNOWN = (
    *("id", "image", "images", "image_path", "img", "image_url", "file_name", "path", "text"),
    *("caption", "question", "prompt", "answer", "response", "system", "system_prompt", "texts"),
    *("messages", "conversations", "video", "audios", "objects", "tools", "rejected", "label"),
    *("sys", "instruction", "persona", "kto_tag", "chosen", "learnable", "sample_weight", "A", "B"),
    *("option_a", "article", "completion"),
    *("reasoning_content", "source", "width", "loss", "weight", "Image Path", "mood", "photo"),
    *("mask", "turn_mask", "supervised_turns", "image_classes", "answers", "captions", "media"),
    *("dicom_path", "image_id", "imageLeft", "masked_pictures"),
    *("input", "history", "problem", "solution", "conversation", "multiple_choice_answer"),
)
KEYS = st.one_of(st.sampled_from(KNOWN), st.text(max_size=6))
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 2),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["", " ", "a.png", "b.png", "v.mp4", "x", "<image>", "<video>", "<image>\nx"]),
    st.sampled_from(
        ["<vid>", "[IMG_0]", "<|imgpad|>", "{image_1}", "nan", "None", "<html>", "null"]
    ),
    st.text(max_size=5),
)
ROLES = st.sampled_from(["user", "assistant", "human", "gpt", "system", "tool", None, 3])
MARKS = st.dictionaries(st.sampled_from(sorted(LOSS_KEYS)), SCALARS, max_size=2)
ITEMS = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": SCALARS}),
    st.fixed_dictionaries({"type": st.just("image"), "path": SCALARS}),
    st.fixed_dictionaries({"type": st.just("image"), "index": SCALARS}),
    st.dictionaries(st.sampled_from(["type", "text", "image", "video", "source"]), SCALARS),
)
TURNS = st.builds(
    lambda role, content, marks, others: {"role": role, "content": content, **others, **marks},
    ROLES,
    st.one_of(SCALARS, st.lists(ITEMS, max_size=2)),
    MARKS,
    st.dictionaries(
        st.sampled_from(["name", "tool_calls", "images", "mood", "system", "label"]),
        SCALARS,
        max_size=1,
    ),
)
CHATS = st.lists(st.one_of(TURNS, TURNS, SCALARS), max_size=3)
GOOD = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
VALUES = st.one_of(
    SCALARS,
    st.lists(SCALARS, max_size=2),
    st.dictionaries(st.sampled_from(["bytes", "path", "url", "x", "type"]), SCALARS, max_size=2),
    st.lists(
        st.dictionaries(st.sampled_from(["type", "path", "text", "answer"]), SCALARS), max_size=2
    ),
    st.lists(
        st.dictionaries(st.sampled_from(["human", "assistant", "loss", "mood"]), SCALARS),
        max_size=2,
    ),
    st.lists(st.lists(SCALARS, min_size=2, max_size=2), max_size=2),
    CHATS,
)
ROWS = st.builds(
    lambda base, others: {**base, **others},
    st.one_of(
        st.just({}),
        st.just({"messages": GOOD}),
        st.just({"image": "a.png", "text": "t"}),
        st.builds(lambda turns: {"messages": turns}, CHATS),
        st.builds(lambda turns: {"prompt": turns, "completion": GOOD[1:]}, CHATS),
        st.just({"instruction": "q", "output": "a"}),
        st.just({"problem": "q"}),
        st.just({"image": "a.png", "question": "q"}),
        st.builds(lambda marks: {"messages": [GOOD[0], {**GOOD[1], **marks}]}, MARKS),
    ),
    st.dictionaries(KEYS, VALUES, max_size=3),
)


def is_read(key: str) -> bool:
    return RowOptions().meaning(key) is not None or normal(key) in FILE_NAMES


def is_in_words(row: ManifestRow, value: object) -> bool:
    """Check whether a text within a value is learned or asked, or one of several answers."""
    texts = [value] if isinstance(value, str) else []
    if isinstance(value, list | dict):
        texts = re.findall(r'"((?:[^"\\]|\\.)*)"', json.dumps(value, ensure_ascii=False))
    words = "".join(message.text for message in row.messages)
    return "several_answers" in row.notes or any(text.strip() in words for text in texts)


def require_accounted(row: ManifestRow, value: dict[str, Any]) -> None:
    """Each key is read, metadata, reported, or the row is rejected; a mark is honoured."""
    if row.problem:
        return
    for key, item in value.items():
        printable = key.encode("utf-8", "replace").decode()
        is_seen = is_read(key) or is_metadata(key) or printable in row.ignored
        assert says_nothing(item) or is_seen or is_in_words(row, item), key
    require_asked_and_seen(row, value)
    if not isinstance(value.get("messages"), list):
        return
    roles = [str(turn["role"]).lower() for turn in value["messages"]]
    asked = next(place for place, role in enumerate(roles) if role in ("user", "human"))
    assert ("answer_left_out" in row.notes) == (not {"assistant", "gpt"}.isdisjoint(roles[:asked]))
    answers = [turn for turn in value["messages"][asked:] if turn["role"] in ("assistant", "gpt")]
    read = [message for message in row.messages if message.role == "assistant"]
    for turn, message in zip(answers, read, strict=True):
        off = {key for key in LOSS_KEYS - UNLEARNED_KEYS if _reads(turn.get(key), NO)}
        off |= {key for key in UNLEARNED_KEYS if _reads(turn.get(key), YES)}
        assert not (off and message.is_learned), turn


def require_asked_and_seen(row: ManifestRow, value: dict[str, Any]) -> None:
    """Each usable row asks something first, has no foreign mark, and keeps its pictures."""
    first = next(message for message in row.messages if message.role != "system")
    assert first.role == "user"
    assert first.text.strip() or row.images
    for message in row.messages:
        assert not any(mark in message.text for mark in ("<vid>", "[IMG_0]", "<|imgpad|>"))
    for key, item in value.items():
        names = item if isinstance(item, list) else [item]
        if RowOptions().meaning(key) == "image" and "a.png" in names:
            assert row.images, key
        is_measured = isinstance(item, float) and not item.is_integer()  # says how many, not which
        assert normal(key) != "supervised_turns" or says_nothing(item) or is_measured, key
        is_number = isinstance(item, int | float) and not isinstance(item, bool)
        is_mask = normal(key) == "turn_mask" or (normal(key) == "mask" and not is_number)
        assert not (is_mask and _reads(item, NO | YES)), key


def _reads(value: object, words: frozenset[str]) -> bool:
    return not isinstance(value, (list, dict)) and str(value).lower() in words


@examples(600)
@given(value=ROWS)
def test_rows_of_json_lines_and_lists(tmp_path: Path, value: dict[str, Any]) -> None:
    lines, whole = tmp_path / "m.jsonl", tmp_path / "m.json"
    lines.write_text(json.dumps(value) + "\n")
    whole.write_text(json.dumps([value]))
    with bounded():
        (row,) = read_manifest(lines)
        (same,) = read_manifest(whole)
        (seen,) = first_rows(lines, RowOptions())
    require_accounted(row, value)
    assert (row.problem, row.messages, row.ignored) == (same.problem, same.messages, same.ignored)
    assert (seen.problem, seen.messages, seen.ignored) == (row.problem, row.messages, row.ignored)


@examples(300)
@given(value=ROWS)
def test_rows_of_parquet(tmp_path: Path, value: dict[str, Any]) -> None:
    file = tmp_path / "m.parquet"
    try:
        pq.write_table(pa.Table.from_pylist([value]), file)
    except (pa.ArrowException, UnicodeError, TypeError, OverflowError, AttributeError):
        return  # no table can hold it
    if not value:
        return
    stored = pq.read_table(file).to_pylist()[0]
    with bounded():
        try:
            (row,) = read_manifest(file)
        except SlurmJobsError:
            return  # its columns make no samples
    require_accounted(row, stored)


@examples(300)
@given(value=st.dictionaries(KEYS, SCALARS, min_size=1, max_size=5))
def test_rows_of_csv(tmp_path: Path, value: dict[str, Any]) -> None:
    file = tmp_path / "m.csv"
    cells = {key: "" if item is None else str(item) for key, item in value.items()}
    try:
        with file.open("w", newline="", encoding="utf-8") as stream:
            csv.writer(stream).writerows([list(cells), list(cells.values())])
    except (UnicodeError, csv.Error):
        return
    with bounded():
        try:
            rows = read_manifest(file)
        except SlurmJobsError:
            return
    for row in rows:
        require_accounted(row, {k: v for k, v in cells.items() if k != "messages"})
