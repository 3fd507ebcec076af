"""What was used of the requests, with the definitions of seff."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_jobs.report.values.report_model import report_to_json
from tests.slurm_jobs.report.builders import report_from, row_of, with_rows, with_stage

GIB = 2**30


@pytest.fixture
def consolidate(inputs_of):
    """Return the efficiency of a stage whose one start has these numbers in the accounting."""

    def make(tasks_per_node=1, **row_changes):
        inputs = inputs_of()
        (stage,) = (each for each in inputs.stages if each.name == "consolidate")
        resources = {**stage.resources, "tasks_per_node": tasks_per_node}
        changed = with_rows(
            with_stage(inputs, "consolidate", resources=resources), "13", **row_changes
        )
        report = report_from(changed)
        return next(each for each in report.efficiency if each.stage == "consolidate")

    return make


def test_cpu_efficiency_is_processor_time_over_cores_times_elapsed_time(consolidate):
    cpu = consolidate(num_cpus=8, cpu_time_s=88.0, start_unix_s=1000.0, end_unix_s=1044.0).cpu
    assert (cpu.requested.value, cpu.used.value) == (8, 2)
    assert cpu.share.value == pytest.approx(88 / (8 * 44))


def test_memory_is_that_of_the_largest_task_over_the_request_of_its_node(consolidate):
    memory = consolidate(requested_mem_bytes=8 * GIB, max_rss_bytes=6 * GIB).memory
    assert memory.share.value == 0.75
    assert memory.share.at_least == ""


def test_the_largest_of_several_tasks_is_a_lower_bound_for_its_node(consolidate):
    row = {"requested_mem_bytes": 8 * GIB, "max_rss_bytes": GIB}
    memory = consolidate(tasks_per_node=4, **row).memory
    assert memory.share.value == 0.125
    assert "4 tasks" in memory.share.at_least


def test_time_is_the_longest_job_over_its_limit(consolidate):
    time = consolidate(start_unix_s=1000.0, end_unix_s=1900.0, time_limit_s=3600).time
    assert (time.used.value, time.share.value) == (900, 0.25)


@pytest.mark.parametrize(
    ("row", "use", "reason"),
    [
        ({"requested_mem_bytes": None}, "memory", "`mem_gb` is not set"),
        ({"max_rss_bytes": None}, "memory", "MaxRSS"),
        ({"cpu_time_s": None}, "cpu", "processor time"),
        ({"time_limit_s": None}, "time", "a time limit"),
        ({"num_gpus": 0}, "gpu", "no GPU was allocated"),
    ],
)
def test_a_share_that_is_not_known_has_a_reason(consolidate, row, use, reason):
    share = getattr(consolidate(**row), use).share
    assert share.value is None
    assert reason in share.missing


def test_the_most_memory_over_a_request_is_kept_with_that_request(inputs_of):
    inputs = inputs_of()
    rows = [
        replace(row_of(inputs, f"12_{index}"), requested_mem_bytes=GIB / 2, max_rss_bytes=used)
        for index, used in enumerate((GIB / 4, 3.78 * GIB, GIB, GIB / 4))
    ]
    for row in rows:
        inputs = with_rows(inputs, row.job_id, row)
    (excess,) = (e.memory_excess for e in report_from(inputs).efficiency if e.stage == "preprocess")
    assert (excess.num_over, excess.num_known) == (2, 4)
    assert (excess.used_bytes, excess.requested_bytes) == (3.78 * GIB, GIB / 2)


def test_stages_that_have_not_started_and_the_report_itself_have_no_row(report_of):
    assert [each.stage for each in report_of().efficiency] == ["preprocess", "consolidate", "train"]


def test_the_json_has_shares_and_wasted_hours_by_kind(report_of):
    first, *_ = report_to_json(report_of())["efficiency"]
    assert first["stage"] == "preprocess"
    assert first["time"]["share"]["value"] == pytest.approx(410 / 3600)
    assert [waste["kind"] for waste in first["waste"]] == ["failed", "repeated", "idle"]
