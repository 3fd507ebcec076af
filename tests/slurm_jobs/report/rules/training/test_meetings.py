"""Exchanges of the ranks that take time by themselves."""

from __future__ import annotations

from tests.slurm_jobs.report.builders import check, finding

SOUND = {"data_wait_s": 0.01, "stopped_at": None, "padding_share": 0.005, "num_ranks": 4}


def test_what_the_exchange_itself_takes_is_no_wait_for_a_slow_rank(report_of):
    report = report_of(**SOUND, meeting_s=0.06)
    assert check(report, "straggler").outcome == "clear"
    found = finding(report, "meetings")
    assert found.title.startswith("10 % of each step is spent on exchanges")
    assert found.ceiling.startswith("no time in these exchanges: at most 1.12 times the speed")
    assert found.confidence == "high: each exchange is timed separately"
    assert check(report_of(**SOUND, alternating_forward_s=0.3), "meetings").outcome == "clear"
