"""A report in the terminal: its order and length, and that it says what the page says."""

from __future__ import annotations

import re
from dataclasses import replace

from slurm_jobs.report.page.report_page import render_html
from tests.slurm_jobs.report.builders import printed


def test_terminal_and_page_have_the_same_order(report_of):
    report = report_of(data_wait_s=0.3)
    page = re.findall(r"<h2>(.*?)</h2>", render_html(report))
    in_terminal = [line for line in printed(report).splitlines() if line and line[0] != " "]
    starts = ("Where", "Finding", "From", "Training", "Data", "Evaluation", "Stages", "Method")
    both = [
        [start for name in names for start in starts if name.startswith(start)]
        for names in (page, in_terminal)
    ]
    assert both[0] == both[1] == list(starts)


def test_a_report_is_no_longer_than_a_tall_screen(report_of):
    text = printed(report_of(data_wait_s=0.3), width=100)
    assert len(text.splitlines()) <= 92


def test_no_colour_is_used_where_it_is_not_wanted(report_of, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    text = printed(report_of(), force_terminal=True)
    assert not [code for code in ("[31m", "[33m", "[34m") if code in text]


def test_reasons_of_rejects_that_are_not_named_are_counted(report_of):
    reasons = {f"reason_{number}": 10 - number for number in range(9)}
    text = " ".join(printed(report_of(rejects=reasons), width=200).split())
    assert "rejected 57 " in text  # 45 of them are of the six that are named
    assert "reason_5 5, 4 other reasons 12" in text
    assert "other reasons" not in printed(report_of())


def test_markup_in_a_name_is_printed_as_it_is(report_of):
    assert "[bold]x[/bold]" in printed(report_of(name="[bold]x[/bold]"))


def test_a_run_of_one_step_without_accounting_prints_why(report_of):
    text = printed(report_of(with_accounting=False, stopped_at=None, num_steps=1))
    assert "no accounting" in text


def test_counts_of_a_part_of_the_slices_say_so_in_terminal_and_page(report_of):
    report = report_of()
    assert "of 4 slices" not in printed(report) + render_html(report)
    (data,) = report.data
    part = replace(report, data=(replace(data, num_slices_reported=1),))
    assert "of 1 of 4 slices, those that completed:" in printed(part).partition("Data: ")[2]
    facts = dict(re.findall(r"<dt>(.*?)</dt>\s*<dd>(.*?)</dd>", render_html(part), re.DOTALL))
    assert facts["rejected"] == "16, of 1 of 4 slices"
    assert facts["shards"] == "8"


def test_the_queue_of_a_stage_is_called_a_median_on_a_narrow_terminal_too(report_of):
    assert "median queue" in printed(report_of(), width=40).partition("\nStages")[2]
