"""Records of time that something has damaged."""

import json
import math

import numpy as np
import pytest

from slurm_jobs.formats.timings.step_records import (
    STEP_FIELDS,
    pack_step,
    read_spans,
    read_steps,
    spans_path,
    steps_header,
    steps_path,
)

SPAN = {"name": "export", "start_unix_s": 1_700_000_000.5, "duration_s": 2}


@pytest.mark.parametrize(
    "line",
    [
        "null",
        "7",
        '["export"]',
        "{}",
        "{",
        "\0\0\0",
        json.dumps({**SPAN, "name": None}),
        json.dumps({**SPAN, "start_unix_s": "1700000000"}),
        json.dumps({**SPAN, "start_unix_s": True}),
        json.dumps({**SPAN, "start_unix_s": 10**400}),
        json.dumps({**SPAN, "duration_s": float("nan")}),
        json.dumps({**SPAN, "duration_s": -1.0}),
        json.dumps({"name": "export", "start_unix_s": 0.0}),
        json.dumps({**SPAN, "name": "profile_write", "first_step": None, "num_steps": 2}),
        json.dumps({**SPAN, "name": "profile_write", "first_step": 3}),
        json.dumps({**SPAN, "name": "profile_write", "first_step": 10**30, "num_steps": 2}),
    ],
)
def test_line_that_is_no_span_is_damaged_and_those_around_it_are_read(tmp_path, line):
    whole = json.dumps(SPAN) + "\n"
    spans_path(tmp_path, 0).write_text(whole + line + "\n" + whole)
    assert read_spans(spans_path(tmp_path, 0)) == ([SPAN, SPAN], 1)


@pytest.mark.parametrize("steps", [{}, {"first_step": 3, "num_steps": 2}])
def test_a_profile_with_its_steps_or_none_is_read(tmp_path, steps):
    span = {**SPAN, "name": "profile_write", **steps}
    spans_path(tmp_path, 0).write_text(json.dumps(span) + "\n")
    assert read_spans(spans_path(tmp_path, 0)) == ([span], 0)


def write_steps(folder, changes=()):
    """Ten whole records, but for `changes`: (index, field, value); where each begins."""
    records = [
        {**{name: 1.0 if code[0] == "f" else 1 for name, code in STEP_FIELDS}, "step": step}
        for step in range(10)
    ]
    for index, name, value in changes:
        records[index][name] = value
    packed = [pack_step(record) for record in records]
    header = steps_header({})
    steps_path(folder, 0).write_bytes(header + b"".join(packed))
    return [len(header) + index * len(packed[0]) for index in range(10)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step", 6),
        ("step", 2),
        ("start_unix_s", 0.0),
        ("start_unix_s", math.nan),
        ("start_unix_s", 1e300),
        ("start_unix_s", 2e9),
        ("step_s", math.nan),
        ("forward_s", math.inf),
        ("step_s", -1.0),
        ("num_tokens", -5),
    ],
)
def test_step_records_end_before_the_first_invalid_one(tmp_path, name, value):
    write_steps(tmp_path, [(7, name, value)])
    file = read_steps(steps_path(tmp_path, 0))
    assert file.steps["step"].tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert file.num_damaged == 3


def test_a_record_with_zeros_at_its_end_is_kept_only_if_it_has_its_loss(tmp_path):
    fields = np.dtype([(name, "<" + code) for name, code in STEP_FIELDS])
    end_of_loss = fields.fields["loss"][1] + 4
    starts = write_steps(tmp_path)
    whole = steps_path(tmp_path, 0).read_bytes()
    for lost in range(fields.itemsize):
        at = starts[7] + lost
        steps_path(tmp_path, 0).write_bytes(whole[:at] + bytes(len(whole) - at))
        file = read_steps(steps_path(tmp_path, 0))
        assert len(file.steps) == (8 if lost >= end_of_loss else 7)
        assert set(file.steps["loss"]) == {1.0}
        assert len(file.steps) + file.num_damaged == 10


def test_loss_and_norm_may_be_no_number(tmp_path):
    write_steps(tmp_path, [(7, "loss", math.nan), (7, "grad_norm", math.nan)])
    assert len(read_steps(steps_path(tmp_path, 0)).steps) == 10
