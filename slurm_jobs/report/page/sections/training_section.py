"""Trainings: where a step's time goes, rates, curves, and the time around the steps. PURE."""

from __future__ import annotations

from slurm_jobs.base import units
from slurm_jobs.report.page.charts import ChartLine, bar_with_legend, line_chart
from slurm_jobs.report.page.markup import Html, definitions, el, join, titled_table
from slurm_jobs.report.page.rank_bars import rank_bars
from slurm_jobs.report.text import load_table, loss_table, sentences
from slurm_jobs.report.values.training_model import Curves, TrainingNumbers

_MAX_LOAD_NODES = 16


def step_section(numbers: TrainingNumbers) -> Html:
    """Return the parts of a step's time, over all ranks."""
    heading = el("h2", f"Where a step's time goes: {numbers.stage}")
    if not numbers.phases:
        reason = el("p", numbers.too_few or "nothing was measured", class_="note")
        return el("section", heading, reason)
    mean_s = sum(phase.seconds for phase in numbers.phases)
    caption = (
        f"The mean step takes {units.seconds(mean_s)} of the host's time, over "
        f"{units.number_of('step', numbers.num_measured)} and {units.ranks(numbers.rank_counts)}. "
        f"The first {numbers.warmup_steps} steps of each attempt are left out as warm-up."
    )
    parts = [
        bar_with_legend(numbers.phases, "step", "seconds of a mean step"),
        el("p", caption, class_="dim"),
        el("p", numbers.too_few, class_="note") if numbers.too_few else None,
    ]
    if numbers.device_timeline:
        text = (
            "These times are from the device's own clock. The device works while the host does, so "
            "do not add them to the host's."
        )
        parts += [
            el("h3", "The same step on the device"),
            bar_with_legend(
                numbers.device_timeline, "step on the device", "seconds of a mean step"
            ),
            el("p", text, class_="dim"),
        ]
    if numbers.loads:
        shown = sorted(numbers.loads, key=load_table.least_busy)[:_MAX_LOAD_NODES]
        more = len(numbers.loads) - len(shown)
        text = (
            "These are means over the measured steps, of one reading per second or as configured."
        )
        text += f" {more} busier nodes are not shown; report.json has them." if more else ""
        rows = load_table.load_rows(shown)
        title = "Load of the nodes during the steps"
        loads_table = titled_table(title, rows[0], [row.values() for row in rows])
        parts += [loads_table, el("p", text, class_="dim")]
    return el("section", heading, parts, id="step")


def training_section(numbers: TrainingNumbers) -> Html:
    """Return rates, curves, ranks, and the time around the steps."""
    attempts = units.number_of("attempt", numbers.num_attempts)
    facts = [
        ("steps", f"{numbers.num_steps:,} in {attempts}, on {units.ranks(numbers.rank_counts)}")
    ]
    repeated = "none"
    if numbers.num_repeated_steps:
        steps = units.number_of("step", numbers.num_repeated_steps)
        repeated = f"{steps}, {units.seconds(numbers.repeated_s)}"
    facts.append(("done twice", repeated))
    if numbers.num_abandoned_steps:
        abandoned = units.number_of("step", numbers.num_abandoned_steps)
        facts.append(("of an earlier config", f"{abandoned}, {units.seconds(numbers.abandoned_s)}"))
    facts += [
        ("rate", units.with_reason(numbers.steps_per_s)),
        ("samples", units.with_reason(numbers.samples_per_s)),
        ("real tokens", units.with_reason(numbers.tokens_per_s)),
    ]
    facts += [
        (f"on {units.number_of('rank', some.num_ranks)}", sentences.rates(some))
        for some in numbers.rates_by_ranks
    ]
    last_loss = f"loss, {units.last_steps(numbers.num_last_losses)}"
    facts += [
        ("step, median", units.with_reason(numbers.step_median_s)),
        ("step, p95", units.with_reason(numbers.step_p95_s)),
        ("padding", units.with_reason(numbers.padding_share)),
        ("loss, first step", units.with_reason(numbers.first_loss)),
        (last_loss, units.with_reason(numbers.last_loss)),
        ("memory peak", units.with_reason(numbers.memory_peak_bytes)),
        ("allocator retries", f"{numbers.num_allocator_retries:,}"),
    ]
    by_manifest = None
    if numbers.manifest_losses:
        rows = loss_table.table_rows(numbers.manifest_losses)
        by_manifest = titled_table("Loss by manifest", loss_table.COLUMNS, rows)
    return el(
        "section",
        el("h2", f"Training: {numbers.stage}"),
        definitions(facts),
        _curves(numbers.curves, numbers.last_loss.unit) if numbers.curves else None,
        by_manifest,
        rank_bars(numbers) if numbers.ranks else None,
        el("h3", "Around the steps"),
        el("p", "This is rank 0, from the start of each attempt to its end.", class_="dim"),
        bar_with_legend(numbers.budget, "around the steps", "seconds of all attempts"),
        id="training",
    )


def _curves(curves: Curves, loss_unit: str) -> Html:
    waits = [100 * share for share in curves.data_wait_share]
    step_times = [
        ChartLine(name="maximum", kind="c", values=curves.step_max_s),
        ChartLine(name="p95", kind="b", values=curves.step_p95_s),
        ChartLine(name="median", kind="a", values=curves.step_p50_s),
    ]
    tokens = [ChartLine(name="tokens/s", kind="a", values=curves.tokens_per_s)]
    charts = (
        ("Loss", loss_unit, [ChartLine(name="loss", kind="a", values=curves.loss)]),
        ("Throughput", "real tokens/s, all ranks", tokens),
        ("Step time", "s, over all ranks", step_times),
        ("Data wait", "% of step time", [ChartLine(name="share", kind="d", values=waits)]),
    )
    marks = curves.resumed_at
    drawn = [
        line_chart(title, curves.step, lines, unit=unit, marks=marks, from_zero=title != "Loss")
        for title, unit, lines in charts
    ]
    note = (
        "Each point sums up several optimizer steps, and its loss is their mean. Spikes far above "
        "the rest are cut off." + (" A dashed line marks a resume." if marks else "")
    )
    return join([el("div", drawn, class_="charts"), el("p", note, class_="dim")])
