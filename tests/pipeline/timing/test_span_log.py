"""Spans, their notes and failures."""

from __future__ import annotations

import pytest

from pipeline.timing.span_log import SpanLog
from slurm_jobs.formats.timings.step_records import read_spans, spans_path
from tests.pipeline.timing.test_recorder import full_disk


def test_spans_keep_notes_and_failures(tmp_path):
    log = SpanLog(tmp_path, 2)
    with log.span("stage_in", source="shared") as notes:
        notes["num_bytes"] = 5
    with pytest.raises(ValueError), log.span("export"):
        raise ValueError
    (first, second), num_damaged = read_spans(spans_path(tmp_path, 2))
    assert num_damaged == 0
    assert (first["name"], first["source"], first["num_bytes"]) == ("stage_in", "shared", 5)
    assert first["duration_s"] >= 0
    assert (second["name"], second["error"]) == ("export", "ValueError")


def test_span_cut_short_by_a_full_disk_spoils_no_other_and_hides_no_error(tmp_path, caplog):
    log, path = SpanLog(tmp_path, 0), spans_path(tmp_path, 0)
    with log.span("stage_in"):
        pass
    with full_disk(path, num_bytes_left=30):
        with pytest.raises(ValueError, match="the real error"), log.span("checkpoint"):
            raise ValueError("the real error")
        with pytest.raises(OSError), log.span("evaluation"):
            pass
    with log.span("export"):
        pass
    assert [span["name"] for span in read_spans(path)[0]] == ["stage_in", "export"]
    assert "the span checkpoint is not written" in caplog.text
