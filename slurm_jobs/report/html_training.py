"""The sections on training as HTML: PURE."""

from __future__ import annotations

from slurm_jobs.report import words
from slurm_jobs.report.html_charts import Series, legend, line_chart, stacked_bar
from slurm_jobs.report.markup import Html, definitions, el, join
from slurm_jobs.report.model import Curves, RankNumbers, TimeShare, TrainingNumbers

_MAX_RANKS = 16
"""More ranks than this: those that wait longest and shortest for data are drawn."""


def step_section(numbers: TrainingNumbers) -> Html:
    """Where a step's time goes, over all ranks."""
    heading = el("h2", f"Where a step's time goes: {numbers.stage}")
    if not numbers.phases:
        reason = el("p", numbers.too_few or "nothing was measured", class_="note")
        return el("section", heading, reason)
    mean_s = sum(phase.seconds for phase in numbers.phases)
    caption = (
        f"Mean step {words.seconds(mean_s)} over {words.number_of('step', numbers.num_measured)} "
        f"and {words.number_of('rank', numbers.num_ranks)}; the first {numbers.warmup_steps} of "
        "each attempt are warm-up and left out. Host time."
    )
    return el(
        "section",
        heading,
        stacked_bar(numbers.phases, "step"),
        legend(numbers.phases, "seconds of a mean step"),
        el("p", caption, class_="dim"),
        el("p", numbers.too_few, class_="note") if numbers.too_few else None,
        id="step",
    )


def training_section(numbers: TrainingNumbers) -> Html:
    """Rates, curves, ranks, and the time around the steps."""
    return el(
        "section",
        el("h2", f"Training: {numbers.stage}"),
        definitions(_facts(numbers)),
        _curves(numbers.curves) if numbers.curves else None,
        _ranks(numbers),
        el("h3", "Around the steps"),
        el("p", "Rank 0, from the start of each attempt to its end.", class_="dim"),
        stacked_bar(numbers.budget, "around the steps"),
        legend(numbers.budget, "seconds of all attempts"),
        id="training",
    )


def _facts(numbers: TrainingNumbers) -> list[tuple[str, str]]:
    def with_reason(name: str) -> str:
        quantity = getattr(numbers, name)
        shown = words.quantity(quantity)
        return f"{shown} ({quantity.missing})" if quantity.missing else shown

    repeated = words.number_of("step", numbers.num_repeated_steps)
    repeated += f", {words.seconds(numbers.repeated_s)}"
    return [
        ("steps", f"{numbers.num_steps:,} in {words.number_of('attempt', numbers.num_attempts)}"),
        ("done twice", repeated if numbers.num_repeated_steps else "none"),
        ("rate", with_reason("steps_per_s")),
        ("samples", with_reason("samples_per_s")),
        ("real tokens", with_reason("tokens_per_s")),
        ("step, median", with_reason("step_median_s")),
        ("step, p95", with_reason("step_p95_s")),
        ("padding", with_reason("padding_share")),
        ("first loss", with_reason("first_loss")),
        ("last loss", with_reason("last_loss")),
        ("memory peak", with_reason("memory_peak_bytes")),
        ("allocator retries", f"{numbers.num_allocator_retries:,}"),
    ]


def _curves(curves: Curves) -> Html:
    marks = curves.resumed_at
    charts = [
        line_chart(
            "Loss",
            curves.step,
            [Series(name="loss", kind="a", values=curves.loss)],
            unit="nats a supervised token",
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
    note = "Over optimizer steps, downsampled; spikes far above the rest are cut off." + (
        " Dashed: resumed." if marks else ""
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
    ranks = sorted(numbers.ranks, key=lambda r: -r.phases_s["data_wait"])
    shown = ranks if len(ranks) <= _MAX_RANKS else [*ranks[: _MAX_RANKS - 4], *ranks[-4:]]
    longest = max(r.step_mean_s for r in ranks)
    rows = [_rank_row(rank, longest) for rank in shown]
    straggler = numbers.straggler
    text = (
        f"Slowest over mean step time {straggler.slowest_over_mean:.3f} (rank {straggler.rank}); "
        f"rank {straggler.data_rank} waits {words.seconds(straggler.data_excess_s)} a step longer "
        "for data than the mean rank."
        if straggler
        else "One rank."
    )
    left_out = len(ranks) - len(shown)
    if left_out:
        text += f" {left_out} ranks in between are not drawn; report.json has them."
    return join(
        [el("h3", "Ranks, longest data wait first"), el("div", rows), el("p", text, class_="dim")]
    )


def _rank_row(rank: RankNumbers, longest_s: float) -> Html:
    shares = [
        TimeShare(name=kind.replace("_", " "), kind=kind, seconds=s, share=s / longest_s)
        for kind, s in rank.phases_s.items()
    ]
    name = f"rank {rank.rank}" + (f" {rank.node}" if rank.node else "")
    return el(
        "div",
        el("span", name, class_="label", title=name),
        stacked_bar(shares, name),
        el("span", words.seconds(rank.step_mean_s), class_="num"),
        class_="rank",
    )
