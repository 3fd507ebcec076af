"""Other processes that hold the job's cores: planted in readings and records, and not."""

import itertools
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from slurm_jobs.report.inputs import read_inputs
from slurm_jobs.report.node_load import of_others
from slurm_jobs.report.numbers import build_report
from slurm_jobs.shared.configs.stages import ReportConfig
from tests.slurm_jobs.report import fabricate_run
from tests.slurm_jobs.report.fabricate_readings import say_in_headers, write_readings

FIELDS = ("cpu_busy_share", "job_cpu_s_per_s")
STEP_S = 0.5
"""About what a fabricated step takes."""


@pytest.fixture
def report_of(tmp_path):
    """The report of a training whose node has so many cores busy, its own processes so many."""
    numbers = itertools.count()

    def make(*, busy, own, cores=8, asked=8, core_wait_s=0.2 * STEP_S, **properties):
        scenario = fabricate_run.Scenario(
            stopped_at=None, core_wait_s=core_wait_s, **{"data_wait_s": 0.01, **properties}
        )
        paths, _ = fabricate_run.fabricate(tmp_path / f"run{next(numbers)}", scenario)
        folder = paths.timing_dir("train", 0, 1)
        say_in_headers(folder, device="cpu")
        host = {"cpu_busy_share": busy / cores, "cpu_iowait_share": 0.0, "job_cpu_s_per_s": own}
        write_readings(folder, host=host, cores=cores)
        spec = json.loads(paths.resolved_spec.read_text())
        spec["stages"]["train"]["resources"] |= {"cpus_per_task": asked, "tasks_per_node": 1}
        paths.resolved_spec.write_text(json.dumps(spec))
        return build_report(read_inputs(paths, ()), ReportConfig())

    return make


def check_of(report):
    return next(c for c in report.checks if c.rule_id == "foreign-load:train")


def finding(report, rule="foreign-load"):
    return next(f for f in report.findings if f.rule_id == f"{rule}:train")


def test_cores_that_others_hold_while_the_training_waits_for_one_are_found(report_of):
    found = finding(report_of(busy=8.0, own=3.0))
    assert found.title == "other processes hold the job's cores on gpu-01 (train)"
    assert found.evidence[0] == (
        "of the 8 cores of gpu-01 that the job may use, processes of others keep 5.0 busy, its own "
        "3.0: others hold 5.0 of the 8 that it asked for"
    )
    assert found.evidence[1].startswith("the thread that makes the steps of rank 0 waits for a")
    assert "squeue -w gpu-01" in found.next_knob
    assert found.ceiling_times is None


def test_cores_that_the_job_keeps_busy_itself_are_not_held_by_others(report_of):
    assert check_of(report_of(busy=8.0, own=7.5)).outcome == "clear"


def test_busy_cores_that_no_thread_of_the_job_waits_for_are_no_finding(report_of):
    check = check_of(report_of(busy=8.0, own=3.0, core_wait_s=0.001))
    assert check.outcome == "clear"
    assert check.reason.endswith("its threads hardly wait for a core")


def test_a_neighbour_on_cores_that_the_job_did_not_ask_for_is_no_finding(report_of):
    """Nothing binds the job, so that it may use all 64 cores; 56 are its neighbours' by right."""
    assert check_of(report_of(busy=64.0, own=8.0, cores=64)).outcome == "clear"
    taken = finding(report_of(busy=64.0, own=4.0, cores=64))
    assert taken.evidence[0].endswith("others hold 4.0 of the 8 that it asked for")


@pytest.mark.parametrize("own", [math.nan, 3.0])
def test_without_what_it_rests_on_the_rule_abstains(report_of, own):
    """Readings without the job's own processes; records without the waits for cores."""
    assert check_of(report_of(busy=8.0, own=own, core_wait_s=math.nan)).outcome == "abstained"


def test_a_loader_that_waits_for_cores_counts_too_while_steps_wait_for_data(report_of):
    """The thread that makes the steps sleeps until its data is there, and so waits for no core."""
    planted = {"core_wait_s": 0.0, "loader_s": (0.9, 0.3, 0.5)}
    report = report_of(busy=8.0, own=3.0, data_wait_s=0.5, **planted)
    assert finding(report).evidence[-1].startswith("the loader's threads of rank ")
    data_wait = finding(report, "data-wait")
    assert data_wait.cause == "cores"
    assert "processes that are not the job's hold them" in data_wait.text
    assert check_of(report_of(busy=8.0, own=3.0, **planted)).outcome == "clear"


def test_records_without_the_threads_times_still_tell_whose_the_busy_cores_are(report_of):
    report = report_of(busy=8.0, own=3.0, data_wait_s=0.5)
    assert "many of them with processes that are not the job's" in finding(report, "data-wait").text


def readings_of(node, attempt, *, cores, busy, own):
    dtype = [("unix_s", "f8"), *((name, "f4") for name in ("interval_s", *FIELDS))]
    rows = np.zeros(30, dtype)
    rows["interval_s"], rows["unix_s"] = 1.0, np.arange(30) + 1000 * attempt
    rows["cpu_busy_share"], rows["job_cpu_s_per_s"] = busy / cores, own
    metadata = {"cores": list(range(cores))}
    return SimpleNamespace(node=node, attempt=attempt, metadata=metadata), rows


def test_what_others_hold_is_told_attempt_by_attempt():
    """The first had 4 cores, the second 16, all busy with the job itself."""
    parts = [
        readings_of("n1", 1, cores=4, busy=4.0, own=4.0),
        readings_of("n1", 2, cores=16, busy=16.0, own=16.0),
    ]
    assert of_others(parts).mean == pytest.approx(0.0, abs=1e-5)


def test_readings_without_the_jobs_own_time_say_nothing_of_others():
    parts = [
        readings_of("n1", 1, cores=8, busy=8.0, own=math.nan),
        readings_of("n1", 1, cores=8, busy=7.0, own=6.0),
    ]
    assert of_others(parts).mean == pytest.approx(1.0, abs=1e-5)
