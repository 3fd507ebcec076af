"""Report as one HTML page that opens offline. PURE.

Its template is read from the package. No script, no request: everything is drawn here, in the
order of the terminal report.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

import numpy as np

from slurm_jobs.nodes.probe_records import (
    COMPUTE_COLUMNS,
    FILE_COLUMNS,
    busy,
    compute_row,
    file_row,
    reasons,
    topology,
)
from slurm_jobs.report import sentences
from slurm_jobs.report.markup import (
    Child,
    Html,
    Series,
    count_bars,
    definitions,
    el,
    join,
    legend,
    line_chart,
    prose,
    render_page,
    stacked_bar,
    table,
)
from slurm_jobs.report.rank_numbers import phase_name
from slurm_jobs.report.report_model import (
    SUMMARY,
    Bar,
    Bin,
    Curves,
    DataNumbers,
    DataStatistics,
    Finding,
    NodeKind,
    PythonFacts,
    RankNumbers,
    RunReport,
    SubmissionFacts,
    TrainingNumbers,
)
from slurm_jobs.report.rules.training_rules import not_compared
from slurm_jobs.shared import units
from slurm_jobs.shared.manifests.row_notes import note_name
from slurm_jobs.shared.units import TimeShare

_MAX_FAILURES = 20
_MAX_LOAD_NODES = 16
_MAX_NODES = 6
"""Maximum names of nodes in a row; the JSON has all."""
_MAX_RANKS = 16
"""Above this, only the slowest and the fastest ranks are drawn."""
_MAX_ROWS = 30
_MAX_SLICES = 32
"""A stage with more slices is drawn as the number of running and waiting tasks."""
_MAX_SPEC_CHARS = 60_000
_COMMIT_CHARS = 12
_NUM_BINS = 160
_NUM_STAGE_TONES = 6
"""Tones of running stages in page.css (`k-running-0` and on)."""


def render_html(report: RunReport) -> str:
    """Return the whole page."""
    header = report.header
    tiles = [
        el(
            "li",
            el("span", tile.label, class_="label"),
            el("span", tile.value, class_="value"),
            el("span", tile.note, class_="dim"),
        )
        for tile in report.tiles
    ]
    status = el("span", header.status, class_=f"pill p-{header.status}")
    findings = [_finding_card(number, f) for number, f in enumerate(report.findings, 1)]
    nothing = el("p", prose(sentences.no_finding(report.checks)))
    sections = [
        *map(step_section, report.training),
        el("section", el("h2", "Findings"), findings or nothing, id="findings"),
        timeline_section(report),
        *map(training_section, report.training),
        *map(data_section, report.data),
        *(
            el(
                "section",
                el("h2", f"Evaluation: {e.stage}"),
                definitions(units.evaluation(e.numbers)),
            )
            for e in report.evaluation
        ),
        _stages_section(report),
        provenance_section(report),
        _method_section(report),
    ]
    return render_page(
        title=f"{header.title}: run report",
        header=el(
            "header",
            el("p", status, " ", header.run_id),
            el("h1", header.title),
            el("p", report.verdict, class_="verdict"),
            el("ul", tiles, class_="tiles"),
        ),
        sections=sections,
        version=header.version,
    )


# Where the time of a step goes.


def step_section(numbers: TrainingNumbers) -> Html:
    """Return the parts of a step's time, over all ranks."""
    heading = el("h2", f"Where a step's time goes: {numbers.stage}")
    if not numbers.phases:
        reason = el("p", numbers.too_few or "nothing was measured", class_="note")
        return el("section", heading, reason)
    mean_s = sum(phase.seconds for phase in numbers.phases)
    caption = (
        f"Mean step {units.seconds(mean_s)} over {units.number_of('step', numbers.num_measured)} "
        f"and {units.ranks(numbers.rank_counts)}; the first {numbers.warmup_steps} of "
        "each attempt are warm-up and left out. Host time."
    )
    parts = [
        *_budget(numbers.phases, "step", "seconds of a mean step"),
        el("p", caption, class_="dim"),
        el("p", numbers.too_few, class_="note") if numbers.too_few else None,
    ]
    if numbers.device_timeline:
        text = "By the device's own clock; next to the host's time, never added to it."
        parts += [
            el("h3", "The same step on the device"),
            *_budget(numbers.device_timeline, "step on the device", "seconds of a mean step"),
            el("p", text, class_="dim"),
        ]
    if numbers.loads:
        shown = sorted(numbers.loads, key=sentences.least_busy)[:_MAX_LOAD_NODES]
        more = len(numbers.loads) - len(shown)
        text = "Means over the measured steps, one reading a second or as configured."
        text += f" {more} busier nodes are not shown; report.json has them." if more else ""
        heading_of_loads = el("h3", "Load of the nodes during the steps")
        load_table = table(*sentences.load_table(shown))
        parts += [heading_of_loads, load_table, el("p", text, class_="dim")]
    return el("section", heading, parts, id="step")


def _budget(shares: Sequence[TimeShare], label: str, whole: str) -> tuple[Html, Html]:
    return stacked_bar(shares, label), legend(shares, whole)


def _finding_card(number: int, finding: Finding) -> Html:
    pill = el("span", finding.severity, class_=f"pill p-{finding.severity}")
    facts: dict[str, Child] = {
        "Evidence": [el("div", prose(line)) for line in finding.evidence],
        "Next knob": prose(finding.next_knob),
        "Ceiling": prose(finding.ceiling),
        "Confidence": finding.confidence,
        "Rule": [finding.rule, el("span", f" ({finding.source})", class_="dim")],
    }
    return el(
        "article",
        el("h3", pill, f" {number}. {finding.title}"),
        el("p", prose(finding.text)),
        el("dl", [[el("dt", name), el("dd", fact)] for name, fact in facts.items()]),
        class_=f"card c-{finding.severity}",
    )


# The timeline of stages, array tasks and attempts.


def timeline_section(report: RunReport) -> Html:
    """Return the budget from submit to end, the bars of attempts, the cost and the projection."""
    header, cost = report.header, report.cost
    span = (header.created_unix_s, max(header.last_unix_s, header.created_unix_s + 1e-3))
    by_stage: dict[str, list[Bar]] = {}
    for bar in report.bars:
        by_stage.setdefault(bar.stage, []).append(bar)
    rows = [_stage_rows(stage, bars, span) for stage, bars in by_stage.items()]
    moments = [units.seconds(at - span[0]) for at in (span[0], (span[0] + span[1]) / 2, span[1])]
    running = [share.name for share in report.timeline if share.kind == "running"]
    shares = [  # stages have alternating shades
        replace(share, kind=f"running-{running.index(share.name) % _NUM_STAGE_TONES}")
        if share.kind == "running"
        else share
        for share in report.timeline
    ]
    keys = {
        "queued": "waits in the queue",
        "completed": "completed",
        "failed": "failed",
        "stopped": "asked to stop, saved",
        _tone("cancelled"): "cancelled",
        "running": "running",
        "unknown": "end not known",
    }
    costs = [("taken", sentences.taken(cost) or units.NOT_KNOWN)]
    costs += [("GPUs held for", line) for line in sentences.parts(cost)]
    costs += [("ahead", sentences.ahead(p, cost.currency)) for p in report.projections]
    return el(
        "section",
        el("h2", "From submit to end"),
        _budget(shares, "from submit to end", "from submit to end"),
        el("p", report.timeline_note, class_="note") if report.timeline_note else None,
        el(
            "div",
            rows,
            el("div", [el("span", moment) for moment in moments], class_="moments"),
            class_="gantt",
        ),
        el(
            "ul",
            [
                el("li", el("span", class_=f"key o-{kind}"), el("span", name, class_="name"))
                for kind, name in keys.items()
            ],
            class_="keys",
        ),
        el("dl", [[el("dt", name), el("dd", text)] for name, text in costs], class_="cost"),
        el("p", f"Starts {units.moment(span[0])}, ends {units.moment(span[1])}.", class_="dim"),
        id="timeline",
    )


def _tone(outcome: str) -> str:
    """Return the tone of an outcome; cancelled and fenced attempts share a neutral one."""
    return "superseded" if outcome == "cancelled" else outcome


def _stage_rows(stage: str, bars: Sequence[Bar], span: tuple[float, float]) -> list[Html]:
    """Return a row of boxes for each slice, or one of the tasks over time if there are many."""
    slices = sorted({bar.slice_index for bar in bars})
    if len(slices) > _MAX_SLICES:
        lanes = {f"{stage} x {len(slices):,}": el("div", _crowd(bars, span), class_="lane tall")}
    else:
        lanes = {
            (stage if len(slices) == 1 else f"{stage} {index}"): el(
                "div",
                [_boxes(bar, span) for bar in bars if bar.slice_index == index],
                class_="lane",
            )
            for index in slices
        }
    return [
        el("div", el("span", name, class_="label", title=name), lane, class_="row")
        for name, lane in lanes.items()
    ]


def _boxes(bar: Bar, span: tuple[float, float]) -> list[Html]:
    """Return the wait in a lighter tone, then the attempt."""
    whole, boxes = span[1] - span[0], []

    def box(start: float, end: float, kind: str, title: str) -> Html:
        left = min(max((start - span[0]) / whole, 0.0), 1.0)
        width = min(max((end - start) / whole, 0.0), 1.0 - left)
        style = f"left:{100 * left:.3f}%;width:{100 * width:.3f}%"
        return el("span", class_=f"box o-{_tone(kind)}", style=style, title=title)

    if bar.eligible_unix_s is not None and bar.eligible_unix_s < bar.start_unix_s:
        wait = units.seconds(bar.start_unix_s - bar.eligible_unix_s)
        title = f"{bar.stage} {bar.slice_index}: {wait} in the queue"
        boxes.append(box(bar.eligible_unix_s, bar.start_unix_s, "queued", title))
    attempt = f"attempt {bar.attempt}" if bar.attempt else "no attempt record"
    title = (
        f"{bar.stage}, slice {bar.slice_index}, {attempt}, job {bar.job_id} on {bar.node}: "
        f"{bar.outcome} after {units.seconds(bar.end_unix_s - bar.start_unix_s)}"
        f"{f' ({bar.reason})' if bar.reason else ''}"
    )
    return [*boxes, box(bar.start_unix_s, bar.end_unix_s, bar.outcome, title)]


def _crowd(bars: Sequence[Bar], span: tuple[float, float]) -> Html:
    """Return the number of waiting and running tasks over time, as two areas."""
    at = np.linspace(*span, _NUM_BINS)
    starts = np.sort([bar.start_unix_s for bar in bars])
    ends = np.sort([bar.end_unix_s for bar in bars])
    waits = [b for b in bars if b.eligible_unix_s is not None]
    queued = np.sort([min(b.eligible_unix_s or 0.0, b.start_unix_s) for b in waits])
    begun = np.sort([bar.start_unix_s for bar in waits])
    running = np.searchsorted(starts, at, "right") - np.searchsorted(ends, at, "right")
    waiting = np.searchsorted(queued, at, "right") - np.searchsorted(begun, at, "right")
    most = max(1, int((running + waiting).max()))
    areas = []
    for counts, kind in ((running + waiting, "queued"), (running, "completed")):
        tops = " L".join(f"{i},{100 - 100 * int(c) / most:.1f}" for i, c in enumerate(counts))
        path = f"M0,100 L{tops} L{_NUM_BINS - 1},100 Z"
        areas.append(el("path", d=path, class_=f"area o-{kind}"))
    return el(
        "svg",
        areas,
        viewBox=f"0 0 {_NUM_BINS - 1} 100",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"tasks over time, at most {int(running.max())} running at once",
    )


# Trainings: rates, curves, ranks, and the time around the steps.


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
    return el(
        "section",
        el("h2", f"Training: {numbers.stage}"),
        definitions(facts),
        _curves(numbers.curves, numbers.last_loss.unit) if numbers.curves else None,
        _ranks(numbers) if numbers.ranks else None,
        el("h3", "Around the steps"),
        el("p", "Rank 0, from the start of each attempt to its end.", class_="dim"),
        _budget(numbers.budget, "around the steps", "seconds of all attempts"),
        id="training",
    )


def _curves(curves: Curves, loss_unit: str) -> Html:
    waits = [100 * share for share in curves.data_wait_share]
    step_times = [
        Series(name="maximum", kind="c", values=curves.step_max_s),
        Series(name="p95", kind="b", values=curves.step_p95_s),
        Series(name="median", kind="a", values=curves.step_p50_s),
    ]
    tokens = [Series(name="tokens/s", kind="a", values=curves.tokens_per_s)]
    charts = (
        ("Loss", loss_unit, [Series(name="loss", kind="a", values=curves.loss)]),
        ("Throughput", "real tokens/s, all ranks", tokens),
        ("Step time", "s, over all ranks", step_times),
        ("Data wait", "% of step time", [Series(name="share", kind="d", values=waits)]),
    )
    marks = curves.resumed_at
    drawn = [
        line_chart(title, curves.step, lines, unit=unit, marks=marks, from_zero=title != "Loss")
        for title, unit, lines in charts
    ]
    note = (
        "Over optimizer steps; each point sums up several, the loss as their mean; spikes far "
        "above the rest are cut off." + (" Dashed: resumed." if marks else "")
    )
    return join([el("div", drawn, class_="charts"), el("p", note, class_="dim")])


def _ranks(numbers: TrainingNumbers) -> Html:
    """Sort by what distinguishes a rank in its attempts, its work or its wait for data."""
    ranks = sorted(numbers.ranks, key=lambda r: -max(r.own_excess_s or 0.0, r.data_excess_s or 0.0))
    shown = ranks if len(ranks) <= _MAX_RANKS else [*ranks[: _MAX_RANKS - 4], *ranks[-4:]]
    longest_s = max(r.step_mean_s for r in ranks)
    with_steps = len({r.num_steps for r in ranks}) > 1
    rows = [_rank_row(rank, longest_s, with_steps=with_steps) for rank in shown]
    straggler = numbers.straggler
    if straggler is None:
        text = f"Not compared: {not_compared(numbers)}."
    else:
        ratio = straggler.slowest_over_mean
        own_work = (
            "These records do not time the waits for other ranks apart"
            if ratio is None
            else f"Own work of the slowest rank over the mean {ratio:.3f} (rank {straggler.rank})"
        )
        text = (
            f"{own_work}; rank {straggler.data_rank} waits "
            f"{units.seconds(straggler.data_excess_s)} a step longer for data than the mean rank."
        )
    is_split = len(ranks) > len({r.rank for r in ranks})
    if is_split:
        text += " A rank that ran on several nodes, in several attempts, has a row for each."
    if left_out := len(ranks) - len(shown):
        rows_are = "rows" if is_split else "ranks"
        text += f" {left_out} {rows_are} in between are not drawn; report.json has them."
    return join([el("h3", "Ranks, slowest first"), el("div", rows), el("p", text, class_="dim")])


def _rank_row(rank: RankNumbers, longest_s: float, *, with_steps: bool) -> Html:
    shares = [
        TimeShare(
            name=phase_name(kind), kind=kind, seconds=s, share=s / longest_s if longest_s else 0.0
        )
        for kind, s in rank.phases_s.items()
    ]
    name = f"rank {rank.rank}"
    name += f" {rank.node}" if rank.node else ""
    name += f", {units.number_of('step', rank.num_steps)}" if with_steps else ""
    return el(
        "div",
        el("span", name, class_="label", title=name),
        stacked_bar(shares, name),
        el("span", units.seconds(rank.step_mean_s), class_="num"),
        class_="rank",
    )


# The data of a run: counts, rejects, lengths and images.


def data_section(numbers: DataNumbers) -> Html:
    """Return counts, rejects, lengths and images of one stage's rows."""
    part = units.of_slices(numbers.num_slices_reported, numbers.num_slices)
    more = f", {part}" if part else ""
    counts = {
        "rows": numbers.num_rows,
        "samples": numbers.num_samples,
        "without a picture": numbers.num_text_samples,
        "rejected": numbers.num_rejects,
        "of these too long": numbers.num_too_long,
        "truncated": numbers.num_truncated,
        "tokens": numbers.num_tokens,
        "mean length": numbers.mean_tokens,
    }
    facts = [  # a missing count has its reason instead of its slices
        (name, units.with_reason(count) + ("" if count.value is None else more))
        for name, count in counts.items()
    ]
    facts += [
        ("shards", units.with_reason(numbers.num_shards)),
        ("slices that reported", f"{numbers.num_slices_reported} of {numbers.num_slices}"),
    ]
    facts += [
        (note_name(note), units.number_of("row", count) + more) for note, count in numbers.row_notes
    ]
    statistics = numbers.statistics
    if statistics is not None:
        share = units.percent(statistics.supervised_share)
        facts.append(("supervised", f"{share} of all tokens"))
    facts += [(f"{name} time", units.seconds(s) + more) for name, s in numbers.work_s.items()]
    if numbers.stored_image:
        facts.append(("stored image", units.stored_image(numbers.stored_image)))
    charts = []
    if rejects := [(reason, float(count)) for reason, count in numbers.rejects[:20]]:
        title = el("h3", f"Rejects by reason{more}")
        charts.append(el("div", title, count_bars(rejects, "rejects")))
    lengths = [(f"to {most:,} tokens", float(count)) for most, count in numbers.length_counts]
    distribution = None
    if statistics is not None:  # of the finished data set
        charts += statistics_charts(statistics)
        distribution = [el("h3", "Distribution over all samples"), statistics_table(statistics)]
    elif lengths:
        title = el("h3", f"Samples by length{more}")
        charts.append(el("div", title, count_bars(lengths, "lengths")))
    return el(
        "section",
        el("h2", f"Data: {numbers.stage}"),
        definitions(facts),
        el("div", charts, class_="charts"),
        distribution,
        id="data",
    )


def statistics_table(numbers: DataStatistics) -> Html:
    """Return a table of means, extremes and percentiles."""
    summaries = {
        "tokens a sample": numbers.num_tokens,
        "supervised tokens a sample": numbers.num_supervised_tokens,
        "stored images a sample": numbers.num_images,
        "pixels of a stored image": numbers.num_pixels,
    }
    rows = []
    for name, summary in summaries.items():
        if summary is not None:
            values = [summary[column] for column in SUMMARY]
            cells = [
                units.count(v) if float(v).is_integer() else units.significant(v) for v in values
            ]
            rows.append((name, *cells))
    return table(("", *SUMMARY), rows)


def statistics_charts(numbers: DataStatistics) -> list[Html]:
    """Return two charts to place next to each other."""

    def chart(title: str, bins: Sequence[Bin], unit: str) -> Html:
        singular = unit.removesuffix("s")
        rows = [
            (f"{sentences.bin_text(b)} {singular if b[:2] == (1, 1) else unit}", float(b[2]))
            for b in bins
        ]
        return el("div", el("h3", title), count_bars(rows, f"samples by {unit}"))

    return [
        chart("Samples by length", numbers.num_tokens_bins, "tokens"),
        chart("Samples by stored images", numbers.num_images_bins, "images"),
    ]


# Stages: waits, requests and use.


_WAITS = {
    "dependency wait": "dependency_wait_median_s",
    "queue wait": "queue_wait_median_s",
    "longest queue": "queue_wait_max_s",
    "ran for": "running_s",
}
_LARGEST_TASK = "max_rss_bytes"
_USES = {
    "CPUs": "requested_cpus",
    "CPU used": "cpu_efficiency",
    "memory a node": "requested_mem_bytes",
    "largest task": _LARGEST_TASK,
    "time limit": "time_limit_s",
    "longest job": "longest_s",
    "GPUs": "requested_gpus",
    "GPU busy": "gpu_busy",
    "CPU hours": "cpu_hours",
    "GPU hours": "gpu_hours",
}
"""Columns of the two tables, and the fields of a stage that they show."""


def _stages_section(report: RunReport) -> Html:
    waits, uses, slowest = [], [], []
    failures: list[str] = []
    for stage in report.stages:
        name = units.stage_name(stage.name, is_former=stage.is_former)
        done = f"{stage.num_completed}/{stage.num_tasks}"
        times = stage.task_time
        spread = (times.median_s, times.p95_s, times.max_s) if times else ()
        shown = [units.seconds(value) for value in spread] or [units.NOT_KNOWN] * 3
        numbers = [units.quantity(getattr(stage, field)) for field in _WAITS.values()]
        waits.append([name, stage.status, done, f"{stage.num_attempts}", *numbers, *shown])
        numbers = [
            sentences.largest_task(stage)
            if field == _LARGEST_TASK
            else units.quantity(getattr(stage, field))
            for field in _USES.values()
        ]
        uses.append([name, sentences.next_request(report, stage.name), *numbers])
        if times and times.num > 1:
            slowest.append(f"slowest task of {stage.name}: {times.slowest}")
        failures += stage.failures
    wait_columns = ("stage", "status", "done", "attempts", *_WAITS, "median task", "p95", "slowest")
    stranded = sentences.why_stranded(report.stages)
    more = len(failures) - _MAX_FAILURES
    note = (
        "Waits are medians over jobs: submit to eligible, eligible to start. A stage's running "
        "time is the time in which at least one of its attempts ran. Hours are allocated, not "
        "busy. CPUs and GPUs are those of one job or array task. A task that was killed at its "
        "memory limit used at least this limit. The next request follows from the "
        "rules on memory and time."
    )
    return el(
        "section",
        el("h2", "Stages: waits and use"),
        table(wait_columns, waits, num_text=2),
        _list(stranded) if stranded else None,
        el("p", "; ".join(slowest), class_="dim") if slowest else None,
        el("h3", "Asked of Slurm, and used"),
        table(("stage", "next request", *_USES), uses, num_text=2),
        [el("h3", "Failed attempts"), _list(failures[:_MAX_FAILURES])] if failures else None,
        el("p", f"and {more} more, in report.json", class_="dim") if more > 0 else None,
        el("p", note, class_="dim"),
        id="slurm",
    )


def _list(lines: Iterable[str]) -> Html:
    return el("ul", [el("li", line) for line in lines])


# Configuration and provenance.


def provenance_section(report: RunReport) -> Html:
    """Return user, code, nodes, packages and the folded spec."""
    header, numbers = report.header, report.provenance
    submissions, probes = numbers.submissions, numbers.probes
    slurm = next((s.slurm_version for s in reversed(submissions) if s.slurm_version), "")
    facts = [
        ("run", header.run_id),
        ("submitted", units.moment(header.created_unix_s)),
        ("by", f"{header.submitted_by} on {header.host}"),
        ("scheduler", f"{header.scheduler} ({slurm})" if slurm else header.scheduler),
        ("spec", header.spec_file),
        ("version", header.version),
    ]
    submitted = [
        (units.moment(s.recorded_unix_s), _command_text(s.command), code_text(s))
        for s in submissions
    ]
    software = [
        (", ".join(p.stages), *_python_cells(p.python), " ".join(p.modules) or "none")
        for p in numbers.pythons
    ]
    software += [("(login node)", *_python_cells(s.python), "") for s in submissions[:1]]
    probed = None
    if probes:  # of any age
        compute = [(units.moment(p.measured_unix_s), *compute_row(p)) for p in probes]
        files = [file_row(p) for p in probes]
        lines = [*topology(probes), *busy(probes), *reasons(probes)]
        probed = el(
            "div",
            _titled_table("Probes of its nodes", ("probed", *COMPUTE_COLUMNS), compute),
            _titled_table("Their file systems, as probed", FILE_COLUMNS, files),
            _list(lines) if lines else None,
        )
    spec = json.dumps(report.spec, indent=1, sort_keys=True, ensure_ascii=False)
    if len(spec) > _MAX_SPEC_CHARS:
        spec = spec[:_MAX_SPEC_CHARS] + "\n... cut here; report.json has the rest"
    return el(
        "section",
        el("h2", "Configuration and provenance"),
        definitions(facts),
        _titled_table(
            "Submitted from",
            ("when", "command", "code"),
            submitted,
            "The version that submitted this run recorded neither code nor packages.",
        ),
        _titled_table(
            "Nodes",
            ("stage", "nodes", "CPU", "cores", "memory", "GPUs a node", "driver", "system"),
            [_node_cells(kind) for kind in numbers.nodes],
            "No facts of nodes were noted.",
        ),
        probed,
        _titled_table(
            "Software",
            ("stages", "packages", "Python", "modules"),
            software,
            "No packages were noted.",
        ),
        el("details", el("summary", "The spec as it was understood"), el("pre", spec)),
        id="provenance",
    )


def _titled_table(
    title: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]], nothing: str = ""
) -> Html:
    """Return a table of texts under its title, or `nothing` without rows."""
    more = len(rows) - _MAX_ROWS
    return el(
        "div",
        el("h3", title),
        table(columns, rows[:_MAX_ROWS], num_text=len(columns)) if rows else el("p", nothing),
        el("p", f"and {more:,} more, in report.json", class_="dim") if more > 0 else None,
    )


def _command_text(command: Sequence[str]) -> str:
    """Return the command as typed, the program by name; `python -m slurm_jobs` is equivalent."""
    if not command:
        return ""
    name = PurePosixPath(command[0]).name
    return shlex.join(["slurm-jobs" if name == "__main__.py" else name, *command[1:]])


def code_text(facts: SubmissionFacts) -> str:
    """Return `a1b2c3 (main), 3 files changed, 2 untracked; ...`, or why git gave no answer."""
    if facts.commit is None and facts.git_problems:
        return f"not known to git ({facts.git_problems[0]})"
    commit = facts.commit[:_COMMIT_CHARS] if facts.commit else "no commit yet"
    parts = [f"{commit} ({facts.branch})" if facts.branch else commit]
    if facts.is_dirty is None:
        parts.append("not known whether anything was changed")
    elif facts.is_dirty:
        parts.append(f"{units.number_of('file', facts.num_changed)} changed and not committed")
    else:
        parts.append("clean")
    if facts.num_untracked:
        parts.append(f"{facts.num_untracked:,} untracked")
    text = ", ".join(parts)
    if facts.diff_bytes:
        cut = ", cut" if facts.diff_is_cut else ""
        text += f"; the diff is in the run folder ({units.num_bytes(facts.diff_bytes)}{cut})"
    return text + "".join(f"; {name}: {url}" for name, url in facts.remotes.items())


def _node_cells(kind: NodeKind) -> tuple[str, ...]:
    names = ", ".join(kind.node_names[:_MAX_NODES])
    more = len(kind.node_names) - _MAX_NODES
    gpus = ", ".join(f"{number} x {name}" for name, number in kind.gpus) or "none"
    return (
        kind.stage,
        f"{names} and {more:,} more" if more > 0 else names,
        kind.cpu,
        f"{kind.num_cores}",
        units.NOT_KNOWN if kind.memory_bytes is None else units.num_bytes(kind.memory_bytes),
        f"{units.NOT_KNOWN} ({kind.gpu_problem})" if kind.gpu_problem else gpus,
        ", ".join(kind.drivers),
        kind.system,
    )


def _python_cells(python: PythonFacts) -> tuple[str, str]:
    packages = ", ".join(f"{name} {version}" for name, version in python.packages.items())
    return packages or "none of those that matter", f"{python.version}, {python.executable}"


# Method, and what is missing.


def _method_section(report: RunReport) -> Html:
    rows = [(check.rule_id, check.outcome, check.reason) for check in report.checks]
    # Each rule once, for any number of stages.
    first = {c.rule_id.partition(":")[0]: c for c in reversed(report.checks)}
    thresholds = [(name, first[name].rule, first[name].source) for name in reversed(first)]
    text = (
        "Step times are host time from one clock: the phases of a step add up to the step, and "
        "what no phase covers is shown as unexplained. Rates count real tokens over wall time, "
        "waits included. A ceiling says what would be gained if that part took no time at all; "
        "ceilings hold one at a time and do not multiply. A rule without enough data abstains."
    )
    return el(
        "section",
        el("h2", "Method, and what is missing"),
        el("p", text),
        _list(report.notes),
        el("h3", "Rules"),
        table(("rule", "outcome", "because"), rows, num_text=3),
        el("h3", "Thresholds"),
        table(("rule", "finds", "source"), thresholds, num_text=3),
        id="method",
    )
