"""Reports of a run whose nodes, GPUs and loader were as busy as a test says."""

from __future__ import annotations

import pytest

from tests.slurm_jobs.report.builders import change_steps, edited, report_on
from tests.slurm_jobs.report.fabricate_readings import write_readings

CALM = {"cpu_busy_share": 0.6, "cpu_iowait_share": 0.01, "disk_read_bytes_per_s": 1e8}
HEALTHY = {"data_wait_s": 0.01, "stopped_at": None, "padding_share": 0.005}


@pytest.fixture
def loaded(run_of):
    """Report a run whose readings, device and config are given."""

    def make(
        *, readings=None, device="cuda", config=None, resources=None, microbatches=1, **properties
    ):
        paths, _ = run_of(**{**HEALTHY, **properties})
        folder = paths.timing_dir("train", 0, 1)

        def accumulate(steps):
            steps["num_microbatches"] = microbatches

        change_steps(folder, accumulate, device=device)
        if readings is not None:
            write_readings(folder, **{"host": CALM, **readings})
        with edited(paths.resolved_spec) as spec:
            spec["stages"]["train"]["config"] |= config or {}
            spec["stages"]["train"]["resources"] |= resources or {}
        return report_on(paths)

    return make


def cpus(busy, iowait=0.0, **more):
    """Readings of a node whose cores are busy, or wait for disks, for these shares."""
    return {"host": {"cpu_busy_share": busy, "cpu_iowait_share": iowait, **more}}


@pytest.fixture
def held(loaded):
    """Report a training on CPUs whose node has so many cores busy, `own` of them with its work."""

    def make(busy, own, *, cores=8, core_wait_s=0.1, **properties):
        readings = {**cpus(busy / cores, job_cpu_s_per_s=own), "cores": cores}
        resources = {"cpus_per_task": 8, "tasks_per_node": 1}
        planted = {"readings": readings, "resources": resources, "device": "cpu"}
        return loaded(core_wait_s=core_wait_s, **planted, **properties)

    return make
