"""Bars of the ranks of a training, the slowest first. PURE."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_jobs.base import units
from slurm_jobs.base.index_ranges import ranges_text
from slurm_jobs.base.quantities import TimeShare
from slurm_jobs.report.numbers.trainings.rank_numbers import phase_name
from slurm_jobs.report.page.charts import stacked_bar
from slurm_jobs.report.page.markup import Html, el, join
from slurm_jobs.report.rules.training.straggler import not_compared
from slurm_jobs.report.values.rank_model import RankNumbers
from slurm_jobs.report.values.training_model import TrainingNumbers

_MAX_RANKS = 16
"""Above this, only the slowest and the fastest ranks are drawn, each with all its rows."""
_NUM_FASTEST = 4
_MAX_ROWS = 64
"""Above this, only the slowest and the fastest rows are drawn, whatever their ranks."""


def rank_bars(numbers: TrainingNumbers) -> Html:
    """Sort by what distinguishes a rank in its attempts, its work or its wait for data."""
    ranks = sorted(numbers.ranks, key=lambda r: -max(r.own_excess_s or 0.0, r.data_excess_s or 0.0))
    shown = _without_middle(ranks)
    longest_s = max(r.step_mean_s for r in ranks)
    with_steps = len({r.num_steps for r in ranks}) > 1
    with_attempts = len({attempt for r in ranks for attempt in r.attempts}) > 1
    rows = [
        _rank_row(rank, longest_s, with_attempts=with_attempts, with_steps=with_steps)
        for rank in shown
    ]
    straggler = numbers.straggler
    if straggler is None:
        text = f"Not compared: {not_compared(numbers)}."
    else:
        ratio = straggler.slowest_over_mean
        own_work = (
            "These records do not time the waits for other ranks separately."
            if ratio is None
            else f"Rank {straggler.rank} takes longest for its work, {ratio:.3f} times the mean."
        )
        text = (
            f"{own_work} Rank {straggler.data_rank} waits "
            f"{units.seconds(straggler.data_excess_s)} per step longer for data than the mean rank."
        )
    is_split = len(ranks) > len({r.rank for r in ranks})
    if is_split:
        text += " A rank that ran on several nodes, in several attempts, has a row for each node."
    if left_out := len(ranks) - len(shown):
        rows_are = "rows" if is_split else "ranks"
        text += f" {left_out} {rows_are} in between are not drawn; report.json has them."
    return join([el("h3", "Ranks, slowest first"), el("div", rows), el("p", text, class_="dim")])


def _without_middle(rows: Sequence[RankNumbers]) -> Sequence[RankNumbers]:
    """Return the rows of the slowest and of the fastest ranks; `rows` are sorted."""
    ranks = list(dict.fromkeys(row.rank for row in rows))
    if len(ranks) > _MAX_RANKS:
        drawn = {*ranks[: _MAX_RANKS - _NUM_FASTEST], *ranks[-_NUM_FASTEST:]}
        rows = [row for row in rows if row.rank in drawn]
    if len(rows) > _MAX_ROWS:
        rows = [*rows[: _MAX_ROWS - _NUM_FASTEST], *rows[-_NUM_FASTEST:]]
    return rows


def _rank_row(
    rank: RankNumbers, longest_s: float, *, with_attempts: bool, with_steps: bool
) -> Html:
    shares = [
        TimeShare(
            name=phase_name(kind), kind=kind, seconds=s, share=s / longest_s if longest_s else 0.0
        )
        for kind, s in rank.phases_s.items()
    ]
    name, details = f"rank {rank.rank}", [rank.node] if rank.node else []
    if with_attempts:
        attempts = "attempt" if len(rank.attempts) == 1 else "attempts"
        details.append(f"{attempts} {ranges_text(rank.attempts)}")
    if with_steps:
        details.append(units.number_of("step", rank.num_steps))
    note = ", ".join(details)
    return el(
        "div",
        el("span", name, el("span", note, class_="dim") if note else None, class_="label"),
        stacked_bar(shares, ", ".join([name, *details])),
        el("span", units.seconds(rank.step_mean_s), class_="num"),
        class_="rank",
    )
