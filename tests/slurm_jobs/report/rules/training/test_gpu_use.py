"""GPUs that are idle during the measured steps, planted in readings, and those that are not."""

from __future__ import annotations

import pytest

from slurm_jobs.report.page.report_page import render_html
from tests.slurm_jobs.report.builders import finding, outcomes, stage_of
from tests.slurm_jobs.report.fabricate_readings import GIB
from tests.slurm_jobs.report.loaded_nodes import loaded

__all__ = ["loaded"]

HEALTHY = {"data_wait_s": 0.01, "stopped_at": None, "padding_share": 0.005}
GPU_RULES = ("gpu-use", "gpu-fluctuates", "small-batch", "accumulation")


def test_a_busy_gpu_with_full_memory_has_no_finding(loaded):
    report = loaded(readings={"gpu_busy": 0.95, "gpu_gib": 8.0})
    assert set(outcomes(report, *GPU_RULES, "storage-queue")) == {"clear"}
    (load,) = report.training[0].loads
    assert load.gpu_busy.mean == pytest.approx(0.95)
    assert load.gpu_memory_peak_bytes == pytest.approx(6 * GIB)
    assert "Load of the nodes during the steps" in render_html(report)


def test_without_readings_the_rules_abstain(loaded):
    report = loaded()
    assert set(outcomes(report, "gpu-use", "small-batch", "storage-queue")) == {"abstained"}
    assert "no reading" in stage_of(report).gpu_busy.missing  # and not called idle


def test_on_cpus_rules_on_gpus_have_nothing_to_find(loaded):
    assert set(outcomes(loaded(device="cpu", readings={}), *GPU_RULES)) == {"clear"}


@pytest.mark.parametrize(("busy", "severity"), [(0.1, "high"), (0.2, "note")])
def test_idle_gpus_are_judged_by_the_bands_of_jobstats(loaded, busy, severity):
    found = finding(loaded(readings={"gpu_busy": busy}), "gpu-use")
    assert found.severity == severity
    assert "jobstats" in found.source


def test_a_gpu_that_swings_is_found_though_its_mean_is_fine(loaded):
    report = loaded(readings={"gpu_busy": lambda n: 0.9 if n % 3 else 0.02})
    assert outcomes(report, "gpu-use") == ("clear",)
    assert "p95 90 %" in finding(report, "gpu-fluctuates").evidence[0]
    assert stage_of(report).gpu_busy.value == pytest.approx(0.61, abs=0.02)
