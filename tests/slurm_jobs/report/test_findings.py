from __future__ import annotations

import pytest


def found(report):
    return {f.rule_id: f for f in report.findings}


def outcome(report, rule_id):
    return next(c for c in report.checks if c.rule_id == rule_id).outcome


HEALTHY = {"data_wait_s": 0.01, "stopped_at": None, "padding_share": 0.005, "num_ranks": 4}


def test_a_healthy_run_has_no_finding_about_its_training(report_of):
    report = report_of(**HEALTHY)
    assert [f.rule_id for f in report.findings if f.rule_id.endswith(":train")] == []


@pytest.mark.parametrize(("data_wait_s", "severity"), [(0.06, "medium"), (0.6, "high")])
def test_data_wait_is_judged_by_the_bands_of_xprof(report_of, data_wait_s, severity):
    finding = found(report_of(**{**HEALTHY, "data_wait_s": data_wait_s}))["data-wait:train"]
    assert finding.severity == severity
    assert "XProf" in finding.source
    assert finding.ceiling.startswith("no data wait: at most 1.")


def test_padding_straggler_and_lost_steps_are_found_where_they_are_planted(report_of):
    report = report_of(
        num_ranks=4, slow_rank_extra_s=0.3, padding_share=0.35, stopped_at=200, resumed_at=150
    )
    findings = found(report)
    assert findings["padding:train"].severity == "high"
    assert "rank 3 on gpu-01" in findings["straggler:train"].title
    assert "50 steps were done twice" in findings["repeated-steps:train"].title


def test_a_short_training_is_told_what_its_start_up_costs(report_of):
    finding = found(report_of(num_steps=60, stopped_at=None))["around-the-steps:train"]
    assert finding.evidence[0].startswith("stage in: 14.0 s")


def test_an_array_with_one_slow_task_is_called_unbalanced(report_of):
    report = report_of(task_times_s=(300.0, 310.0, 1200.0, 305.0, 290.0))
    finding = found(report)["array-imbalance:preprocess"]
    assert "slice 2" in finding.text
    assert outcome(report_of(), "array-imbalance:preprocess") == "clear"


def test_memory_far_above_use_is_found_with_a_suggestion_of_a_fifth_more(report_of):
    finding = found(report_of(used_mem_share=0.3))["memory-request:preprocess"]
    assert finding.next_knob.startswith("mem_gb: 3 ")  # 1.2 x 2.4 GB, rounded up
    assert "jobstats" in finding.source


def test_short_jobs_are_not_judged_by_their_requests(report_of):
    assert outcome(report_of(used_mem_share=0.3), "memory-request:consolidate") == "abstained"


def test_a_queue_that_takes_most_of_the_time_is_found(report_of):
    finding = found(report_of(train_queue_s=4000.0))["queue-wait"]
    assert finding.ceiling.startswith("no queue wait")
    assert outcome(report_of(with_accounting=False), "queue-wait") == "abstained"


def test_the_strongest_finding_comes_first_and_is_in_the_verdict(report_of):
    report = report_of(data_wait_s=0.6, task_times_s=(300.0, 310.0, 1200.0, 305.0))
    assert report.findings[0].rule_id == "data-wait:train"
    assert report.findings[0].title in report.verdict


def test_every_finding_carries_all_that_a_reader_needs(report_of):
    report = report_of(data_wait_s=0.6, padding_share=0.3, used_mem_share=0.2, num_ranks=3)
    assert len(report.findings) >= 4
    for finding in report.findings:
        for part in ("title", "text", "evidence", "rule", "source", "next_knob", "ceiling"):
            assert getattr(finding, part), (finding.rule_id, part)
