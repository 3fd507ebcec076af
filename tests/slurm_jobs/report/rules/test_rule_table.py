"""All rules together: what they find in a run, and the order of the findings."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

from tests.slurm_jobs.report.builders import finding

SOUND = {"data_wait_s": 0.01, "stopped_at": None, "padding_share": 0.005, "num_ranks": 4}


def test_a_healthy_run_has_no_finding_about_its_training(report_of):
    report = report_of(**SOUND)
    assert [f.rule_id for f in report.findings if f.rule_id.endswith(":train")] == []


def test_padding_straggler_and_lost_steps_are_found_where_they_are_planted(report_of):
    report = report_of(
        num_ranks=4, slow_rank_extra_s=0.3, padding_share=0.35, stopped_at=200, resumed_at=150
    )
    assert finding(report, "padding").severity == "high"
    assert "rank 3 on gpu-01" in finding(report, "straggler").title
    assert "50 steps were done twice" in finding(report, "repeated-steps").title


def test_equally_grave_findings_are_ordered_by_how_much_there_is_to_gain(report_of):
    report = report_of(**{**SOUND, "padding_share": 0.8, "data_wait_s": 0.4})
    grave = [f for f in report.findings if f.severity == "high"]
    gains = [found.ceiling_times or 0.0 for found in grave]
    assert [found.rule_id for found in grave] == ["padding:train", "data-wait:train"]
    assert gains == sorted(gains, reverse=True)


def test_a_run_of_seconds_gets_no_advice_at_all(report_of):
    report = report_of(
        num_steps=2, stopped_at=None, train_queue_s=20.0, task_times_s=(1.0, 1.0, 1.0, 9.0)
    )
    wall_s = report.header.last_unix_s - report.header.created_unix_s
    assert wall_s < 300
    assert report.findings == ()


def test_the_strongest_finding_comes_first_and_is_in_the_verdict(report_of):
    report = report_of(data_wait_s=0.6, task_times_s=(300.0, 310.0, 1200.0, 305.0))
    assert report.findings[0].rule_id == "data-wait:train"
    assert report.findings[0].title in report.verdict


def test_every_finding_carries_all_that_a_reader_needs(report_of):
    report = report_of(data_wait_s=0.6, padding_share=0.3, used_mem_share=0.2, num_ranks=3)
    assert len(report.findings) >= 4
    for found in report.findings:
        for part in ("title", "text", "evidence", "rule", "source", "next_knob", "ceiling"):
            assert getattr(found, part), (found.rule_id, part)


def test_the_documents_table_has_every_rule(report_of):
    lines = (Path(__file__).parents[4] / "docs/reference/report-rules.md").read_text().splitlines()
    start = lines.index("| rule | finds | source |") + 2
    rows = itertools.takewhile(lambda line: line.startswith("|"), lines[start:])
    documented = [name for row in rows for name in re.findall("`([a-z-]+)`", row.split("|")[1])]
    asked = {check.rule_id.partition(":")[0] for check in report_of().checks}
    assert sorted(documented) == sorted(asked)
