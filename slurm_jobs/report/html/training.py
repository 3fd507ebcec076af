"""The sections on training as HTML: PURE."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_jobs.report import words
from slurm_jobs.report.findings.ranks import not_compared
from slurm_jobs.report.html.charts import Series, legend, line_chart, stacked_bar
from slurm_jobs.report.html.markup import Html, definitions, el, join, table
from slurm_jobs.report.model.training import Curves, RankNumbers, Straggler, TrainingNumbers
from slurm_jobs.report.model.values import TimeShare
from slurm_jobs.report.numbers.ranks import phase_name
from slurm_jobs.report.words_load import least_busy, load_table
from slurm_jobs.report.words_requests import rates

_MAX_NODES = 16
_MAX_RANKS = 16
"""Above this, only the slowest and the fastest ranks are drawn."""


def step_section(numbers: TrainingNumbers) -> Html:
    """Return the parts of a step's time, over all ranks."""
    heading = el("h2", f"Where a step's time goes: {numbers.stage}")
    if not numbers.phases:
        reason = el("p", numbers.too_few or "nothing was measured", class_="note")
        return el("section", heading, reason)
    mean_s = sum(phase.seconds for phase in numbers.phases)
    caption = (
        f"Mean step {words.seconds(mean_s)} over {words.number_of('step', numbers.num_measured)} "
        f"and {words.ranks(numbers.rank_counts)}; the first {numbers.warmup_steps} of "
        "each attempt are warm-up and left out. Host time."
    )
    return el(
        "section",
        heading,
        stacked_bar(numbers.phases, "step"),
        legend(numbers.phases, "seconds of a mean step"),
        el("p", caption, class_="dim"),
        el("p", numbers.too_few, class_="note") if numbers.too_few else None,
        _device_timeline(numbers),
        _loads(numbers),
        id="step",
    )


def _device_timeline(numbers: TrainingNumbers) -> Html | None:
    if not numbers.device_timeline:
        return None
    text = "By the device's own clock; next to the host's time, never added to it."
    return join(
        [
            el("h3", "The same step on the device"),
            stacked_bar(numbers.device_timeline, "step on the device"),
            legend(numbers.device_timeline, "seconds of a mean step"),
            el("p", text, class_="dim"),
        ]
    )


def _loads(numbers: TrainingNumbers) -> Html | None:
    if not numbers.loads:
        return None
    shown = sorted(numbers.loads, key=least_busy)[:_MAX_NODES]
    columns, rows = load_table(shown)
    more = len(numbers.loads) - len(shown)
    text = "Means over the measured steps, one reading a second or as configured."
    text += f" {more} busier nodes are not shown; report.json has them." if more else ""
    heading = el("h3", "Load of the nodes during the steps")
    return join([heading, table(columns, rows), el("p", text, class_="dim")])


def training_section(numbers: TrainingNumbers) -> Html:
    """Return rates, curves, ranks, and the time around the steps."""
    return el(
        "section",
        el("h2", f"Training: {numbers.stage}"),
        definitions(_facts(numbers)),
        _curves(numbers.curves, numbers.last_loss.unit) if numbers.curves else None,
        _ranks(numbers),
        el("h3", "Around the steps"),
        el("p", "Rank 0, from the start of each attempt to its end.", class_="dim"),
        stacked_bar(numbers.budget, "around the steps"),
        legend(numbers.budget, "seconds of all attempts"),
        id="training",
    )


def _facts(numbers: TrainingNumbers) -> list[tuple[str, str]]:
    repeated = words.number_of("step", numbers.num_repeated_steps)
    repeated += f", {words.seconds(numbers.repeated_s)}"
    attempts = words.number_of("attempt", numbers.num_attempts)
    ranks = words.ranks(numbers.rank_counts)
    return [
        ("steps", f"{numbers.num_steps:,} in {attempts}, on {ranks}"),
        ("done twice", repeated if numbers.num_repeated_steps else "none"),
        *_abandoned(numbers),
        ("rate", words.with_reason(numbers.steps_per_s)),
        ("samples", words.with_reason(numbers.samples_per_s)),
        ("real tokens", words.with_reason(numbers.tokens_per_s)),
        *(
            (f"on {words.number_of('rank', some.num_ranks)}", rates(some))
            for some in numbers.rates_by_ranks
        ),
        ("step, median", words.with_reason(numbers.step_median_s)),
        ("step, p95", words.with_reason(numbers.step_p95_s)),
        ("padding", words.with_reason(numbers.padding_share)),
        ("loss, first step", words.with_reason(numbers.first_loss)),
        (
            f"loss, {words.last_steps(numbers.num_last_losses)}",
            words.with_reason(numbers.last_loss),
        ),
        ("memory peak", words.with_reason(numbers.memory_peak_bytes)),
        ("allocator retries", f"{numbers.num_allocator_retries:,}"),
    ]


def _abandoned(numbers: TrainingNumbers) -> list[tuple[str, str]]:
    if not numbers.num_abandoned_steps:
        return []
    steps = words.number_of("step", numbers.num_abandoned_steps)
    return [("of an earlier config", f"{steps}, {words.seconds(numbers.abandoned_s)}")]


def _curves(curves: Curves, loss_unit: str) -> Html:
    marks = curves.resumed_at
    charts = [
        line_chart(
            "Loss",
            curves.step,
            [Series(name="loss", kind="a", values=curves.loss)],
            unit=loss_unit,
            marks=marks,
            from_zero=False,
        ),
        line_chart(
            "Throughput",
            curves.step,
            [Series(name="tokens/s", kind="a", values=curves.tokens_per_s)],
            unit="real tokens/s, all ranks",
            marks=marks,
        ),
        _step_times(curves),
        line_chart(
            "Data wait",
            curves.step,
            [Series(name="share", kind="d", values=[100 * v for v in curves.data_wait_share])],
            unit="% of step time",
            marks=marks,
        ),
    ]
    note = (
        "Over optimizer steps; each point sums up several, the loss as their mean; spikes far "
        "above the rest are cut off." + (" Dashed: resumed." if marks else "")
    )
    return join([el("div", charts, class_="charts"), el("p", note, class_="dim")])


def _step_times(curves: Curves) -> Html:
    return line_chart(
        "Step time",
        curves.step,
        [
            Series(name="maximum", kind="c", values=curves.step_max_s),
            Series(name="p95", kind="b", values=curves.step_p95_s),
            Series(name="median", kind="a", values=curves.step_p50_s),
        ],
        unit="s, over all ranks",
        marks=curves.resumed_at,
    )


def _ranks(numbers: TrainingNumbers) -> Html | None:
    if not numbers.ranks:
        return None
    ranks = _slowest_first(numbers.ranks)
    shown = ranks if len(ranks) <= _MAX_RANKS else [*ranks[: _MAX_RANKS - 4], *ranks[-4:]]
    longest = max(r.step_mean_s for r in ranks)
    with_steps = len({r.num_steps for r in ranks}) > 1
    rows = [_rank_row(rank, longest, with_steps=with_steps) for rank in shown]
    straggler = numbers.straggler
    text = (
        f"{_own_work(straggler)}; rank {straggler.data_rank} waits "
        f"{words.seconds(straggler.data_excess_s)} a step longer for data than the mean rank."
        if straggler
        else f"Not compared: {not_compared(numbers)}."
    )
    is_split = len(ranks) > len({r.rank for r in ranks})
    rows_are = "rows" if is_split else "ranks"
    if is_split:
        text += " A rank that ran on several nodes, in several attempts, has a row for each."
    left_out = len(ranks) - len(shown)
    if left_out:
        text += f" {left_out} {rows_are} in between are not drawn; report.json has them."
    return join([el("h3", "Ranks, slowest first"), el("div", rows), el("p", text, class_="dim")])


def _slowest_first(ranks: Sequence[RankNumbers]) -> list[RankNumbers]:
    """Sort by what distinguishes a rank in its attempts, its work or its wait for data."""
    return sorted(ranks, key=lambda r: -max(r.own_excess_s or 0.0, r.data_excess_s or 0.0))


def _own_work(straggler: Straggler) -> str:
    ratio = straggler.slowest_over_mean
    if ratio is None:
        return "These records do not time the waits for other ranks apart"
    return f"Own work of the slowest rank over the mean {ratio:.3f} (rank {straggler.rank})"


def _rank_row(rank: RankNumbers, longest_s: float, *, with_steps: bool) -> Html:
    steps = f", {words.number_of('step', rank.num_steps)}" if with_steps else ""
    shares = [
        TimeShare(
            name=phase_name(kind), kind=kind, seconds=s, share=s / longest_s if longest_s else 0.0
        )
        for kind, s in rank.phases_s.items()
    ]
    name = f"rank {rank.rank}" + (f" {rank.node}" if rank.node else "") + steps
    return el(
        "div",
        el("span", name, class_="label", title=name),
        stacked_bar(shares, name),
        el("span", words.seconds(rank.step_mean_s), class_="num"),
        class_="rank",
    )
