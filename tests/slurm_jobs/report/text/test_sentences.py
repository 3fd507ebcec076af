"""Numbers and judgements in words: units, requests, tiles and the verdict."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from slurm_jobs.base import units
from slurm_jobs.base.quantities import TimeShare, known, missing
from slurm_jobs.report.numbers.headline import make_tiles, make_verdict
from slurm_jobs.report.rules.stages.slurm_requests import memory_request, time_request
from slurm_jobs.report.text.sentences import next_request, no_finding
from slurm_jobs.report.values.data_model import EvaluationNumbers
from slurm_jobs.report.values.finding_model import RuleOutcome
from tests.slurm_jobs.report.builders import stage_of


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 s"),
        (2e-4, "200 us"),
        (0.0571, "57.1 ms"),
        (0.9999, "1.00 s"),
        (59.97, "60.0 s"),
        (99.96, "1 min 40 s"),
        (245.2, "4 min 05 s"),
        (3599.7, "1 h 00 min"),
        (7620, "2 h 07 min"),
        (273_600, "3 d 04 h"),
        (-3, "-3.00 s"),
    ],
)
def test_seconds_are_written_in_the_unit_that_fits(value, text):
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        # A ceiling is rounded up, so that it stays one.
        (units.times, 1.231, "at most 1.24 times"),
        (units.times, 1.25, "at most 1.25 times"),
        (units.times, float("inf"), "no finite ceiling"),
        (units.speed_without, 0.5, "at most 2.00 times the speed"),
        (
            units.speed_without,
            1.0,
            "a gain without a known end, as it takes all of the time",
        ),
        # A small share is not nothing.
        (units.percent, 0.0001, "<0.1 %"),
        (units.percent, 0, "0 %"),
        (units.quantity, known(8 * 2**30, "bytes"), "8.00 GiB"),  # what mem_gb: 8 asks for
        (units.quantity, known(0.12, "fraction"), "12 %"),
        (units.quantity, known(12_345, "tokens"), "12,345 tokens"),
        (units.quantity, known(1.5, "steps/s"), "1.50 steps/s"),
        (units.quantity, missing("s", "nobody looked"), units.NOT_KNOWN),
        (units.ranks, (1,), "1 rank"),
        (units.ranks, (2, 1), "2, then 1 ranks"),
        (units.ranks, (8, 4, 2, 1, 16), "1 to 16 ranks"),
        (units.moment, 0, "1970-01-01 00:00:00 UTC"),
        (units.moment, 1e12, "1e+12 s after 1970"),  # no calendar has it
    ],
)
def test_values_are_written_with_their_unit(write, value, text):
    assert write(value) == text


@pytest.mark.parametrize(
    ("word", "number", "text"),
    [("attempt", 1, "1 attempt"), ("attempt", 0, "0 attempts"), ("step", 1234, "1,234 steps")],
)
def test_one_of_a_thing_is_no_plural(word, number, text):
    assert units.number_of(word, number) == text


def test_only_counts_and_whole_numbers_of_an_evaluation_are_written_whole():
    numbers = {"accuracy": 0.873, "loss": 0.41, "bleu": 31.7, "exact_match": 0.9875, "epochs": 3}
    numbers |= {"num_samples": 1240.0, "val.num_matches": 7.0, "match_length": 12.5}
    assert dict(units.evaluation(numbers)) == {
        "accuracy": "0.873",
        "loss": "0.410",
        "bleu": "31.7",
        "exact match": "98.8 %",
        "epochs": "3",
        "samples": "1,240",
        "val.matches": "7",
        "match length": "12.5",
    }


NOTHING = "No rule found anything to change"


@pytest.mark.parametrize(
    ("rule", "outcomes", "text"),
    [
        ("padding", ["clear"], rf"{NOTHING}\."),
        (
            "padding",
            ["clear", "abstained", "abstained"],
            rf"{NOTHING}; 2 of 3 rules could not judge\.",
        ),
        # An exchange that nobody saw is told with what would show it.
        ("exposed-communication", ["abstained"], ".*`slurm-jobs tune` records one."),
        ("exposed-communication", ["clear"], rf"{NOTHING}\."),
    ],
)
def test_without_findings_the_rules_that_could_not_judge_are_listed(rule, outcomes, text):
    checks = [RuleOutcome(rule_id=f"{rule}:train", outcome=o, reason="") for o in outcomes]
    assert re.fullmatch(text, no_finding(checks), re.DOTALL)


@pytest.mark.parametrize(
    ("memory_gib", "hours", "changes", "text"),
    [
        pytest.param(2, 1, {}, "mem_gb: 3; timeout_min: 72", id="both"),
        pytest.param(9, 9, {}, "as asked", id="none"),
        pytest.param(9, 1, {}, "timeout_min: 72", id="time"),
        pytest.param(9, 9, {"status": "failed"}, "as asked; time not judged", id="failed"),
        pytest.param(9, 0.01, {}, "not judged", id="short"),
    ],
)
def test_the_next_request_is_what_the_findings_suggest(report_of, memory_gib, hours, changes, text):
    """Of a stage that used so much of 10 GiB and of 10 h."""
    stage = replace(
        stage_of(report_of(), "consolidate"),
        node_mem_bytes=known(memory_gib * 2**30, "bytes"),
        requested_mem_bytes=known(10 * 2**30, "bytes"),
        longest_s=known(hours * 3600, "s"),
        time_limit_s=known(10 * 3600, "s"),
        **changes,
    )
    answers = [memory_request(stage), time_request(stage)]
    checks = tuple(answer for answer in answers if isinstance(answer, RuleOutcome))
    findings = tuple(answer for answer in answers if not isinstance(answer, RuleOutcome))
    report = replace(report_of(), findings=findings, checks=checks)
    assert next_request(report, "consolidate") == text


# Tiles and the verdict.


def tile(report, label):
    return next(t for t in report.tiles if t.label == label)


def test_the_data_wait_tile_equals_the_quotient_below_it(report_of):
    """Steps with a checkpoint make the mean step longer than the median one."""
    wait = tile(report_of(data_wait_s=0.1), "data wait")
    mean_wait, mean_step = map(float, re.findall(r"([\d.]+) m?s", wait.note))
    assert wait.value == f"{100 * mean_wait / mean_step:.0f} %"
    assert wait.note.endswith("per step")


def test_tiles_agree_on_why_a_single_step_has_no_rate(report_of):
    report = report_of(num_steps=1, stopped_at=None)
    notes = {tile(report, label).note for label in ("tokens/s", "data wait")}
    assert notes == {"no step is left after the warm-up"}


@pytest.fixture
def small(report_of):
    return report_of(num_steps=40, stopped_at=None)


HELD_OUT = {"exact_match": 0.9875, "num_exact": 237, "num_samples": 240}
PROBED = {"exact_match": 0.1, "num_exact": 5, "num_samples": 50}
SHORTER = {"stage": "short", "num_steps": 3}
EARLIER = {"stage": "old", "num_steps": 10_000, "is_earlier": True}


@pytest.mark.parametrize(
    ("trainings", "evaluations", "value", "note"),
    [
        pytest.param(
            [{}, SHORTER], {"train": HELD_OUT, "short": PROBED, "probe": PROBED},
            "98.8 %", "train: 237 of 240 held out", id="of the training that the rate is of",
        ),
        pytest.param([{}], {"train": HELD_OUT}, "98.8 %", "237 of 240 held out", id="alone"),
        pytest.param(
            [{}], {"probe": PROBED}, "10.0 %", "probe: 5 of 50 held out", id="another stage"
        ),
        pytest.param([], {"probe": {"exact_match": 0.1}}, "10.0 %", "probe", id="no training"),
        pytest.param(
            [{}], {"train": HELD_OUT, "probe": {"num_samples": 50}},
            "98.8 %", "237 of 240 held out", id="counts of another stage",
        ),
        pytest.param([EARLIER, {}], {}, None, "last step", id="a training of an earlier config"),
        pytest.param([EARLIER], {}, "n/a", "the newest job has no step", id="earlier alone"),
    ],
)  # fmt: skip
def test_the_result_tile_names_the_stage_that_it_is_of(small, trainings, evaluations, value, note):
    found = [EvaluationNumbers(stage=name, numbers=n) for name, n in evaluations.items()]
    made = tuple(replace(small.training[0], **changes) for changes in trainings)
    shown = make_tiles(small.header, small.timeline, "", made, found)[-1]
    assert note in shown.note if value is None else shown.note == note
    assert shown.label == "loss" if value is None else shown.value == value


@pytest.mark.parametrize(
    ("share", "part"), [(0.29, "the largest part"), (0.5, "the largest part"), (0.51, "most")]
)
def test_only_more_than_half_is_called_most_of_the_time(small, share, part):
    largest = TimeShare(name="prep running", kind="running", seconds=100 * share, share=share)
    verdict = make_verdict(small.header, (largest,), (), ())
    assert verdict.endswith(f"; {part} of the time went to prep running ({100 * share:.0f} %).")


@pytest.mark.parametrize("status", ["failed", "stranded"])
def test_of_a_run_that_failed_no_finding_on_its_speed_comes_first(small, status):
    assert small.findings
    header = replace(small.header, status=status, status_reason="train failed")
    verdict = make_verdict(header, small.timeline, small.findings, ())
    assert "look first" not in verdict
    assert verdict.endswith("(train failed); `slurm-jobs status` says how to go on.")


def test_the_rate_is_written_alike_in_the_tile_and_in_the_training(small):
    rate = replace(small.training[0].tokens_per_s, value=4411.7)
    train = replace(small.training[0], tokens_per_s=rate)
    shown = make_tiles(small.header, small.timeline, "", (train,), ())[2]
    assert f"{shown.value} tokens/s" == units.quantity(rate) == "4,410 tokens/s"
