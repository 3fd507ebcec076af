"""Tables of the profiler's operators that are damaged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.formats.timings.profiler_files import OPERATORS_FORMAT_NAME as OPERATORS
from slurm_jobs.formats.timings.profiler_files import read_operators

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
    whole = {"format": OPERATORS, "first_step": 20, "num_steps": 1, "wall_s": 1.0}
    path.write_text(json.dumps({**whole, "operators": [_OPERATOR]}))
    assert read_operators(path).operators[0].name == "aten::mm"
    path.write_text(json.dumps({**whole, "operators": [{**_OPERATOR, **operator}], **table}))
    with pytest.raises(ValueError, match=r"table\.json: damaged"):
        read_operators(path)


@pytest.mark.parametrize(
    "values", [[], 3, {"format": OPERATORS}, {"format": OPERATORS, "operators": [{"name": "mm"}]}]
)
def test_a_table_of_operators_that_is_none_is_refused(values: Any, tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text(json.dumps(values))
    with pytest.raises(ValueError, match=r"table\.json: "):
        read_operators(path)
