"""Timing records that are damaged are named, and the rest of a report is made."""

from __future__ import annotations

import math

import pytest

from slurm_jobs.formats.timings.profiler_files import operators_path
from slurm_jobs.formats.timings.step_records import spans_path, steps_path
from slurm_jobs.formats.timings.system_readings import ReadingPacker, system_path
from slurm_jobs.report.inputs.read_inputs import read_inputs
from tests.slurm_jobs.report.builders import notes_with, report_from, report_on, stage_of
from tests.slurm_jobs.report.fabricate_run import STEP_DTYPE
from tests.slurm_jobs.report.profiled_ranks import exchanged

__all__ = ["exchanged"]

HEALTHY = {"data_wait_s": 0.01, "stopped_at": None, "padding_share": 0.005}


@pytest.mark.parametrize("content", [b"no readings", None], ids=["damaged", "killed at once"])
def test_a_file_without_a_reading_leaves_the_rest_of_the_report(run_of, content):
    """The sampler's header is there at once, the first reading a second later."""
    paths, _ = run_of(**HEALTHY)
    about = {"node_name": "gpu-01", "gpus": [{"uuid": "a", "name": "V100"}]}
    file = system_path(paths.timing_dir("train", 0, 1), 0)
    file.write_bytes(content or ReadingPacker(1).header(about))
    inputs = read_inputs(paths, ())
    told = [problem for problem in inputs.problems if "readings of a node not read" in problem]
    assert len(told) == (content is not None)
    report = report_from(inputs)
    assert report.training[0].loads == ()
    assert "no reading" in stage_of(report).gpu_busy.missing


ENDED = {"stopped_at": None, "data_wait_s": 0.01}


def test_a_table_that_cannot_be_read_is_a_problem_and_no_traceback(exchanged):
    paths = exchanged(0.4)
    operators_path(paths.timing_dir("train", 0, 1), 0).write_text("{}")
    problems = read_inputs(paths, ()).problems
    assert any("rank 00000: profile not read" in problem for problem in problems)


@pytest.fixture
def run(run_of):
    return run_of(stopped_at=None)


def test_a_span_that_is_no_mapping_is_named_and_the_report_is_made(run):
    paths, rows = run
    with spans_path(paths.timing_dir("train", 0, 1), 0).open("a") as stream:
        stream.write("null\n")
    report = report_on(paths, rows)
    assert "s00000.a0001, rank 0: 1 damaged line of spans left out" in report.notes
    assert "export" in {share.name for share in report.training[0].budget}


def test_step_records_that_a_crash_left_as_zeros_are_no_measurements(run):
    paths, rows = run
    for rank in (0, 1):
        file = steps_path(paths.timing_dir("train", 0, 1), rank)
        file.write_bytes(file.read_bytes()[:-4096] + bytes(4096))
    report = report_on(paths, rows)
    num_lost = math.ceil(4096 / STEP_DTYPE.itemsize)
    for rank in (0, 1):
        told = f"s00000.a0001, rank {rank}: {num_lost} step records left out, from the first"
        assert f"{told} damaged one on" in report.notes
    training = report.training[0]
    assert training.num_steps == 400 - num_lost
    assert 0.1 < training.last_loss.value < 0.4
    assert not notes_with(report, "clock")
