"""Hours and money: what was allocated, what for, and lower bounds where something is not known."""

from dataclasses import replace

import pytest

from slurm_jobs.base.quantities import missing
from slurm_jobs.report.numbers.cost_numbers import cost_numbers
from slurm_jobs.report.page.report_page import render_html
from slurm_jobs.report.text import cost_sentences
from tests.slurm_jobs.report.builders import printed, stage_of

PRICE = {"gpu_hour": 2.0, "cpu_hour": 0.5, "currency": "CHF"}


@pytest.fixture
def priced(report_of):
    return report_of(price=PRICE)


def test_money_is_hours_times_price(priced):
    cost = priced.cost
    (train,) = [c for c in cost.stages if c.stage == "train"]
    expected = 2.0 * train.gpu_hours.value + 0.5 * train.cpu_hours.value
    assert train.money.value == pytest.approx(expected)
    assert train.money.unit == cost.currency == "CHF"
    hours = [s.cpu_hours.value for s in priced.stages if s.cpu_hours.value is not None]
    assert cost.cpu_hours.value == pytest.approx(sum(hours))
    assert "CHF" in cost_sentences.taken(cost)


def test_what_gpus_were_held_for_adds_up_to_their_hours(priced):
    (train,) = [c for c in priced.cost.stages if c.stage == "train"]
    assert sum(p.gpu_hours for p in train.parts) == pytest.approx(train.gpu_hours.value)
    assert sum(p.share for p in train.parts) == pytest.approx(1.0)
    names = [p.name for p in train.parts]
    assert {"training steps", "steps repeated later", "checkpoints"} <= set(names)
    (line,) = cost_sentences.parts(priced.cost)
    assert line.startswith("train: training steps ")
    assert line in render_html(priced)
    assert line[:60] in printed(priced, 200)


def test_without_a_price_there_are_hours_alone(report_of):
    report = report_of()
    assert report.cost.currency == ""
    assert report.cost.money.missing == "the cluster profile names no price"
    assert report.cost.gpu_hours.value is not None
    assert "CHF" not in printed(report, 200)


def test_without_accounting_nothing_is_invented(report_of):
    report = report_of(with_accounting=False, price=PRICE)
    assert report.cost.gpu_hours.value is None
    assert report.cost.money.value is None
    assert "What it took" not in printed(report, 200)


def test_stages_without_accounting_make_the_sum_a_lower_bound(report_of):
    report = report_of(price=PRICE, finished=False)
    lacking = [s for s in report.stages if s.cpu_hours.value is None or s.cpu_hours.at_least]
    assert lacking
    assert report.cost.cpu_hours.at_least
    assert "at least" in cost_sentences.taken(report.cost)


def test_money_of_a_stage_whose_gpus_are_not_known_is_a_lower_bound(priced):
    why = "the accounting lacks num_gpus"
    unknown = replace(stage_of(priced), gpu_hours=missing("GPU h", why))
    (found,) = cost_numbers([unknown], [], PRICE).stages
    assert found.money.at_least == why


def test_a_stage_that_has_not_begun_has_cost_nothing(priced):
    stage = stage_of(priced)
    waiting = replace(
        stage, num_attempts=0, gpu_hours=missing("GPU h", "no"), cpu_hours=missing("CPU h", "no")
    )
    found = cost_numbers([stage, waiting], [], PRICE)
    assert found.cpu_hours.at_least == ""
    assert len(found.stages) == 1
