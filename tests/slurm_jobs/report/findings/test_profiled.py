"""Rules on profiled steps; the trace is made up, as no GPU was to be had."""

import dataclasses
import gzip
import json

import pytest

from slurm_jobs.report.inputs import read_inputs
from slurm_jobs.report.numbers import build_report
from slurm_jobs.shared.configs.stages import ReportConfig
from slurm_jobs.shared.timings import (
    OPERATORS_FORMAT_NAME,
    OperatorTable,
    operators_path,
    trace_path,
)
from tests.slurm_jobs.report import fabricate_run
from tests.slurm_jobs.report.fabricate_readings import say_in_headers

RULES = ("kernel-launches", "pageable-copies", "small-copies")


def event(cat, name, start_us, end_us):
    return {"ph": "X", "cat": cat, "name": name, "ts": start_us, "dur": end_us - start_us}


@pytest.fixture
def report_of(tmp_path):
    """The report of a training on GPUs whose first rank recorded a step of 1 ms."""

    def make(*events, device="cuda", spoil=lambda data: data):
        scenario = fabricate_run.Scenario(stopped_at=None, data_wait_s=0.01)
        paths, _ = fabricate_run.fabricate(tmp_path / "run", scenario)
        folder = paths.timing_dir("train", 0, 1)
        say_in_headers(folder, device=device)
        table = OperatorTable(first_step=20, num_steps=1, wall_s=0.001, operators=[])
        for rank in range(2):
            text = json.dumps({"format": OPERATORS_FORMAT_NAME, **dataclasses.asdict(table)})
            operators_path(folder, rank).write_text(text)
        step = event("gpu_user_annotation", "step 20", 0, 1000)
        trace = json.dumps({"traceEvents": [step, *events]}).encode()
        trace_path(folder, 0).write_bytes(spoil(gzip.compress(trace)))
        return build_report(read_inputs(paths, ()), ReportConfig())

    return make


def outcomes(report):
    found = {c.rule_id.partition(":")[0]: c.outcome for c in report.checks}
    return {rule: found[rule] for rule in RULES}


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


@pytest.mark.parametrize("cause", CAUSES)
def test_each_cause_is_found_in_the_trace_and_no_other(report_of, cause):
    report = report_of(*CAUSES[cause])
    assert outcomes(report) == {rule: "found" if rule == cause else "clear" for rule in RULES}


def test_a_device_that_is_busy_has_none(report_of):
    assert set(outcomes(report_of(event("kernel", "gemm", 0, 990))).values()) == {"clear"}


def test_a_training_on_cpus_has_no_kernels(report_of):
    assert set(outcomes(report_of(device="cpu")).values()) == {"clear"}


def test_a_profile_of_the_host_alone_judges_no_device(report_of):
    report = report_of(event("cpu_op", "aten::mm", 0, 900))
    assert set(outcomes(report).values()) == {"abstained"}


def test_a_trace_that_was_cut_short_costs_its_rules_alone(report_of):
    report = report_of(*CAUSES["kernel-launches"], spoil=lambda data: data[:-30])
    assert set(outcomes(report).values()) == {"abstained"}
    assert any("trace not read" in note for note in report.notes)
