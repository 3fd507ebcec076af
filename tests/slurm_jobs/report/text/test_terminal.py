from __future__ import annotations

import re
from dataclasses import replace

import pytest

from slurm_jobs.base import units
from slurm_jobs.base.quantities import TimeShare
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
    assert len(text.splitlines()) <= 91


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_number_is_cut_however_narrow_the_terminal(report_of, width):
    report = report_of(slow_rank_forward_s=0.2, num_ranks=4)
    text = printed(report, width=width)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= width
    for share in (*report.training[0].phases, *report.timeline):
        if share.share >= 0.001:
            assert units.seconds(share.seconds) in text
    for stage in report.stages:
        assert units.quantity(stage.running_s) in text


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


def test_terminal_and_page_show_the_same_parts_of_the_time(report_of):
    """Those of which there is something to see, be it a queue or what is unexplained."""
    parts = {"first": 0.9, "queue wait": 0.0995, "idle": 0.0005, "short": 0.0004, "unexplained": 0}
    shares = tuple(
        TimeShare(name=name, kind="queue", seconds=100 * share, share=share)
        for name, share in parts.items()
    )
    report = replace(report_of(), timeline=shares)
    rest = printed(report).partition("From submit to end\n")[2]
    in_terminal = re.findall(
        r"^ +([a-z]+(?: [a-z]+)*) .* %", rest.partition(" GPU h")[0], re.MULTILINE
    )
    (legend,) = re.findall(
        r'<ul class="legend" aria-label="from submit to end">.*?</ul>',
        render_html(report),
        re.DOTALL,
    )
    assert (
        in_terminal == re.findall(r'class="name">(.*?)<', legend) == ["first", "queue wait", "idle"]
    )


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


def test_terminal_and_page_say_why_stages_can_never_start_each_reason_once(report_of):
    report = report_of()
    first, second, *others = report.stages
    stranded = {"status": "stranded", "status_reason": "not needed: `work` completed"}
    changed = [replace(stage, **stranded) for stage in (first, second)]
    report = replace(report, stages=(*changed, *others))
    line = f"{first.name}, {second.name} stranded: not needed: `work` completed"
    assert f"  {line}\n" in printed(report)
    assert f"<li>{line}</li>" in render_html(report)
