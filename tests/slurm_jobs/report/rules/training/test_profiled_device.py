"""Causes in the device's activity of profiled steps; the traces are made up."""

from __future__ import annotations

import gzip
import json

import pytest

from slurm_jobs.formats.timings.profiler_files import trace_path
from tests.slurm_jobs.report.builders import (
    change_steps,
    notes_with,
    outcomes,
    report_on,
    write_operators,
)
from tests.slurm_jobs.report.profiles.made_up import event

ENDED = {"stopped_at": None, "data_wait_s": 0.01}
RULES = ("kernel-launches", "pageable-copies", "small-copies")
CAUSES = {
    "kernel-launches": [event("kernel", "k", at, at + 4) for at in range(0, 1000, 20)],
    "pageable-copies": [
        event("kernel", "gemm", 0, 900),
        event("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 900, 1000),
    ],
    "small-copies": [
        event("kernel", "gemm", 0, 1000),
        *(event("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", a, a + 2) for a in range(60)),
    ],
}


@pytest.fixture
def traced(run_of):
    """The report of a training on GPUs whose first rank recorded a step of 1 ms."""

    def make(*events, device="cuda", cut=None):
        paths, _ = run_of(**ENDED)
        folder = paths.timing_dir("train", 0, 1)
        change_steps(folder, device=device)
        for rank in range(2):
            write_operators(folder, rank, num_steps=1, wall_s=0.001)
        step = event("gpu_user_annotation", "step 20", 0, 1000)
        trace = json.dumps({"traceEvents": [step, *events]}).encode()
        trace_path(folder, 0).write_bytes(gzip.compress(trace)[:cut])
        return report_on(paths)

    return make


@pytest.mark.parametrize("cause", CAUSES)
def test_each_cause_is_found_in_the_trace_and_no_other(traced, cause):
    wanted = tuple("found" if rule == cause else "clear" for rule in RULES)
    assert outcomes(traced(*CAUSES[cause]), *RULES) == wanted


@pytest.mark.parametrize(
    ("events", "device", "outcome"),
    [
        pytest.param([event("kernel", "gemm", 0, 990)], "cuda", "clear", id="busy device"),
        pytest.param([], "cpu", "clear", id="no device"),
        pytest.param([event("cpu_op", "aten::mm", 0, 900)], "cuda", "abstained", id="host alone"),
    ],
)
def test_a_trace_without_a_cause_has_none(traced, events, device, outcome):
    assert outcomes(traced(*events, device=device), *RULES) == (outcome,) * 3


def test_a_trace_that_was_cut_short_costs_its_rules_alone(traced):
    report = traced(*CAUSES["kernel-launches"], cut=-30)
    assert outcomes(report, *RULES) == ("abstained",) * 3
    assert notes_with(report, "trace not read")
