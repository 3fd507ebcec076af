"""Rules on profiled steps: operators and traces are made up, as no GPU was to be had."""

from __future__ import annotations

import gzip
import json

import pytest

from slurm_jobs.formats.timings.profiler_files import operators_path, trace_path
from slurm_jobs.report.inputs.read_inputs import read_inputs
from tests.slurm_jobs.report.builders import (
    change_steps,
    finding,
    notes_with,
    outcomes,
    report_on,
    write_operators,
)
from tests.slurm_jobs.report.profiles.made_up import event

HEALTHY = {"stopped_at": None, "data_wait_s": 0.01}


@pytest.fixture
def exchanged(run_of):
    """The run of ranks of which each recorded so many seconds of exposed communication."""

    def make(*exposed_s, num_ranks=2):
        paths, _ = run_of(num_ranks=num_ranks, **HEALTHY)
        for rank, exposed in enumerate(exposed_s):
            times = {"communication_s": 0.9, "exposed_communication_s": exposed}
            folder = paths.timing_dir("train", 0, 1)
            write_operators(folder, rank, num_steps=3, wall_s=2.0, **times)
        return paths

    return make


@pytest.mark.parametrize(("exposed_s", "severity"), [(0.3, "medium"), (0.5, "high")])
def test_exposed_communication_is_judged_by_the_band_of_pytorchs_profiler(
    exchanged, exposed_s, severity
):
    found = finding(report_on(exchanged(0.01, exposed_s)), "exposed-communication")
    assert found.severity == severity
    assert found.evidence[0].startswith("rank 1, over 3 profiled steps: communication 45 %")
    assert found.ceiling.startswith("no exposed communication: at most 1.")


@pytest.mark.parametrize(
    ("exposed_s", "num_ranks", "outcome"),
    [
        pytest.param((0.01, 0.02), 2, "clear", id="during computation"),
        pytest.param((), 2, "abstained", id="not profiled"),
        pytest.param((), 1, "clear", id="one rank"),
    ],
)
def test_communication_that_no_step_waits_for_is_no_finding(
    exchanged, exposed_s, num_ranks, outcome
):
    report = report_on(exchanged(*exposed_s, num_ranks=num_ranks))
    assert outcomes(report, "exposed-communication") == (outcome,)


def test_a_table_that_cannot_be_read_is_a_problem_and_no_traceback(exchanged):
    paths = exchanged(0.4)
    operators_path(paths.timing_dir("train", 0, 1), 0).write_text("{}")
    problems = read_inputs(paths, ()).problems
    assert any("rank 00000: profile not read" in problem for problem in problems)


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
        paths, _ = run_of(**HEALTHY)
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
