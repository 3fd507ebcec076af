"""The method of a report names each rule's threshold once."""

from __future__ import annotations

from tests.slurm_jobs.report.page.parsed_page import page

__all__ = ["page"]


def test_the_threshold_of_each_rule_is_on_the_page_once(page):
    thresholds = page.partition("<h3>Thresholds</h3>")[2]
    assert thresholds.count("data wait below 5 % of the step is fine") == 1
    assert thresholds.count("less than 70 % of the requested memory used") == 1
    assert "XProf, input-pipeline analysis" in thresholds
