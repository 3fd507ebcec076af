from __future__ import annotations

import pytest

from slurm_jobs.report.report_model import Check
from slurm_jobs.report.sentences import no_finding
from slurm_jobs.shared import units
from slurm_jobs.shared.units import known, missing


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


def test_a_ceiling_is_rounded_up_so_that_it_stays_one():
    assert units.times(1.231) == "at most 1.24 times"
    assert units.times(1.25) == "at most 1.25 times"
    assert units.times(float("inf")) == "no finite ceiling"
    assert units.speed_without(0.5) == "at most 2.00 times the speed"
    assert units.speed_without(1.0) == "a gain without a known end, as it takes all of the time"


def test_one_of_a_thing_is_no_plural():
    assert units.number_of("attempt", 1) == "1 attempt"
    assert units.number_of("attempt", 0) == "0 attempts"
    assert units.number_of("step", 1234) == "1,234 steps"


def test_a_small_share_is_not_shown_as_nothing():
    assert units.percent(0.0001) == "<0.1 %"
    assert units.percent(0) == "0 %"


def test_every_quantity_carries_its_unit():
    assert units.quantity(known(8 * 2**30, "bytes")) == "8.00 GiB"  # what mem_gb: 8 asks for
    assert units.quantity(known(0.12, "fraction")) == "12 %"
    assert units.quantity(known(12_345, "tokens")) == "12,345 tokens"
    assert units.quantity(known(1.5, "steps/s")) == "1.50 steps/s"
    assert units.quantity(missing("s", "nobody looked")) == units.NOT_KNOWN


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


def test_numbers_of_ranks_that_changed_are_told_in_their_order():
    assert units.ranks((1,)) == "1 rank"
    assert units.ranks((2, 1)) == "2, then 1 ranks"
    assert units.ranks((8, 4, 2, 1, 16)) == "1 to 16 ranks"


def test_where_nothing_is_found_the_rules_that_could_not_judge_are_counted():
    def checks(*outcomes):
        return [Check(rule_id="padding:train", outcome=o, reason="") for o in outcomes]

    assert no_finding(checks("clear")) == "No rule found anything to change."
    assert no_finding(checks("abstained", "clear", "abstained")) == (
        "No rule found anything to change; 2 of 3 rules could not judge."
    )


def test_where_nothing_is_found_an_exchange_that_nobody_saw_is_told_with_what_would_show_it():
    unseen = Check(rule_id="exposed-communication:train", outcome="abstained", reason="")
    assert no_finding([unseen]).endswith("`slurm-jobs tune` takes one.")
    seen = Check(rule_id="exposed-communication:train", outcome="clear", reason="")
    assert no_finding([seen]) == "No rule found anything to change."


def test_a_moment_that_no_calendar_has_is_told_in_seconds():
    assert units.moment(0) == "1970-01-01 00:00:00 UTC"
    assert units.moment(1e12) == "1e+12 s after 1970"
