"""Profile on one screen of the terminal, 80 columns wide. rich honours NO_COLOR."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slurm_jobs.base import units
from slurm_jobs.formats.timings.profiler_files import OperatorTable
from slurm_jobs.report.profiles.occupancy import Occupancy, occupancy
from slurm_jobs.report.profiles.profile_findings import find, overlap_text
from slurm_jobs.report.profiles.profile_trace import Trace
from slurm_jobs.report.text.terminal_parts import plain_table

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
    profile = occupancy(trace)
    clock = "  The device's own timeline; recorded steps are slower than others."
    if not trace.has_device:
        clock = (
            "  No device: operators and collectives of the host, which share its cores. Recorded "
            "steps are slower than others."
        )
    parts: list[RenderableType] = [
        Text(title, style="bold"),
        Text(clock),
        _occupancy(profile, has_device=trace.has_device),
        Text(f"  {overlap_text(profile)}"),
        Text("\nStep by step", style="bold"),
        _steps(trace),
        Text("\nFindings", style="bold"),
    ]
    findings = find(profile, has_device=trace.has_device)
    for number, finding in enumerate(findings, 1):
        parts.append(Text(f"  {number}. {finding.title}", style="yellow"))
        facts = Table.grid(padding=(0, 1, 0, 0))
        facts.add_row("     why", Text(finding.evidence))
        facts.add_row("     rule", Text(finding.rule))
        facts.add_row("     next", Text(finding.next_knob))
        facts.add_row("     gain", Text(finding.ceiling))
        parts.append(facts)
    if not findings:
        parts.append(Text("  none"))
    if table is not None:
        parts += [Text("\nOperators", style="bold"), _operators(table, num_operators)]
    return Group(*parts)


def shares(profile: Occupancy) -> dict[str, float]:
    """Return seconds that add up to the recorded time: each moment counts once."""
    alone = profile.wall_s - profile.idle_s - profile.compute_s - profile.exposed_s
    return {
        "computing": profile.compute_s - profile.overlap_s,
        "computing and communicating": profile.overlap_s,
        "exposed communication": profile.exposed_s,
        "copying alone": max(0.0, alone),
        "idle": profile.idle_s,
    }


def _occupancy(profile: Occupancy, *, has_device: bool) -> RenderableType:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    for name, seconds in shares(profile).items():
        share = seconds / profile.wall_s if profile.wall_s else 0.0
        filled = round(share * _CELLS)
        bar = Text("█" * filled, style=_COLOURS.get(name, "bright_black"))
        bar.append("·" * (_CELLS - filled), style="dim")
        a_step = units.seconds(seconds / profile.num_steps)
        table.add_row(f"  {name}", bar, units.percent(share), f"{a_step} a step")
    kind = "kernels" if has_device else "operators"
    line = (
        f"  {profile.num_pieces / profile.num_steps:,.0f} {kind} a step; "
        f"{profile.num_gaps / profile.num_steps:,.0f} gaps, the longest "
        f"{units.seconds(profile.longest_gap_s)}; "
        f"{profile.num_copies / profile.num_steps:,.0f} copies"
    )
    return Group(table, Text(line))


def _steps(trace: Trace) -> RenderableType:
    columns = ("step", "time", "computing", "communicating", "of it exposed", "idle")
    table = plain_table(*columns, num_text=0)
    for step in trace.steps[:_MOST_STEPS]:
        shares = occupancy(trace, [step])
        seconds = (shares.compute_s, shares.communication_s, shares.exposed_s, shares.idle_s)
        cells = (units.percent(s / shares.wall_s) if shares.wall_s else "" for s in seconds)
        table.add_row(f"{step[0]}", units.seconds(shares.wall_s), *cells)
    more = len(trace.steps) - _MOST_STEPS
    return Group(table, *([Text(f"  ... and {more} more (--json has all)")] if more > 0 else []))


def _operators(table_of_operators: OperatorTable, most: int) -> RenderableType:
    table = plain_table("operator", "calls", "self host", "self device", "share")
    on_device = any(op.self_device_s for op in table_of_operators.operators)
    for op in table_of_operators.operators[:most]:
        share = op.device_share if on_device else op.cpu_share
        table.add_row(
            Text(units.shortened(op.name, _OPERATOR_CHARS)),
            f"{op.num_calls:,}",
            units.seconds(op.self_cpu_s),
            units.seconds(op.self_device_s) if on_device else units.NOT_KNOWN,
            units.percent(share),
        )
    whose = "device" if on_device else "host"
    rendered = Text(
        f"  share: of the {whose} time of all operators, each without those that it calls"
    )
    more = len(table_of_operators.operators) - most
    left = [Text(f"  ... and {more} more (--operators N, or --json)")] if more > 0 else []
    if any(len(op.name) > _OPERATOR_CHARS for op in table_of_operators.operators[:most]):
        left.append(Text("  names are shortened; --json has the full names"))
    return Group(table, rendered, *left)
