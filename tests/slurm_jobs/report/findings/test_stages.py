"""Rules on a stage's requests, on the rows it left out, and on the work of preprocessing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from slurm_jobs.base.quantities import known, missing
from slurm_jobs.report.page.report_page import render_html
from slurm_jobs.report.rules.stages.no_pictures import no_pictures
from slurm_jobs.report.rules.stages.rows_left_out import left_out, rejected
from slurm_jobs.report.rules.stages.tokenising import slow_tokenising
from slurm_jobs.report.text.sentences import next_request
from tests.slurm_jobs.report.builders import (
    check,
    finding,
    printed,
    report_from,
    row_of,
    with_rows,
    with_stage,
)

GIB = 2**30


@pytest.fixture
def requested(inputs_of):
    """Report a training with so many tasks a node, and another row in the accounting."""
    inputs = inputs_of(stopped_at=None, num_steps=900)
    (train,) = (stage for stage in inputs.stages if stage.name == "train")

    def make(tasks_per_node, **row_changes):
        resources = {**train.resources, "tasks_per_node": tasks_per_node}
        changed = with_stage(inputs, "train", resources=resources)
        return report_from(with_rows(changed, "14", **row_changes))

    return make


@pytest.mark.parametrize(
    ("num_tasks", "row", "reason"),
    [
        pytest.param(
            4, {"requested_mem_bytes": 256 * GIB, "max_rss_bytes": 55 * GIB},
            "55.0 GiB by the largest task, so at most 220 GiB by 4 tasks",
            id="four tasks may use four times what one does",
        ),
        pytest.param(
            1, {"requested_mem_bytes": 8 * GIB, "max_rss_bytes": GIB, "state": "OUT_OF_MEMORY"},
            "ran out of memory", id="out of memory",
        ),
        pytest.param(
            1, {"requested_mem_bytes": 8 * GIB, "max_rss_bytes": GIB, "source": "local"},
            "local scheduler", id="the largest process of a local task is not all of them",
        ),
        pytest.param(
            1, {"requested_mem_bytes": None, "max_rss_bytes": GIB},
            "", id="all of a node",
        ),
    ],
)  # fmt: skip
def test_no_advice_on_memory_is_given_that_might_get_a_job_killed(
    requested, num_tasks, row, reason
):
    found = check(requested(num_tasks, **row), "memory-request")
    assert found.outcome == "abstained"
    assert found.reason
    assert reason in found.reason


def test_advice_for_several_tasks_assumes_that_each_needs_the_most(requested):
    report = requested(4, requested_mem_bytes=256 * GIB, max_rss_bytes=25 * GIB)
    found = finding(report, "memory-request")
    assert found.title.startswith("at most 39 % of the requested memory")
    assert found.next_knob.startswith("mem_gb: 120 ")
    assert "at most 100 GiB by 4 tasks, of 256 GiB requested per node" in found.evidence[0]


def test_memory_far_above_use_is_found_with_a_suggestion_of_a_fifth_more(requested):
    report = requested(1, requested_mem_bytes=8 * GIB, max_rss_bytes=2.1 * GIB)
    found = finding(report, "memory-request")
    assert found.next_knob.startswith("mem_gb: 3 ")
    assert "jobstats" in found.source


def test_memory_above_the_request_is_found_with_the_request_that_is_needed(requested):
    report = requested(1, requested_mem_bytes=GIB / 2, max_rss_bytes=3.78 * GIB)
    found = finding(report, "memory-exceeded")
    assert found.title == "a task used 3.78 GiB of memory, 512 MiB was requested (train)"
    assert found.evidence[0] == "1 of 1 start used more than requested"
    assert found.next_knob.startswith("mem_gb: 5 ")
    assert "OUT_OF_MEMORY" in found.text
    assert check(report, "memory-request").outcome == "clear"
    assert next_request(report, "train").startswith("mem_gb: 5")


@pytest.mark.parametrize(
    ("row", "outcome", "reason"),
    [
        pytest.param({"max_rss_bytes": GIB}, "clear", "", id="all of the request"),
        pytest.param({"max_rss_bytes": None}, "abstained", "MaxRSS", id="no sample"),
        pytest.param(
            {"requested_mem_bytes": None, "max_rss_bytes": GIB},
            "abstained",
            "mem_gb",
            id="no request",
        ),
        pytest.param(
            {"max_rss_bytes": 2 * GIB, "state": "OUT_OF_MEMORY"}, "clear", "killed", id="killed"
        ),
        pytest.param({"max_rss_bytes": 2 * GIB, "source": "local"}, "clear", "", id="local"),
    ],
)
def test_memory_within_the_request_or_not_known_is_no_excess(requested, row, outcome, reason):
    found = check(requested(1, **{"requested_mem_bytes": GIB, **row}), "memory-exceeded")
    assert found.outcome == outcome
    assert reason in found.reason


def test_an_excess_that_the_newest_request_covers_is_no_finding(inputs_of):
    inputs = inputs_of(stopped_at=None)
    row = row_of(inputs, "14")
    before = replace(
        row, requested_mem_bytes=GIB, max_rss_bytes=3 * GIB,
        start_unix_s=row.start_unix_s - 60, end_unix_s=row.start_unix_s - 30,
    )  # fmt: skip
    after = replace(row, requested_mem_bytes=4 * GIB, max_rss_bytes=3 * GIB)
    found = check(report_from(with_rows(inputs, "14", before, after)), "memory-exceeded")
    assert (found.outcome, "newest request is larger" in found.reason) == ("clear", True)


def test_a_short_job_that_used_too_much_memory_is_found(requested):
    start = 1_700_000_000.0
    report = requested(
        1, requested_mem_bytes=GIB, max_rss_bytes=2 * GIB, start_unix_s=start, end_unix_s=start + 9
    )
    assert finding(report, "memory-exceeded").next_knob.startswith("mem_gb: 3 ")


def test_short_jobs_are_not_judged_by_their_requests(report_of):
    found = check(report_of(used_mem_share=0.3), "memory-request", ":consolidate")
    assert found.outcome == "abstained"


# Rows.


@pytest.fixture
def data(report_of):
    return report_of(num_steps=1, stopped_at=None).data[0]


@pytest.fixture
def judged(data):
    """The rule's answer on 10,000 rows of which so many were left out, by reason."""

    def judge(**reasons):
        num_out = known(sum(reasons.values()), "count")
        rejects = (*reasons.items(), ("truncated_image", 5000))
        return left_out(replace(data, num_too_long=num_out, rejects=rejects))

    return judge


def test_leaving_out_half_of_the_rows_by_choice_is_a_finding(judged):
    found = judged(too_long=5000)
    assert (found.severity, found.rule_id) == ("high", "left-out:preprocess")
    assert found.title == "50 % of the rows are over a limit and left out (preprocess)"
    assert found.evidence == ("5,000 of 10,000 rows: too_long 5,000",)
    assert "raise max_tokens" in found.next_knob
    assert "truncate_text" in found.next_knob


def test_the_knob_is_the_limit_that_the_rows_are_over(judged):
    knob = judged(too_many_images=500).next_knob
    assert "max_images" in knob
    assert "max_tokens" not in knob
    assert "truncate_text" not in judged(images_too_long=500).next_knob


def test_few_rows_over_a_limit_are_no_finding_and_broken_ones_do_not_count(judged):
    assert judged(too_long=499).outcome == "clear"
    assert judged(too_long=500).severity == "medium"


def with_rejects(data, *rejects):
    return replace(data, num_rejects=known(sum(n for _, n in rejects), "count"), rejects=rejects)


@pytest.mark.parametrize(("num", "severity"), [(500, "medium"), (5000, "high")])
def test_rows_that_cannot_be_used_are_a_finding_with_their_reasons(data, num, severity):
    reasons = (("too_long", 4000), ("bad_row", num - 1), ("missing_image", 1))
    found = rejected(with_rejects(data, *reasons))
    assert (found.severity, found.rule_id) == (severity, "rejected:preprocess")
    assert found.evidence == (f"{num:,} of 10,000 rows: bad_row {num - 1:,}, missing_image 1",)


def test_few_rows_that_cannot_be_used_are_no_finding(data):
    assert rejected(with_rejects(data, ("bad_row", 499))).outcome == "clear"


def test_uncounted_rows_are_not_judged(data):
    found = left_out(replace(data, num_rows=missing("count", "no slice has completed")))
    assert (found.outcome, found.reason) == ("abstained", "no slice has completed")


def test_rows_left_out_come_before_the_speed_of_training(report_of):
    report = report_of(rejects={"too_long": 2400}, padding_share=0.1, stopped_at=None)
    assert report.checks[0].rule_id == report.findings[0].rule_id == "left-out:preprocess"
    assert "look first at finding 1: 24 % of the rows" in report.verdict


@pytest.mark.parametrize(
    ("work_s", "outcome"),
    [
        ({"decode": 40.0, "tokenise": 90.0, "write": 5.0}, "found"),
        ({"decode": 90.0, "tokenise": 40.0}, "clear"),
        ({"decode": 1.0, "tokenise": 9.0}, "clear"),  # seconds deserve no advice
        ({}, "abstained"),
    ],
)
def test_tokenising_is_found_where_it_is_most_of_the_work(data, work_s, outcome):
    found = slow_tokenising(replace(data, work_s=work_s))
    assert getattr(found, "outcome", "found") == outcome
    if outcome == "found":
        assert found.evidence == ("decode 40.0 s, tokenise 90.0 s, write 5.00 s",)
        assert found.ceiling.startswith("slices without tokenising: at most 3.00")


@pytest.mark.parametrize(
    ("num_text", "is_meant", "kind"),
    [
        (known(9970, "count"), False, "Finding"),
        (known(9970, "count"), True, "RuleOutcome clear"),
        (known(9969, "count"), False, "RuleOutcome clear"),
        (known(0, "count"), False, "RuleOutcome clear"),
        (
            missing("count", "4 slices did not return num_text_samples"),
            False,
            "RuleOutcome abstained",
        ),
    ],
)
def test_a_data_set_without_pictures_is_found_unless_it_is_meant(
    report_of, num_text, is_meant, kind
):
    data = replace(
        report_of().data[0],
        num_samples=known(9970, "count"),
        num_text_samples=num_text,
        is_text_meant=is_meant,
    )
    answer = no_pictures(data)
    assert f"{type(answer).__name__} {getattr(answer, 'outcome', '')}".strip() == kind
    if kind == "Finding":
        assert (answer.rule_id, answer.severity) == ("no-pictures:preprocess", "high")
        assert answer.evidence == ("9,970 of 9,970 samples have no picture",)


@pytest.mark.parametrize(
    ("own", "consolidating", "is_meant"),
    [
        ({}, {}, False),
        ({"text_only": True}, {}, True),
        ({}, {"text_only": True}, True),
        ({"text_only": True}, {"text_only": False}, False),
    ],
)
def test_consolidate_decides_before_preprocess_on_text_alone(
    inputs_of, own, consolidating, is_meant
):
    inputs = with_stage(inputs_of(), "consolidate", config=consolidating)
    report = report_from(with_stage(inputs, "preprocess", config=own))
    assert report.data[0].is_text_meant is is_meant


def test_notes_on_rows_are_in_the_report(report_of):
    report = report_of()
    data = replace(report.data[0], row_notes=(("answer_left_out", 12), ("of_a_later_version", 4)))
    for show in (printed, render_html):
        text = show(replace(report, data=(data,)))
        assert "began with an answer, left out" in text
        assert "of_a_later_version" in text
