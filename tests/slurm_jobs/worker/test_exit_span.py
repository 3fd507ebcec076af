"""How long a rank's process took to end, by the times of its last files; these are set by hand."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm_jobs.formats.records.task_context import TaskContext
from slurm_jobs.formats.timings.step_records import PROCESS_EXIT_SPAN, read_spans, spans_path
from slurm_jobs.worker.fact_recording import note_exit
from tests.contexts import make_context

ENDED_UNIX_S = 1_700_000_000.0


@pytest.fixture
def context(tmp_path: Path) -> TaskContext:
    """Of a rank that timed one span, five seconds before its process ended."""
    context = make_context("train", tmp_path)
    context.timing_dir.mkdir(parents=True, exist_ok=True)
    line = b'{"name": "export", "start_unix_s": 1.0, "duration_s": 1.0}\n'
    wrote(spans_path(context.timing_dir, 0), 5.0, line)
    return context


def wrote(path: Path, before_end_s: float, content: bytes = b"") -> Path:
    path.write_bytes(content)
    os.utime(path, (ENDED_UNIX_S - before_end_s,) * 2)
    return path


def spans_of(context: TaskContext) -> list[dict[str, object]]:
    spans, num_damaged = read_spans(spans_path(context.timing_dir, 0))
    assert num_damaged == 0
    return spans


def test_a_process_ends_from_when_its_function_returned(
    context: TaskContext, tmp_path: Path
) -> None:
    result = wrote(tmp_path / "result.json", 3.0)
    note_exit(context, [result, tmp_path / "no-error.json"], ENDED_UNIX_S)
    assert spans_of(context)[1:] == [
        {"name": PROCESS_EXIT_SPAN, "start_unix_s": ENDED_UNIX_S - 3.0, "duration_s": 3.0}
    ]


def test_what_stopped_and_returned_nothing_ends_from_its_last_span(context: TaskContext) -> None:
    note_exit(context, [], ENDED_UNIX_S)
    assert spans_of(context)[-1]["duration_s"] == 5.0


def test_a_file_from_after_the_end_by_another_clock_makes_no_time_negative(
    context: TaskContext, tmp_path: Path
) -> None:
    note_exit(context, [wrote(tmp_path / "result.json", -60.0)], ENDED_UNIX_S)
    assert spans_of(context)[-1]["duration_s"] == 0.0


def test_a_stage_that_times_nothing_gets_no_span(tmp_path: Path) -> None:
    context = make_context("own", tmp_path)
    note_exit(context, [], ENDED_UNIX_S)
    assert not spans_path(context.timing_dir, 0).exists()
