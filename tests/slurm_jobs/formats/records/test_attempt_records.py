"""Records of attempts, as written, as named, and as damaged."""

import dataclasses
import json
from typing import Any

import pytest

from slurm_jobs.base.texts.truncation import MAX_LINE_CHARS
from slurm_jobs.formats.records.attempt_records import (
    CompletionName,
    attempt_from_json,
    attempt_label,
    completion_from_json,
    completion_name,
    parse_attempt_name,
    parse_completion_name,
)
from slurm_jobs.formats.records.rank_note import RankNote
from slurm_jobs.formats.records.record_json import record_to_json
from tests.slurm_jobs.formats.records.whole_records import ATTEMPT, COMPLETION

ATTEMPT_VALUES, COMPLETION_VALUES = record_to_json(ATTEMPT), record_to_json(COMPLETION)


def test_records_come_back_from_json_as_they_were() -> None:
    assert attempt_from_json(json.loads(json.dumps(ATTEMPT_VALUES))) == ATTEMPT
    assert completion_from_json(json.loads(json.dumps(COMPLETION_VALUES))) == COMPLETION
    noted = dataclasses.replace(COMPLETION, rank_note=RankNote(rank=1, node="n2", after=": late"))
    assert completion_from_json(json.loads(json.dumps(record_to_json(noted)))) == noted


@pytest.mark.parametrize(("slice_index", "attempt"), [(0, 1), (99_999, 9_999), (123_456, 12_345)])
def test_names_hold_slice_and_attempt_also_where_they_outgrow_their_zeros(
    slice_index: int, attempt: int
) -> None:
    assert parse_attempt_name(f"{attempt_label(slice_index, attempt)}.json") == (
        slice_index,
        attempt,
    )
    name = CompletionName(slice_index, attempt, "0123abcd", "stopped")
    assert parse_completion_name(completion_name(name)) == name


@pytest.mark.parametrize(
    "name",
    [
        "s00001.a0001.0123abcd.completed.json.tmp",
        ".s00001.a0001.0123abcd.completed.json.abc.tmp",
        "s00001.a0001.0123abcd.finished.json",
        "s00001.a0001.completed.json",
        "s00001.json",
        "notes.txt",
    ],
)
def test_other_files_are_no_records(name: str) -> None:
    assert parse_attempt_name(name) is None
    assert parse_completion_name(name) is None


@pytest.mark.parametrize("key", ["reason", "last_line", "result_note"])
def test_an_unbounded_text_of_an_old_record_is_read_truncated(key: str) -> None:
    values = {**COMPLETION_VALUES, key: "rank 0: ValueError: " + "x" * 3_000_000}
    text = getattr(completion_from_json(values), key)
    assert text.startswith("rank 0: ValueError: ")
    assert len(text) <= MAX_LINE_CHARS


@pytest.mark.parametrize("key", ["reason", "last_line", "result_note"])
def test_a_record_whose_text_is_none_is_damaged(key: str) -> None:
    with pytest.raises((ValueError, TypeError), match="not text"):
        completion_from_json({**COMPLETION_VALUES, key: 7})


@pytest.mark.parametrize(
    "changed",
    [
        {"started_unix_s": "x"},
        {"started_unix_s": float("nan")},
        {"started_unix_s": 10**400},
        {"node_names": [True]},
        {"node_names": ["\x1b[2Jn1"]},
        {"node_names": None},
        {"slice_index": None},
        {"slice_index": -1},
        {"num_ranks": 1.5},
        {"job_id": 12},
        {"gpu": None},
        *({name: "x" * 3_000_000} for name in ("host", "job_id", "token", "scheduler")),
    ],
)
def test_an_attempt_with_values_of_other_types_is_damage(changed: dict[str, Any]) -> None:
    assert attempt_from_json(ATTEMPT_VALUES).node_names == ("n1", "n2")
    with pytest.raises((ValueError, TypeError)):
        attempt_from_json({**ATTEMPT_VALUES, **changed})


@pytest.mark.parametrize(
    "changed",
    [
        {"reason": None},
        {"ended_unix_s": None},
        {"exit_code": "x"},
        {"slice_index": True},
        {"failed_rank": -1},
        {"failed_node": 3},
    ],
)
def test_a_completion_with_values_of_other_types_is_damage(changed: dict[str, Any]) -> None:
    assert completion_from_json(COMPLETION_VALUES).exit_code == 137
    with pytest.raises(ValueError, match=r"damaged|not text"):
        completion_from_json({**COMPLETION_VALUES, **changed})
