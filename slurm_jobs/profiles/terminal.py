"""Profile on one screen of the terminal, 80 columns wide. rich honours NO_COLOR."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slurm_jobs.common.operator_table import OperatorTable
from slurm_jobs.profiles.findings import ProfileFinding, find, overlap_text
from slurm_jobs.profiles.occupancy import Occupancy, occupancy
from slurm_jobs.profiles.trace import Trace
from slurm_jobs.report import words

_CELLS = 24
"""Width left in 80 columns by the longest name and the numbers."""
_OPERATOR_CHARS = 36
"""Width left for names of operators; names of kernels are longer, and differ at both ends."""
_MOST_STEPS = 8
_COLOURS = {"computing": "blue", "exposed communication": "yellow", "copying alone": "magenta"}


def render(
    title: str, trace: Trace, table: OperatorTable | None, *, num_operators: int
) -> RenderableType:
    """Render occupancy, steps, findings and operators of one rank's profile."""
    found = occupancy(trace)
    parts: list[RenderableType] = [
        Text(title, style="bold"),
        Text(_timeline_of(trace)),
        _occupancy(found, has_device=trace.has_device),
        Text(f"  {overlap_text(found)}"),
        Text("\nStep by step", style="bold"),
        _steps(trace),
        Text("\nFindings", style="bold"),
        *_findings(find(found, has_device=trace.has_device)),
    ]
    if table is not None:
        parts += [Text("\nOperators", style="bold"), _operators(table, num_operators)]
    return Group(*parts)


def shares(found: Occupancy) -> dict[str, float]:
    """Return seconds that add up to the recorded time: each moment counts once."""
    alone = found.wall_s - found.idle_s - found.compute_s - found.exposed_s
    return {
        "computing": found.compute_s - found.overlap_s,
        "computing and communicating": found.overlap_s,
        "exposed communication": found.exposed_s,
        "copying alone": max(0.0, alone),
        "idle": found.idle_s,
    }


def _timeline_of(trace: Trace) -> str:
    if trace.has_device:
        return "  The device's own timeline; recorded steps are slower than others."
    return (
        "  No device: operators and collectives of the host, which share its cores. Recorded "
        "steps are slower than others."
    )


def _occupancy(found: Occupancy, *, has_device: bool) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for name, seconds in shares(found).items():
        share = seconds / found.wall_s if found.wall_s else 0.0
        filled = round(share * _CELLS)
        bar = Text("█" * filled, style=_COLOURS.get(name, "bright_black"))
        bar.append("·" * (_CELLS - filled), style="dim")
        a_step = words.seconds(seconds / found.num_steps)
        table.add_row(f"  {name}", bar, words.percent(share), f"{a_step} a step")
    kind = "kernels" if has_device else "operators"
    line = (
        f"  {found.num_pieces / found.num_steps:,.0f} {kind} a step; "
        f"{found.num_gaps / found.num_steps:,.0f} gaps, the longest "
        f"{words.seconds(found.longest_gap_s)}; {found.num_copies / found.num_steps:,.0f} copies"
    )
    return Group(table, Text(line))


def _steps(trace: Trace) -> RenderableType:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for name in ("step", "time", "computing", "communicating", "of it exposed", "idle"):
        table.add_column(name, justify="right", no_wrap=True)
    for step in trace.steps[:_MOST_STEPS]:
        one = occupancy(trace, [step])
        seconds = (one.compute_s, one.communication_s, one.exposed_s, one.idle_s)
        cells = (words.percent(s / one.wall_s) if one.wall_s else "" for s in seconds)
        table.add_row(f"{step[0]}", words.seconds(one.wall_s), *cells)
    more = len(trace.steps) - _MOST_STEPS
    return Group(table, *([Text(f"  ... and {more} more (--json has all)")] if more > 0 else []))


def _findings(findings: Iterable[ProfileFinding]) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for number, finding in enumerate(findings, 1):
        parts.append(Text(f"  {number}. {finding.title}", style="yellow"))
        rendered = Table.grid(padding=(0, 1, 0, 0))
        for name in ("evidence", "rule", "next_knob", "ceiling"):
            label = {"evidence": "why", "next_knob": "next", "ceiling": "gain"}.get(name, name)
            rendered.add_row(f"     {label}", Text(getattr(finding, name)))
        parts.append(rendered)
    return parts or [Text("  none")]


def _operators(found: OperatorTable, most: int) -> RenderableType:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("operator", no_wrap=True)
    for name in ("calls", "self host", "self device", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    on_device = any(op.self_device_s for op in found.operators)
    for op in found.operators[:most]:
        share = op.device_share if on_device else op.cpu_share
        table.add_row(
            Text(words.shortened(op.name, _OPERATOR_CHARS)),
            f"{op.num_calls:,}",
            words.seconds(op.self_cpu_s),
            words.seconds(op.self_device_s) if on_device else words.NOT_KNOWN,
            words.percent(share),
        )
    whose = "device" if on_device else "host"
    rendered = Text(
        f"  share: of the {whose} time of all operators, each without those that it calls"
    )
    more = len(found.operators) - most
    left = [Text(f"  ... and {more} more (--operators N, or --json)")] if more > 0 else []
    if any(len(op.name) > _OPERATOR_CHARS for op in found.operators[:most]):
        left.append(Text("  names are shortened; --json has the full names"))
    return Group(table, rendered, *left)
