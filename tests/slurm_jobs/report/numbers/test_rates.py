"""Rates of a training whose attempts had different numbers of ranks."""

from __future__ import annotations

import dataclasses
import io

import pytest
from rich.console import Console

from slurm_jobs.report.html import render_html
from slurm_jobs.report.inputs import RankTiming
from slurm_jobs.report.numbers import make_tiles
from slurm_jobs.report.report_model import report_to_json
from slurm_jobs.report.steps import split_attempts
from slurm_jobs.report.terminal import print_report
from slurm_jobs.report.training_numbers import ranks_of, rates
from slurm_jobs.shared.timings import StepFile


@pytest.fixture
def attempts_of(fabrication):
    """The attempts with so many ranks each, which make a hundred steps one after the other."""

    def make(*num_ranks):
        scenario = fabrication.Scenario(num_ranks=max(num_ranks))
        timings = [
            RankTiming(
                slice_index=0,
                attempt=number + 1,
                rank=rank,
                steps=StepFile(
                    metadata={"training": "t", "num_ranks": ranks},
                    steps=fabrication.fabricate_steps(
                        scenario, rank, 100 * number, 100 * number + 100, fabrication.CREATED
                    ),
                ),
                spans=(),
            )
            for number, ranks in enumerate(num_ranks)
            for rank in range(ranks)
        ]
        return split_attempts(timings, 5, {})

    return make


def test_ranks_are_told_in_the_order_of_the_attempts_and_once_where_they_stay(attempts_of):
    assert ranks_of(attempts_of(2, 2, 1, 4))["rank_counts"] == (2, 1, 4)
    assert ranks_of(attempts_of(2, 2))["rank_counts"] == (2,)


def test_each_number_of_ranks_has_rates_of_its_own_steps(attempts_of):
    attempts = attempts_of(2, 1, 2)
    by_ranks = {found.num_ranks: found for found in ranks_of(attempts)["rates_by_ranks"]}
    assert {num: found.num_steps for num, found in by_ranks.items()} == {2: 190, 1: 95}
    assert by_ranks[1].tokens_per_s == rates(attempts[1:2])["tokens_per_s"]
    overall = rates(attempts)["tokens_per_s"].value
    assert by_ranks[1].tokens_per_s.value < overall < by_ranks[2].tokens_per_s.value


def test_where_all_attempts_had_as_many_ranks_nothing_is_said_apart(attempts_of):
    assert ranks_of(attempts_of(2, 2))["rates_by_ranks"] == ()


def test_every_form_of_the_report_says_that_ranks_changed(report_of, attempts_of):
    report = report_of(num_steps=40, stopped_at=None)
    training = dataclasses.replace(report.training[0], **ranks_of(attempts_of(2, 1)))
    tiles = make_tiles(report.header, report.timeline, "", (training,), ())
    report = dataclasses.replace(report, training=(training,), tiles=tiles)
    assert tiles[2].note == "real ones, mean over 2, then 1 ranks"
    stream = io.StringIO()
    print_report(report, Console(file=stream, width=120))
    page = render_html(report)
    for form in (stream.getvalue(), page):
        assert "on 2, then 1 ranks" in form
        assert "over 95 steps" in form
    values = report_to_json(report)["training"][0]
    assert values["rank_counts"] == [2, 1]
    assert [found["num_ranks"] for found in values["rates_by_ranks"]] == [2, 1]
