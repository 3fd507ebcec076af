"""Report on one screen of the terminal, in the order of the page. rich honours NO_COLOR."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from slurm_jobs.report import words, words_load, words_projection
from slurm_jobs.report.model.run import DataNumbers, Finding, RunReport, StageNumbers
from slurm_jobs.report.model.training import TrainingNumbers
from slurm_jobs.report.model.values import shown
from slurm_jobs.report.terminal_parts import Pairs, Tiles, shares_of
from slurm_jobs.report.words_requests import no_finding, rates, why_stranded
from slurm_jobs.report.words_statistics import statistics_lines

_SHOWN_FAILURES = 3
"""Per stage; the page has all."""
_MOST_REASONS = 6
"""Reasons of rejects that are named; the page has all."""
_SEVERITY_STYLES = {"high": "bold red", "medium": "yellow", "note": "cyan"}


def print_report(report: RunReport, console: Console) -> None:
    """Write the report to the console."""
    console.print(render(report))


def render(report: RunReport) -> RenderableType:
    """Render the whole report."""
    parts: list[RenderableType] = [
        Text(f"{report.header.title}  {report.header.run_id}", style="bold"),
        Text(report.verdict),
        _tiles(report),
    ]
    for training in report.training:
        parts.append(_heading(f"Where a step's time goes: {training.stage}"))
        parts.append(shares_of(training.phases))
        parts.extend(_device(training))
    parts.append(_heading("Findings"))
    parts.extend(_finding(number, f) for number, f in enumerate(report.findings, 1))
    if not report.findings:
        parts.append(_indented(no_finding(report.checks)))
    parts.append(_heading("From submit to end"))
    parts.append(shares_of(report.timeline))
    parts.extend(_cost(report))
    for training in report.training:
        parts.extend([_heading(f"Training: {training.stage}"), _training(training)])
    for data in report.data:
        parts.extend([_heading(f"Data: {data.stage}"), _data(data)])
    for evaluation in report.evaluation:
        shown_numbers = Pairs(words.evaluation(evaluation.numbers))
        parts.extend([_heading(f"Evaluation: {evaluation.stage}"), shown_numbers])
    parts.extend([_heading("Stages"), _stages(report.stages)])
    parts.extend([_heading("Method and what is missing"), _method(report)])
    return Group(*parts)


def _device(training: TrainingNumbers) -> list[RenderableType]:
    """Return the device's timeline, and the node whose devices are idle most."""
    parts: list[RenderableType] = []
    if training.device_timeline:
        parts += [Text("  on the device:", style="dim"), shares_of(training.device_timeline)]
    if training.loads:
        line = words_load.load_line(min(training.loads, key=words_load.least_busy))
        parts.append(_indented(f"load of {line}", style="dim"))
    return parts


def _cost(report: RunReport) -> list[RenderableType]:
    lines = [f"  {line}" for line in filter(None, [words_projection.taken(report.cost)])]
    lines += [f"  {line}" for line in words_projection.parts(report.cost)]
    lines += [
        f"  ahead: {words_projection.ahead(projection, report.cost.currency)}"
        for projection in report.projections
    ]
    return [Text(line) for line in lines]


def _heading(title: str) -> Text:
    return Text(f"\n{title}", style="bold")


def _tiles(report: RunReport) -> RenderableType:
    return Tiles([(tile.label, tile.value, tile.note) for tile in report.tiles])


def _finding(number: int, finding: Finding) -> RenderableType:
    """Render a finding; for a note only what to do, the page has the rest."""
    text = Text(f"  {number}. ")
    text.append(finding.title, style=_SEVERITY_STYLES[finding.severity])
    table = Table.grid(padding=(0, 1))
    table.add_column(width=10, style="dim")
    table.add_column(overflow="fold")
    if finding.severity != "note":
        table.add_row("     why", Text(finding.evidence[0]))
    table.add_row("     next", Text(finding.next_knob))
    if finding.severity != "note":
        table.add_row("     gain", Text(finding.ceiling))
    return Group(text, table)


def _stages(stages: Sequence[StageNumbers]) -> RenderableType:
    failures = [line for stage in stages for line in _failures(stage)]
    lines = [*why_stranded(stages), *failures]
    return Group(_StageTable(stages), *map(_indented, lines))


_STAGE_COLUMNS = ("done", "attempts", "median queue", "ran for", "CPU", "memory")


@dataclass(frozen=True)
class _StageTable:
    """Table; if it does not fit, a stage is a line and its numbers are lines that wrap."""

    stages: Sequence[StageNumbers]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(box=None, padding=(0, 1), header_style="dim")
        for name in ("stage", "status"):
            table.add_column(name, no_wrap=True)
        for name in _STAGE_COLUMNS:
            table.add_column(name.replace("median ", "median\n"), justify="right", no_wrap=True)
        for stage in self.stages:
            table.add_row(Text(_stage_name(stage)), stage.status, *_stage_facts(stage))
        unbounded = options.update(max_width=10_000)
        if Measurement.get(console, unbounded, table).maximum <= options.max_width:
            yield table
            return
        for stage in self.stages:
            yield Text(f"  {_stage_name(stage)}: {stage.status}")
            facts = zip(_STAGE_COLUMNS, _stage_facts(stage), strict=True)
            yield Padding(Pairs(tuple(facts)), (0, 0, 0, 2))


def _stage_name(stage: StageNumbers) -> str:
    return words.stage_name(stage.name, is_former=stage.is_former)


def _stage_facts(stage: StageNumbers) -> tuple[str, ...]:
    """Return the cells in the order of `_STAGE_COLUMNS`."""
    return (
        f"{stage.num_completed}/{stage.num_tasks}",
        f"{stage.num_attempts}",
        words.quantity(stage.queue_wait_median_s),
        words.quantity(stage.running_s),
        words.quantity(stage.cpu_efficiency),
        words.quantity(stage.max_rss_bytes),
    )


def _failures(stage: StageNumbers) -> list[str]:
    was = "failed, before it completed" if stage.status == "completed" else "failed"
    shown = [f"{was}: {line}" for line in stage.failures[:_SHOWN_FAILURES]]
    more = len(stage.failures) - len(shown)
    return [*shown, *([f"... and {more} more failed attempts of {stage.name}"] if more else [])]


def _training(numbers: TrainingNumbers) -> RenderableType:
    pairs = [
        ("steps", f"{numbers.num_steps:,} on {words.ranks(numbers.rank_counts)}"),
        ("done twice", f"{numbers.num_repeated_steps:,}"),
        ("step", f"{words.quantity(numbers.step_median_s)} median"),
        ("p95", words.quantity(numbers.step_p95_s)),
        ("", words.quantity(numbers.steps_per_s)),
        ("", words.quantity(numbers.samples_per_s)),
        ("", words.quantity(numbers.tokens_per_s)),
        ("padding", words.quantity(numbers.padding_share)),
        ("loss", _loss(numbers)),
        ("memory peak", words.quantity(numbers.memory_peak_bytes)),
    ]
    ratio = numbers.straggler.slowest_over_mean if numbers.straggler else None
    if ratio is not None:
        pairs.append(("own work, slowest rank over mean", f"{ratio:.3f}"))
    by_ranks = [
        Text(f"  on {words.number_of('rank', some.num_ranks)}: {rates(some)}")
        for some in numbers.rates_by_ranks
    ]
    return Group(Pairs(pairs), *by_ranks, *_budget(numbers))


def _budget(numbers: TrainingNumbers) -> list[RenderableType]:
    """Return the time around the steps, in a few lines."""
    parts = [
        ("", f"{part.name} {words.percent(part.share)} ({words.seconds(part.seconds)})")
        for part in shown(numbers.budget)
    ]
    if not parts:
        return []
    return [Text("  rank 0, from the start of each attempt to its end:", style="dim"), Pairs(parts)]


def _loss(numbers: TrainingNumbers) -> str:
    if numbers.first_loss.value is None or numbers.last_loss.value is None:
        return words.NOT_KNOWN
    first = words.significant(numbers.first_loss.value)
    last = words.significant(numbers.last_loss.value)
    steps = words.last_steps(numbers.num_last_losses)
    return f"{first} (first step), {last} ({steps}) {numbers.last_loss.unit}"


def _data(numbers: DataNumbers) -> RenderableType:
    pairs = [
        ("rows", words.quantity(numbers.num_rows)),
        ("samples", words.quantity(numbers.num_samples)),
        ("rejected", words.quantity(numbers.num_rejects)),
        ("of these too long", words.quantity(numbers.num_too_long)),
        ("tokens", words.quantity(numbers.num_tokens)),
        ("mean", words.quantity(numbers.mean_tokens)),
        ("shards", words.quantity(numbers.num_shards)),
    ]
    shown, others = numbers.rejects[:_MOST_REASONS], numbers.rejects[_MOST_REASONS:]
    rejects = ", ".join(f"{reason} {count:,}" for reason, count in shown)
    if others:
        other = "1 other reason" if len(others) == 1 else f"{len(others)} other reasons"
        rejects += f", of {other} {sum(count for _, count in others):,}"
    lines = [_indented(f"rejects: {rejects}")] if rejects else []
    if numbers.stored_image:
        lines.append(_indented(f"stored image: {words.stored_image(numbers.stored_image)}"))
    if numbers.statistics is not None:
        lines += map(_indented, statistics_lines(numbers.statistics))
    part = words.of_slices(numbers.num_slices_reported, numbers.num_slices)
    caption = [Text(f"  {part}, those that completed:", style="dim")] if part else []
    return Group(*caption, Pairs(pairs), *lines)


def _method(report: RunReport) -> RenderableType:
    abstained = [c for c in report.checks if c.outcome == "abstained"]
    clear = sum(c.outcome == "clear" for c in report.checks)
    counts = f"{len(report.findings)} found, {clear} clear, {len(abstained)} abstained"
    lines = [
        f"Rules: {counts}; the page says which, and why.",
        *(["Ceilings hold one at a time; they do not multiply."] if report.findings else []),
        *report.notes,
    ]
    return Group(*map(_indented, lines))


def _indented(line: str, style: str = "") -> RenderableType:
    """Indent a line, including its wrapped parts."""
    return Padding(Text(line, style=style), (0, 0, 0, 2), expand=False)
