"""Report as one HTML page. PURE."""

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
    EvaluationNumbers,
    Finding,
    NodeKind,
    ProvenanceNumbers,
    PythonFacts,
    RankNumbers,
    RunReport,
    StageNumbers,
    Straggler,
    SubmissionFacts,
    TrainingNumbers,
)
from slurm_jobs.report.rules.training_rules import not_compared
from slurm_jobs.report.sentences import (
    bin_text,
    least_busy,
    load_table,
    next_request,
    no_finding,
    rates,
    why_stranded,
)
from slurm_jobs.shared import units
from slurm_jobs.shared.node_records import NodeProbe
from slurm_jobs.shared.units import Quantity, TimeShare

# The data of a run on the page: counts, rejects, lengths and images.


def data_section(numbers: DataNumbers) -> Html:
    """Return counts, rejects, lengths and images of one stage's rows."""
    part = units.of_slices(numbers.num_slices_reported, numbers.num_slices)
    more = f", {part}" if part else ""
    counts = {
        "rows": numbers.num_rows,
        "samples": numbers.num_samples,
        "rejected": numbers.num_rejects,
        "of these too long": numbers.num_too_long,
        "truncated": numbers.num_truncated,
        "tokens": numbers.num_tokens,
        "mean length": numbers.mean_tokens,
    }
    statistics = numbers.statistics
    share = None if statistics is None else statistics.supervised_share
    facts = [
        *((name, _count(count, more)) for name, count in counts.items()),
        ("shards", units.with_reason(numbers.num_shards)),
        ("slices that reported", f"{numbers.num_slices_reported} of {numbers.num_slices}"),
        *([] if share is None else [("supervised", f"{units.percent(share)} of all tokens")]),
        *((f"{name} time", units.seconds(s) + more) for name, s in numbers.work_s.items()),
    ]
    if numbers.stored_image:
        facts.append(("stored image", units.stored_image(numbers.stored_image)))
    return el(
        "section",
        el("h2", f"Data: {numbers.stage}"),
        definitions(facts),
        el("div", _rejects(numbers, more), _charts(numbers, more), class_="charts"),
        None if statistics is None else el("h3", "Distribution over all samples"),
        None if statistics is None else statistics_table(statistics),
        id="data",
    )


def _rejects(numbers: DataNumbers, more: str) -> Html | None:
    rejects = [(reason, float(count)) for reason, count in numbers.rejects[:20]]
    if not rejects:
        return None
    return el("div", el("h3", f"Rejects by reason{more}"), count_bars(rejects, "rejects"))


def _charts(numbers: DataNumbers, more: str) -> list[Html]:
    """Return charts of the finished data set, else the lengths that the slices counted."""
    if numbers.statistics is not None:
        return statistics_charts(numbers.statistics)
    lengths = [(f"to {most:,} tokens", float(count)) for most, count in numbers.length_counts]
    if not lengths:
        return []
    return [el("div", el("h3", f"Samples by length{more}"), count_bars(lengths, "lengths"))]


def _count(count: Quantity, more: str) -> str:
    """Return a count with its slices; a missing count has its reason instead."""
    return units.with_reason(count) + ("" if count.value is None else more)


def statistics_table(numbers: DataStatistics) -> Html:
    """Return a table of means, extremes and percentiles."""
    summaries = {
        "tokens a sample": numbers.num_tokens,
        "supervised tokens a sample": numbers.num_supervised_tokens,
        "stored images a sample": numbers.num_images,
        "pixels of a stored image": numbers.num_pixels,
    }
    rows = [
        (name, *(_number(summary[column]) for column in SUMMARY))
        for name, summary in summaries.items()
        if summary is not None
    ]
    return table(("", *SUMMARY), rows)


def _number(value: float) -> str:
    return units.count(value) if float(value).is_integer() else units.significant(value)


def length_bars(bins: Sequence[Bin], unit: str) -> Html:
    """Return bars of samples by length, or by number of images."""
    one = unit.removesuffix("s")
    rows = [(f"{bin_text(b)} {one if b[:2] == (1, 1) else unit}", float(b[2])) for b in bins]
    return count_bars(rows, f"samples by {unit}")


def statistics_charts(numbers: DataStatistics) -> list[Html]:
    """Return two charts to place next to each other."""
    by_images = length_bars(numbers.num_images_bins, "images")
    return [
        el("div", el("h3", "Samples by length"), length_bars(numbers.num_tokens_bins, "tokens")),
        el("div", el("h3", "Samples by stored images"), by_images),
    ]


# The section "Configuration and provenance" of the page.


_MAX_SPEC_CHARS = 60_000
_MAX_NODES = 6
"""Maximum names of nodes in a row; the JSON has all."""
_MAX_ROWS = 30
_COMMIT_CHARS = 12


def provenance_section(report: RunReport) -> Html:
    """Return user, code, nodes, packages and the folded spec."""
    numbers = report.provenance
    return el(
        "section",
        el("h2", "Configuration and provenance"),
        definitions(_run_facts(report)),
        _submissions(numbers.submissions),
        _nodes(numbers.nodes),
        _probes(numbers.probes),
        _software(numbers),
        _spec(report),
        id="provenance",
    )


def _run_facts(report: RunReport) -> list[tuple[str, str]]:
    header, submissions = report.header, report.provenance.submissions
    slurm = next((s.slurm_version for s in reversed(submissions) if s.slurm_version), "")
    return [
        ("run", header.run_id),
        ("submitted", units.moment(header.created_unix_s)),
        ("by", f"{header.submitted_by} on {header.host}"),
        ("scheduler", f"{header.scheduler} ({slurm})" if slurm else header.scheduler),
        ("spec", header.spec_file),
        ("version", header.version),
    ]


def _submissions(submissions: Iterable[SubmissionFacts]) -> Html:
    rows = [
        (units.moment(s.recorded_unix_s), _command_text(s.command), code_text(s))
        for s in submissions
    ]
    nothing = "The version that submitted this run recorded neither code nor packages."
    return _titled_table("Submitted from", ("when", "command", "code"), rows, nothing)


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


def _nodes(kinds: Iterable[NodeKind]) -> Html:
    columns = ("stage", "nodes", "CPU", "cores", "memory", "GPUs a node", "driver", "system")
    rows = [
        (
            kind.stage,
            _names(kind.node_names),
            kind.cpu,
            f"{kind.num_cores}",
            units.NOT_KNOWN if kind.memory_bytes is None else units.num_bytes(kind.memory_bytes),
            _gpus(kind),
            ", ".join(kind.drivers),
            kind.system,
        )
        for kind in kinds
    ]
    return _titled_table("Nodes", columns, rows, "No facts of nodes were noted.")


def _names(names: tuple[str, ...]) -> str:
    more = len(names) - _MAX_NODES
    shown = ", ".join(names[:_MAX_NODES])
    return f"{shown} and {more:,} more" if more > 0 else shown


def _gpus(kind: NodeKind) -> str:
    if kind.gpu_problem:
        return f"{units.NOT_KNOWN} ({kind.gpu_problem})"
    return ", ".join(f"{number} x {name}" for name, number in kind.gpus) or "none"


def _probes(probes: Sequence[NodeProbe]) -> Html | None:
    """Return the probe results of the nodes, of any age; None if no node was probed."""
    if not probes:
        return None
    compute = [(units.moment(p.measured_unix_s), *compute_row(p)) for p in probes]
    files = [file_row(p) for p in probes]
    said = [*topology(probes), *busy(probes), *reasons(probes)]
    return el(
        "div",
        _titled_table("Probes of its nodes", ("probed", *COMPUTE_COLUMNS), compute, ""),
        _titled_table("Their file systems, as probed", FILE_COLUMNS, files, ""),
        el("ul", [el("li", line) for line in said]) if said else None,
    )


def _software(numbers: ProvenanceNumbers) -> Html:
    rows = [
        (", ".join(one.stages), *_python_cells(one.python), " ".join(one.modules) or "none")
        for one in numbers.pythons
    ]
    rows += [("(login node)", *_python_cells(s.python), "") for s in numbers.submissions[:1]]
    columns = ("stages", "packages", "Python", "modules")
    return _titled_table("Software", columns, rows, "No packages were noted.")


def _python_cells(python: PythonFacts) -> tuple[str, str]:
    packages = ", ".join(f"{name} {version}" for name, version in python.packages.items())
    return packages or "none of those that matter", f"{python.version}, {python.executable}"


def _titled_table(
    title: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]], nothing: str
) -> Html:
    """Return a table of texts under its title, or `nothing` without rows."""
    more = len(rows) - _MAX_ROWS
    return el(
        "div",
        el("h3", title),
        table(columns, rows[:_MAX_ROWS], num_text=len(columns)) if rows else el("p", nothing),
        el("p", f"and {more:,} more, in report.json", class_="dim") if more > 0 else None,
    )


def _spec(report: RunReport) -> Html:
    spec = json.dumps(report.spec, indent=1, sort_keys=True, ensure_ascii=False)
    if len(spec) > _MAX_SPEC_CHARS:
        spec = spec[:_MAX_SPEC_CHARS] + "\n... cut here; report.json has the rest"
    return el("details", el("summary", "The spec as it was understood"), el("pre", spec))


# The timeline of stages, array tasks and attempts as HTML.


MAX_ROWS = 32
"""A stage with more slices is drawn as the number of running and waiting tasks."""

NUM_STAGE_TONES = 6
"""Tones of running stages in page.css (`k-running-0` and on)."""
_NUM_BINS = 160


def timeline_section(report: RunReport) -> Html:
    """Return the budget from submit to end, and the bars of attempts."""
    header = report.header
    span = (header.created_unix_s, max(header.last_unix_s, header.created_unix_s + 1e-3))
    by_stage: dict[str, list[Bar]] = {}
    for bar in report.bars:
        by_stage.setdefault(bar.stage, []).append(bar)
    rows = [_stage_rows(stage, bars, span) for stage, bars in by_stage.items()]
    middle = (span[0] + span[1]) / 2
    moments = [el("span", units.seconds(at - span[0])) for at in (span[0], middle, span[1])]
    shares = _shaded(report.timeline)
    return el(
        "section",
        el("h2", "From submit to end"),
        stacked_bar(shares, "from submit to end"),
        legend(shares, "from submit to end"),
        el("p", report.timeline_note, class_="note") if report.timeline_note else None,
        el("div", rows, el("div", moments, class_="moments"), class_="gantt"),
        _keys(),
        _cost(report),
        el("p", f"Starts {units.moment(span[0])}, ends {units.moment(span[1])}.", class_="dim"),
        id="timeline",
    )


def _cost(report: RunReport) -> Html:
    """Return the cost of the run, the use of its GPUs, and the projection."""
    pairs = [("taken", sentences.taken(report.cost) or units.NOT_KNOWN)]
    pairs += [("GPUs held for", line) for line in sentences.parts(report.cost)]
    currency = report.cost.currency
    pairs += [("ahead", sentences.ahead(p, currency)) for p in report.projections]
    return el("dl", [[el("dt", name), el("dd", text)] for name, text in pairs], class_="cost")


def _shaded(shares: Sequence[TimeShare]) -> list[TimeShare]:
    """Give the stages alternating shades."""
    running = [share.name for share in shares if share.kind == "running"]
    return [
        replace(share, kind=f"running-{running.index(share.name) % NUM_STAGE_TONES}")
        if share.kind == "running"
        else share
        for share in shares
    ]


def _keys() -> Html:
    kinds = (
        ("queued", "waits in the queue"),
        ("completed", "completed"),
        ("failed", "failed"),
        ("stopped", "asked to stop, saved"),
        (_tone("cancelled"), "cancelled"),
        ("running", "running"),
        ("unknown", "end not known"),
    )
    keys = [
        el("li", el("span", class_=f"key o-{kind}"), el("span", name, class_="name"))
        for kind, name in kinds
    ]
    return el("ul", keys, class_="keys")


def _tone(outcome: str) -> str:
    """Return the tone of an outcome; cancelled and fenced attempts share a neutral one."""
    return "superseded" if outcome == "cancelled" else outcome


def _stage_rows(stage: str, bars: Sequence[Bar], span: tuple[float, float]) -> list[Html]:
    slices = sorted({bar.slice_index for bar in bars})
    if len(slices) > MAX_ROWS:
        return [_row(f"{stage} x {len(slices):,}", [_crowd(bars, span)], "tall")]
    rows = []
    for index in slices:
        name = stage if len(slices) == 1 else f"{stage} {index}"
        boxes = [box for bar in bars if bar.slice_index == index for box in _boxes(bar, span)]
        rows.append(_row(name, boxes, ""))
    return rows


def _row(name: str, boxes: Sequence[Html], more: str) -> Html:
    lane = el("div", boxes, class_=f"lane {more}".strip())
    return el("div", el("span", name, class_="label", title=name), lane, class_="row")


def _boxes(bar: Bar, span: tuple[float, float]) -> list[Html]:
    """Return the wait in a lighter tone, then the attempt."""
    boxes = []
    if bar.eligible_unix_s is not None and bar.eligible_unix_s < bar.start_unix_s:
        wait = bar.start_unix_s - bar.eligible_unix_s
        title = f"{bar.stage} {bar.slice_index}: {units.seconds(wait)} in the queue"
        boxes.append(_box(bar.eligible_unix_s, bar.start_unix_s, span, "queued", title))
    title = (
        f"{bar.stage}, slice {bar.slice_index}, "
        f"{f'attempt {bar.attempt}' if bar.attempt else 'no attempt record'}, job {bar.job_id} on "
        f"{bar.node}: {bar.outcome} after {units.seconds(bar.end_unix_s - bar.start_unix_s)}"
    )
    if bar.reason:
        title += f" ({bar.reason})"
    boxes.append(_box(bar.start_unix_s, bar.end_unix_s, span, bar.outcome, title))
    return boxes


def _box(start: float, end: float, span: tuple[float, float], kind: str, title: str) -> Html:
    whole = span[1] - span[0]
    left = min(max((start - span[0]) / whole, 0.0), 1.0)
    width = min(max((end - start) / whole, 0.0), 1.0 - left)
    style = f"left:{100 * left:.3f}%;width:{100 * width:.3f}%"
    return el("span", class_=f"box o-{_tone(kind)}", style=style, title=title)


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
    return el(
        "svg",
        _area(running + waiting, most, "queued"),
        _area(running, most, "completed"),
        viewBox=f"0 0 {_NUM_BINS - 1} 100",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"tasks over time, at most {int(running.max())} running at once",
    )


def _area(counts: np.ndarray, most: int, kind: str) -> Html:
    tops = " L".join(f"{i},{100 - 100 * int(c) / most:.1f}" for i, c in enumerate(counts))
    return el("path", d=f"M0,100 L{tops} L{_NUM_BINS - 1},100 Z", class_=f"area o-{kind}")


# The sections on training as HTML.


_MAX_LOAD_NODES = 16
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
        f"Mean step {units.seconds(mean_s)} over {units.number_of('step', numbers.num_measured)} "
        f"and {units.ranks(numbers.rank_counts)}; the first {numbers.warmup_steps} of "
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
    shown = sorted(numbers.loads, key=least_busy)[:_MAX_LOAD_NODES]
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
    repeated = units.number_of("step", numbers.num_repeated_steps)
    repeated += f", {units.seconds(numbers.repeated_s)}"
    attempts = units.number_of("attempt", numbers.num_attempts)
    ranks = units.ranks(numbers.rank_counts)
    return [
        ("steps", f"{numbers.num_steps:,} in {attempts}, on {ranks}"),
        ("done twice", repeated if numbers.num_repeated_steps else "none"),
        *_abandoned(numbers),
        ("rate", units.with_reason(numbers.steps_per_s)),
        ("samples", units.with_reason(numbers.samples_per_s)),
        ("real tokens", units.with_reason(numbers.tokens_per_s)),
        *(
            (f"on {units.number_of('rank', some.num_ranks)}", rates(some))
            for some in numbers.rates_by_ranks
        ),
        ("step, median", units.with_reason(numbers.step_median_s)),
        ("step, p95", units.with_reason(numbers.step_p95_s)),
        ("padding", units.with_reason(numbers.padding_share)),
        ("loss, first step", units.with_reason(numbers.first_loss)),
        (
            f"loss, {units.last_steps(numbers.num_last_losses)}",
            units.with_reason(numbers.last_loss),
        ),
        ("memory peak", units.with_reason(numbers.memory_peak_bytes)),
        ("allocator retries", f"{numbers.num_allocator_retries:,}"),
    ]


def _abandoned(numbers: TrainingNumbers) -> list[tuple[str, str]]:
    if not numbers.num_abandoned_steps:
        return []
    steps = units.number_of("step", numbers.num_abandoned_steps)
    return [("of an earlier config", f"{steps}, {units.seconds(numbers.abandoned_s)}")]


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
        f"{units.seconds(straggler.data_excess_s)} a step longer for data than the mean rank."
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
    steps = f", {units.number_of('step', rank.num_steps)}" if with_steps else ""
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
        el("span", units.seconds(rank.step_mean_s), class_="num"),
        class_="rank",
    )


# Report as one HTML file that opens offline. PURE except for reading its template.
#
# No script, no request: everything is drawn here. The order is that of the terminal report.


_MAX_FAILURES = 20
_PROGRESS_COLUMNS = (
    "stage",
    "status",
    "done",
    "attempts",
    "dependency wait",
    "queue wait",
    "longest queue",
    "ran for",
    "median task",
    "p95",
    "slowest",
)
_USE_COLUMNS = (
    "stage",
    "next request",
    "CPUs",
    "CPU used",
    "memory a node",
    "largest task",
    "time limit",
    "longest job",
    "GPUs",
    "GPU busy",
    "CPU hours",
    "GPU hours",
)


def render_html(report: RunReport) -> str:
    """Return the whole page."""
    sections = [
        *(step_section(numbers) for numbers in report.training),
        _findings_section(report),
        timeline_section(report),
        *(training_section(numbers) for numbers in report.training),
        *(data_section(numbers) for numbers in report.data),
        *(_evaluation_section(numbers) for numbers in report.evaluation),
        _stages_section(report),
        provenance_section(report),
        _method_section(report),
    ]
    return render_page(
        title=f"{report.header.title}: run report",
        header=_header(report),
        sections=sections,
        version=report.header.version,
    )


def _header(report: RunReport) -> Html:
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
    return el(
        "header",
        el("p", el("span", header.status, class_=f"pill p-{header.status}"), " ", header.run_id),
        el("h1", header.title),
        el("p", report.verdict, class_="verdict"),
        el("ul", tiles, class_="tiles"),
    )


def _findings_section(report: RunReport) -> Html:
    cards = [_finding_card(number, f) for number, f in enumerate(report.findings, 1)]
    nothing = el("p", prose(no_finding(report.checks)))
    return el("section", el("h2", "Findings"), cards or nothing, id="findings")


def _finding_card(number: int, finding: Finding) -> Html:
    return el(
        "article",
        el(
            "h3",
            el("span", finding.severity, class_=f"pill p-{finding.severity}"),
            f" {number}. {finding.title}",
        ),
        el("p", prose(finding.text)),
        el(
            "dl",
            el("dt", "Evidence"),
            el("dd", [el("div", prose(line)) for line in finding.evidence]),
            el("dt", "Next knob"),
            el("dd", prose(finding.next_knob)),
            el("dt", "Ceiling"),
            el("dd", prose(finding.ceiling)),
            el("dt", "Confidence"),
            el("dd", finding.confidence),
            el("dt", "Rule"),
            el("dd", finding.rule, el("span", f" ({finding.source})", class_="dim")),
        ),
        class_=f"card c-{finding.severity}",
    )


def _evaluation_section(evaluation: EvaluationNumbers) -> Html:
    numbers = definitions(units.evaluation(evaluation.numbers))
    return el("section", el("h2", f"Evaluation: {evaluation.stage}"), numbers)


def _stages_section(report: RunReport) -> Html:
    slowest = [
        f"slowest task of {stage.name}: {stage.task_time.slowest}"
        for stage in report.stages
        if stage.task_time and stage.task_time.num > 1
    ]
    stranded = why_stranded(report.stages)
    note = (
        "Waits are medians over jobs: submit to eligible, eligible to start. A stage ran for as "
        "long as one of its attempts did, or more at once. Hours are allocated, not busy. CPUs and "
        "GPUs are of one job or array task; the next request is by the rules on memory and time."
    )
    return el(
        "section",
        el("h2", "Stages: waits and use"),
        table(_PROGRESS_COLUMNS, [_progress_row(stage) for stage in report.stages], num_text=2),
        el("ul", [el("li", line) for line in stranded]) if stranded else None,
        el("p", "; ".join(slowest), class_="dim") if slowest else None,
        el("h3", "Asked of Slurm, and used"),
        table(_USE_COLUMNS, [_use_row(report, stage) for stage in report.stages], num_text=2),
        _failures(report),
        el("p", note, class_="dim"),
        id="slurm",
    )


def _failures(report: RunReport) -> Html | None:
    failures = [line for stage in report.stages for line in stage.failures]
    if not failures:
        return None
    more = len(failures) - _MAX_FAILURES
    return join(
        [
            el("h3", "Failed attempts"),
            el("ul", [el("li", line) for line in failures[:_MAX_FAILURES]]),
            el("p", f"and {more} more, in report.json", class_="dim") if more > 0 else None,
        ]
    )


def _progress_row(stage: StageNumbers) -> list[str]:
    times = stage.task_time
    spread = (times.median_s, times.p95_s, times.max_s) if times else ()
    shown = [units.seconds(value) for value in spread] or [units.NOT_KNOWN] * 3
    return [
        units.stage_name(stage.name, is_former=stage.is_former),
        stage.status,
        f"{stage.num_completed}/{stage.num_tasks}",
        f"{stage.num_attempts}",
        units.quantity(stage.dependency_wait_median_s),
        units.quantity(stage.queue_wait_median_s),
        units.quantity(stage.queue_wait_max_s),
        units.quantity(stage.running_s),
        *shown,
    ]


def _use_row(report: RunReport, stage: StageNumbers) -> list[str]:
    numbers = (
        stage.requested_cpus,
        stage.cpu_efficiency,
        stage.requested_mem_bytes,
        stage.max_rss_bytes,
        stage.time_limit_s,
        stage.longest_s,
        stage.requested_gpus,
        stage.gpu_busy,
        stage.cpu_hours,
        stage.gpu_hours,
    )
    name = units.stage_name(stage.name, is_former=stage.is_former)
    return [name, next_request(report, stage.name), *(units.quantity(n) for n in numbers)]


def _method_section(report: RunReport) -> Html:
    rows = [(check.rule_id, check.outcome, check.reason) for check in report.checks]
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
        el("ul", [el("li", note) for note in report.notes]),
        el("h3", "Rules"),
        table(("rule", "outcome", "because"), rows, num_text=3),
        el("h3", "Thresholds"),
        table(("rule", "finds", "source"), _thresholds(report), num_text=3),
        id="method",
    )


def _thresholds(report: RunReport) -> list[tuple[str, str, str]]:
    """Return each rule once, for any number of stages."""
    first = {c.rule_id.partition(":")[0]: c for c in reversed(report.checks)}
    return [(name, first[name].rule, first[name].source) for name in reversed(first)]
