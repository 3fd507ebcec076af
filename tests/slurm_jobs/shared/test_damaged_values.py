"""Records that are whole JSON with values of other types than their writers': told as damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slurm_jobs.shared.records import (
    AttemptRecord,
    CompletionRecord,
    attempt_from_json,
    completion_from_json,
    record_to_json,
)
from slurm_jobs.shared.timings import OPERATORS_FORMAT_NAME as OPERATORS
from slurm_jobs.shared.timings import (
    STEP_FIELDS,
    ReadingPacker,
    read_operators,
    read_spans,
    read_steps,
    read_system,
    steps_header,
)

_COMMON: dict[str, Any] = {
    "stage": "train",
    "slice_index": 0,
    "attempt": 1,
    "job_id": "12",
    "token": "t",
    "fingerprint": "f",
    "started_unix_s": 1e9,
}
_ATTEMPT = record_to_json(
    AttemptRecord(
        **_COMMON,
        node_names=("n1",),
        host="h",
        pid=7,
        num_ranks=2,
        scheduler="slurm",
        restart=0,
    )
)
_COMPLETION = record_to_json(
    CompletionRecord(**_COMMON, outcome="failed", ended_unix_s=1e9 + 5, exit_code=-9)
)


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
    ],
)
def test_an_attempt_with_values_of_other_types_is_damage(changed: dict[str, Any]) -> None:
    assert attempt_from_json(_ATTEMPT).node_names == ("n1",)
    with pytest.raises((ValueError, TypeError)):
        attempt_from_json({**_ATTEMPT, **changed})


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
    assert completion_from_json(_COMPLETION).exit_code == -9
    with pytest.raises(ValueError, match=r"damaged|no text"):
        completion_from_json({**_COMPLETION, **changed})


@pytest.mark.parametrize("values", [[], None, 3, "x"])
def test_a_record_that_is_no_mapping_is_damage(values: Any) -> None:
    for read in (attempt_from_json, completion_from_json):
        with pytest.raises(TypeError):
            read(values)


@pytest.mark.parametrize(
    ("steps", "is_sound"),
    [
        ({}, True),
        ({"first_step": 3, "num_steps": 2}, True),
        ({"first_step": None, "num_steps": 2}, False),
        ({"first_step": 3}, False),
        ({"first_step": 10**30, "num_steps": 2}, False),
    ],
)
def test_a_profile_that_does_not_tell_its_steps_is_damage(
    steps: dict[str, Any], is_sound: bool, tmp_path: Path
) -> None:
    path = tmp_path / "spans"
    span = {"name": "profile_write", "start_unix_s": 1e9, "duration_s": 1.0, **steps}
    path.write_text(json.dumps(span) + "\n")
    spans, num_damaged = read_spans(path)
    assert (len(spans), num_damaged) == ((1, 0) if is_sound else (0, 1))


@pytest.mark.parametrize(("name", "value"), [("step_s", -1.0), ("num_tokens", -5)])
def test_steps_of_less_than_no_time_or_tokens_are_damage(
    name: str, value: float, tmp_path: Path
) -> None:
    steps = np.zeros(4, [(field, "<" + code) for field, code in STEP_FIELDS])
    steps["step"], steps["start_unix_s"] = range(4), 1e9 + np.arange(4)
    steps["memory_peak_bytes"] = 1e6
    steps[name][2:] = value
    path = tmp_path / "rank-00000.steps"
    path.write_bytes(steps_header({}) + steps.tobytes())
    found = read_steps(path)
    assert (len(found.steps), found.num_damaged) == (2, 2)


def test_a_number_that_no_machine_counts_to_is_damage_in_headers(tmp_path: Path) -> None:
    path = tmp_path / "odd"
    path.write_bytes(steps_header({"num_steps": 10**400}))
    with pytest.raises(ValueError, match="odd: damaged"):
        read_steps(path)
    path.write_bytes(ReadingPacker(1).header({"gpus": [{"memory_bytes": 10**400}]}))
    with pytest.raises(ValueError, match="odd: damaged"):
        read_system(path)


_OPERATOR: dict[str, Any] = {
    "name": "aten::mm",
    "kind": "kernel",
    "num_calls": 1,
    "cpu_share": 0.5,
    "device_share": 0.5,
    **dict.fromkeys(("self_cpu_s", "cpu_s", "self_device_s", "device_s"), 1.0),
    "self_cpu_bytes": None,
    "self_device_bytes": -4,
}


@pytest.mark.parametrize(
    ("table", "operator"),
    [
        ({"wall_s": "x"}, {}),
        ({"num_steps": 0}, {}),
        ({"first_step": None}, {}),
        ({"communication_s": float("nan")}, {}),
        ({}, {"self_device_s": "x"}),
        ({}, {"name": 3}),
        ({}, {"name": "\x1b[2Jmm"}),
    ],
)
def test_a_table_of_operators_with_values_of_other_types_is_damage(
    table: dict[str, Any], operator: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "table.json"

    def write(of_table: dict[str, Any], of_operator: dict[str, Any]) -> None:
        whole = {"format": OPERATORS, "first_step": 20, "num_steps": 1, "wall_s": 1.0}
        rows = [{**_OPERATOR, **of_operator}]
        path.write_text(json.dumps({**whole, "operators": rows, **of_table}))

    write({}, {})
    assert read_operators(path).operators[0].name == "aten::mm"
    write(table, operator)
    with pytest.raises(ValueError, match=r"table\.json: damaged"):
        read_operators(path)
