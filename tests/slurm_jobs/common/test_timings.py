"""Records of time that something has damaged."""

import json

import pytest

from slurm_jobs.common.timings import read_spans, spans_path

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
    ],
)
def test_line_that_is_no_span_is_damaged_and_those_around_it_are_read(tmp_path, line):
    whole = json.dumps(SPAN) + "\n"
    spans_path(tmp_path, 0).write_text(whole + line + "\n" + whole)
    assert read_spans(spans_path(tmp_path, 0)) == ([SPAN, SPAN], 1)
