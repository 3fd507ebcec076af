"""Hours and money: what was allocated, what for, and lower bounds where something is not known."""

import dataclasses
import io

import pytest
from rich.console import Console

from slurm_jobs.report import sentences
from slurm_jobs.report.html import render_html
from slurm_jobs.report.stage_numbers import cost_numbers
from slurm_jobs.report.terminal import print_report
from slurm_jobs.shared.units import missing

PRICE = {"gpu_hour": 2.0, "cpu_hour": 0.5, "currency": "CHF"}


def shown(report):
    screen = Console(file=io.StringIO(), width=200)
    print_report(report, screen)
    return screen.file.getvalue()


def test_money_is_hours_times_price(report_of):
    report = report_of(price=PRICE)
    (train,) = [c for c in report.cost.stages if c.stage == "train"]
    expected = 2.0 * train.gpu_hours.value + 0.5 * train.cpu_hours.value
    assert train.money.value == pytest.approx(expected)
    assert train.money.unit == report.cost.currency == "CHF"
    stages = [s for s in report.stages if s.cpu_hours.value is not None]
    assert report.cost.cpu_hours.value == pytest.approx(sum(s.cpu_hours.value for s in stages))
    assert "CHF" in sentences.taken(report.cost)


def test_what_gpus_were_held_for_adds_up_to_their_hours(report_of):
    report = report_of(price=PRICE)
    (train,) = [c for c in report.cost.stages if c.stage == "train"]
    assert sum(p.gpu_hours for p in train.parts) == pytest.approx(train.gpu_hours.value)
    assert sum(p.share for p in train.parts) == pytest.approx(1.0)
    names = [p.name for p in train.parts]
    assert {"training steps", "steps repeated later", "checkpoints"} <= set(names)
    (line,) = sentences.parts(report.cost)
    assert line.startswith("train: training steps ")
    assert line in render_html(report)
    assert line[:60] in shown(report)


def test_without_a_price_there_are_hours_alone(report_of):
    report = report_of()
    assert report.cost.currency == ""
    assert report.cost.money.missing == "the cluster profile names no price"
    assert report.cost.gpu_hours.value is not None
    assert "CHF" not in shown(report)


def test_without_accounting_nothing_is_invented(report_of):
    report = report_of(with_accounting=False, price=PRICE)
    assert report.cost.gpu_hours.value is None
    assert report.cost.money.value is None
    assert "What it took" not in shown(report)


def test_stages_without_accounting_make_the_sum_a_lower_bound(report_of):
    report = report_of(price=PRICE, finished=False)
    lacking = [s for s in report.stages if s.cpu_hours.value is None or s.cpu_hours.at_least]
    assert lacking
    assert report.cost.cpu_hours.at_least
    assert "at least" in sentences.taken(report.cost)


def test_money_of_a_stage_whose_gpus_are_not_known_is_a_lower_bound(report_of):
    stage = next(s for s in report_of(price=PRICE).stages if s.name == "train")
    unknown = dataclasses.replace(
        stage, gpu_hours=missing("GPU h", "the accounting lacks num_gpus")
    )
    (found,) = cost_numbers([unknown], [], PRICE).stages
    assert found.money.at_least == "the accounting lacks num_gpus"


def test_a_stage_that_has_not_begun_has_cost_nothing(report_of):
    stage = next(s for s in report_of().stages if s.name == "train")
    waiting = dataclasses.replace(
        stage, num_attempts=0, gpu_hours=missing("GPU h", "no"), cpu_hours=missing("CPU h", "no")
    )
    found = cost_numbers([stage, waiting], [], PRICE)
    assert found.cpu_hours.at_least == ""
    assert len(found.stages) == 1
