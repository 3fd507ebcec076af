"""Bars of ranks: their attempts are named, and no rank that is drawn lacks one of its rows."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from slurm_jobs.base.shipped_files import shipped_path
from slurm_jobs.report.page.rank_bars import rank_bars
from tests.slurm_jobs.report.builders import make_steps, rank_timing, training_of

NUM_ATTEMPTS = 3


def labels_in(html: str) -> list[str]:
    """Return the labels as they are read: `rank 1, n2-1, attempt 2, 95 steps`."""
    found = re.findall(r'class="label">(.*?)</span></span>', html)
    return [re.sub(r'<span class="dim">', ", ", label) for label in found]


@pytest.fixture(scope="module")
def moving():
    """Eight ranks in three attempts, each on other nodes: 24 rows."""
    timings = [
        rank_timing(
            attempt, rank, make_steps(40, first=40 * (attempt - 1), rank=rank, num_ranks=8),
            node_name=f"n{attempt}-{rank}", num_ranks=8,
        )
        for attempt in range(1, NUM_ATTEMPTS + 1)
        for rank in range(8)
    ]  # fmt: skip
    return training_of(*timings)


def test_every_attempt_of_every_rank_is_drawn_and_named(moving):
    html = str(rank_bars(moving))
    labels = labels_in(html)
    assert len(labels) == 8 * NUM_ATTEMPTS
    assert {f"rank 5, n{a}-5, attempt {a}" for a in (1, 2, 3)} <= set(labels)
    assert "has a row for each node" in html
    assert "not drawn" not in html


def test_attempts_on_one_node_share_a_row_that_names_them(moving):
    alike = [replace(row, node="n1", attempts=(1, 2, 4)) for row in moving.ranks[:1]]
    assert labels_in(str(rank_bars(replace(moving, ranks=alike)))) == ["rank 0, n1, attempts 1-2,4"]


def test_one_attempt_is_not_named(moving):
    alone = [row for row in moving.ranks if row.attempts == (1,)]
    assert "attempt" not in "".join(labels_in(str(rank_bars(replace(moving, ranks=alone)))))


def test_the_slowest_and_fastest_of_many_ranks_have_all_their_rows(moving):
    rows = [
        replace(moving.ranks[0], rank=rank, node=f"n{attempt}", attempts=(attempt,),
                own_excess_s=0.1 * (30 - rank) + 0.001 * attempt)
        for rank in range(30)
        for attempt in (1, 2)
    ]  # fmt: skip
    html = str(rank_bars(replace(moving, ranks=rows)))
    drawn = [int(label.split()[1].rstrip(",")) for label in labels_in(html)]
    assert sorted(drawn) == sorted([*range(12), *range(26, 30)] * 2)
    assert "28 rows in between are not drawn" in html


def test_rows_of_a_run_with_hundreds_of_attempts_are_limited(moving):
    rows = [replace(moving.ranks[0], attempts=(a,), node=f"n{a}") for a in range(1, 300)]
    assert len(labels_in(str(rank_bars(replace(moving, ranks=rows))))) == 64


def test_labels_of_ranks_are_never_cut():
    style = shipped_path("templates", "report", "page.css").read_text()
    (label,) = re.findall(r"^\.rank \.label \{(.*?)\}", style, re.MULTILINE)
    assert "nowrap" not in label
    assert "ellipsis" not in label
