"""Report on one screen of the terminal, in the order of the page. rich honours NO_COLOR."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from slurm_jobs.base import units
from slurm_jobs.base.quantities import shown
from slurm_jobs.formats.manifests.row_notes import note_name
from slurm_jobs.report.attempts.attempt_table import ended_lines
from slurm_jobs.report.text import cost_sentences, efficiency_text, load_table, loss_table
from slurm_jobs.report.text.data_lines import (
    MIXTURE_COLUMNS,
    counts_of_rows,
    mixture_rows,
    statistics_lines,
)
from slurm_jobs.report.text.sentences import no_finding, rates, why_stranded
from slurm_jobs.report.text.terminal_parts import (
    NamedValues,
    Tiles,
    plain_table,
    share_text,
    shares_of,
)
from slurm_jobs.report.values.data_model import DataNumbers
from slurm_jobs.report.values.efficiency_model import StageEfficiency
from slurm_jobs.report.values.finding_model import Finding
from slurm_jobs.report.values.report_model import RunReport
from slurm_jobs.report.values.stage_model import StageNumbers
from slurm_jobs.report.values.training_model import TrainingNumbers

_SHOWN_ENDED = 3
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
        Tiles([(tile.label, tile.value, tile.note) for tile in report.tiles]),
    ]
    for training in report.training:
        parts += [
            _heading(f"Where a step's time goes: {training.stage}"),
            shares_of(training.phases),
        ]
        if training.device_timeline:
            parts += [Text("  on the device:", style="dim"), shares_of(training.device_timeline)]
        if training.loads:
            line = load_table.load_line(min(training.loads, key=load_table.least_busy))
            parts.append(_indented(f"load of {line}", style="dim"))
    parts.append(_heading("Findings"))
    parts.extend(_finding(number, f) for number, f in enumerate(report.findings, 1))
    if not report.findings:
        parts.append(_indented(no_finding(report.checks)))
    parts += [_heading("From submit to end"), shares_of(report.timeline)]
    if cost := cost_sentences.taken(report.cost):
        parts.append(Text(f"  {cost}"))
    parts.extend(Text(f"  {line}") for line in cost_sentences.parts(report.cost))
    for projection in report.projections:
        parts.append(Text(f"  ahead: {cost_sentences.ahead(projection, report.cost.currency)}"))
    for training in report.training:
        parts += [_heading(f"Training: {training.stage}"), *_training(training)]
    for data in report.data:
        parts += [_heading(f"Data: {data.stage}"), *_data(data)]
    for evaluation in report.evaluation:
        parts.append(_heading(f"Evaluation: {evaluation.stage}"))
        parts.append(NamedValues(units.evaluation(evaluation.numbers)))
    stages = [_stage_row(stage) for stage in report.stages]
    parts += [_heading("Stages"), _StageTable(_STAGE_COLUMNS, stages, num_text=2)]
    parts.extend(map(_indented, why_stranded(report.stages)))
    complete = {stage.name for stage in report.stages if stage.status == "completed"}
    for attempts in report.attempts:
        is_complete = attempts.stage in complete
        parts.extend(
            map(_indented, ended_lines(attempts, is_complete=is_complete, most=_SHOWN_ENDED))
        )
    parts.extend(_efficiency(report.efficiency))
    outcomes = Counter(check.outcome for check in report.checks)
    parts += [
        _heading("Method and what is missing"),
        _indented(
            f"Of {units.number_of('rule', len(report.checks))}, {outcomes['found']} found "
            f"something and {outcomes['abstained']} could not judge. The page says why."
        ),
    ]
    if report.findings:
        parts.append(_indented("Gains hold one at a time, so do not multiply them."))
    parts.extend(map(_indented, report.notes))
    return Group(*parts)


def _heading(title: str) -> Text:
    return Text(f"\n{title}", style="bold")


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


_STAGE_COLUMNS = ("stage", "status", "done", "attempts", "median queue", "ran for")


@dataclass(frozen=True)
class _StageTable:
    """Table of stages or other things with names.

    If it does not fit, each is a line, and its numbers are lines that wrap.
    """

    columns: Sequence[str]
    """First what the table shows, above the names."""
    rows: Sequence[Sequence[str]]
    num_text: int = 1

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        title, *names = self.columns
        headings = [name.replace("median ", "median\n") for name in self.columns]
        table = plain_table(*headings, num_text=self.num_text)
        for row in self.rows:
            table.add_row(*map(Text, row))
        unbounded = options.update(max_width=10_000)
        if Measurement.get(console, unbounded, table).maximum <= options.max_width:
            yield table
            return
        if title != "stage":
            yield Text(f"  {title}:", style="dim")
        for stage, *cells in self.rows:
            yield Text(f"  {stage}:")
            yield Padding(NamedValues(tuple(zip(names, cells, strict=True))), (0, 0, 0, 2))


def _stage_row(stage: StageNumbers) -> tuple[str, ...]:
    """Return the cells in the order of `_STAGE_COLUMNS`."""
    return (
        units.stage_name(stage.name, is_former=stage.is_former),
        stage.status,
        f"{stage.num_completed}/{stage.num_tasks}",
        f"{stage.num_attempts}",
        units.quantity(stage.queue_wait_median_s),
        units.quantity(stage.running_s),
    )


def _efficiency(efficiency: Sequence[StageEfficiency]) -> Iterator[RenderableType]:
    if efficiency_text.has_numbers(efficiency):
        columns = ("requests", *efficiency_text.use_columns(efficiency))
        yield _StageTable(columns, efficiency_text.use_rows(efficiency))
        columns = ("hours", *efficiency_text.HOUR_COLUMNS)
        yield _StageTable(columns, efficiency_text.hour_rows(efficiency))
    yield from map(_indented, efficiency_text.lines_below(efficiency))


def _training(numbers: TrainingNumbers) -> Iterator[RenderableType]:
    loss = units.NOT_KNOWN
    if numbers.first_loss.value is not None and numbers.last_loss.value is not None:
        first, last = map(units.significant, (numbers.first_loss.value, numbers.last_loss.value))
        steps = units.last_steps(numbers.num_last_losses)
        loss = f"{first} (first step), {last} ({steps}) {numbers.last_loss.unit}"
    pairs = [
        ("steps", f"{numbers.num_steps:,} on {units.ranks(numbers.rank_counts)}"),
        ("done twice", f"{numbers.num_repeated_steps:,}"),
        ("step", f"{units.quantity(numbers.step_median_s)} median"),
        ("p95", units.quantity(numbers.step_p95_s)),
        ("", units.quantity(numbers.steps_per_s)),
        ("", units.quantity(numbers.samples_per_s)),
        ("", units.quantity(numbers.tokens_per_s)),
        ("padding", units.quantity(numbers.padding_share)),
        ("loss", loss),
        ("memory peak", units.quantity(numbers.memory_peak_bytes)),
    ]
    ratio = numbers.straggler.slowest_over_mean if numbers.straggler else None
    if ratio is not None:
        pairs.append(("own work, slowest rank over mean", f"{ratio:.3f}"))
    yield NamedValues(pairs)
    for rate in numbers.rates_by_ranks:
        yield Text(f"  on {units.number_of('rank', rate.num_ranks)}: {rates(rate)}")
    if numbers.manifest_losses:
        yield _StageTable(loss_table.COLUMNS, loss_table.table_rows(numbers.manifest_losses))
    if budget := shown(numbers.budget):
        yield Text("  rank 0, from the start of each attempt to its end:", style="dim")
        yield NamedValues([("", share_text(part)) for part in budget])


def _data(numbers: DataNumbers) -> Iterator[RenderableType]:
    part = units.of_slices(numbers.num_slices_reported, numbers.num_slices)
    if part:
        yield Text(f"  {part}, those that completed:", style="dim")
    counts = {**counts_of_rows(numbers), "shards": numbers.num_shards}
    yield NamedValues([(name, units.quantity(count)) for name, count in counts.items()])
    named, others = numbers.rejects[:_MOST_REASONS], numbers.rejects[_MOST_REASONS:]
    rejects = ", ".join(f"{reason} {count:,}" for reason, count in named)
    if others:
        other = "1 other reason" if len(others) == 1 else f"{len(others)} other reasons"
        rejects += f", {other} {sum(count for _, count in others):,}"
    if rejects:
        yield _indented(f"rejects: {rejects}")
    for note, count in numbers.row_notes:
        yield _indented(f"{note_name(note)}: {units.number_of('row', count)}")
    if numbers.stored_image:
        yield _indented(f"stored image: {units.stored_image(numbers.stored_image)}")
    if numbers.statistics is not None:
        yield from map(_indented, statistics_lines(numbers.statistics))
    if numbers.mixture:
        yield _StageTable(MIXTURE_COLUMNS, mixture_rows(numbers.mixture))


def _indented(line: str, style: str = "") -> RenderableType:
    """Indent a line, including its wrapped parts."""
    return Padding(Text(line, style=style), (0, 0, 0, 2), expand=False)
