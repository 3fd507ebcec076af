import json

import pytest

from slurm_jobs.shared.errors import MAX_LINE_CHARS
from slurm_jobs.shared.records import (
    AttemptRecord,
    CompletionName,
    CompletionRecord,
    attempt_from_json,
    attempt_label,
    completion_from_json,
    completion_name,
    parse_attempt_name,
    parse_completion_name,
    record_to_json,
)

ATTEMPT = AttemptRecord(
    stage="train",
    slice_index=3,
    attempt=2,
    job_id="12_3",
    token="0123abcd",
    fingerprint="f",
    started_unix_s=1.5,
    node_names=("n1", "n2"),
    host="h",
    pid=7,
    num_ranks=4,
    scheduler="slurm",
    restart=1,
)
COMPLETION = CompletionRecord(
    stage="train",
    slice_index=3,
    attempt=2,
    job_id="12_3",
    token="0123abcd",
    outcome="failed",
    fingerprint="f",
    started_unix_s=1.5,
    ended_unix_s=2.5,
    exit_code=137,
    signal=9,
    failed_rank=1,
    failed_node="n2",
    reason="rank 1 on n2 was killed by SIGKILL",
    result={"outputs": {"a": 1}},
)


def test_records_come_back_from_json_as_they_were() -> None:
    assert attempt_from_json(json.loads(json.dumps(record_to_json(ATTEMPT)))) == ATTEMPT
    assert completion_from_json(json.loads(json.dumps(record_to_json(COMPLETION)))) == COMPLETION


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


@pytest.mark.parametrize(
    ("record", "from_json"), [(ATTEMPT, attempt_from_json), (COMPLETION, completion_from_json)]
)
def test_a_record_of_a_later_version_is_read_without_what_is_new(record, from_json):
    assert from_json({**record_to_json(record), "of_tomorrow": 1}) == record


def test_an_unbounded_reason_of_an_old_record_is_read_truncated() -> None:
    values = {**record_to_json(COMPLETION), "reason": "rank 0: ValueError: " + "x" * 3_000_000}
    reason = completion_from_json(values).reason
    assert reason.startswith("rank 0: ValueError: ")
    assert len(reason) <= MAX_LINE_CHARS


@pytest.mark.parametrize("name", ["host", "job_id", "token", "scheduler"])
def test_an_unbounded_name_is_damage(name: str) -> None:
    values = {**record_to_json(ATTEMPT), name: "x" * 3_000_000}
    with pytest.raises(ValueError, match="damaged"):
        attempt_from_json(values)
