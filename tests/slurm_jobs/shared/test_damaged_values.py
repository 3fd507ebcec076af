"""Timings that are whole JSON with values of other types than their writers': damage."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slurm_jobs.shared.timings import OPERATORS_FORMAT_NAME as OPERATORS
from slurm_jobs.shared.timings import (
    STEP_FIELDS,
    read_operators,
    read_spans,
    read_steps,
    steps_header,
)


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
