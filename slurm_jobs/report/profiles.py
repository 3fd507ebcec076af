"""Profiles of a run: which is shown, what it says, and its text for the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from slurm_jobs.report.profile_trace import Occupancy, Trace, find, occupancy, overlap_text
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.resolved_spec import read_resolved_values
from slurm_jobs.run_folder.run_records import stages_named
from slurm_jobs.shared import units
from slurm_jobs.shared.errors import InputError
from slurm_jobs.shared.files import ranges_text, read_json
from slurm_jobs.shared.timings import OperatorTable
from slurm_jobs.spec.combinations import origin_of

# Choice of a run's trace, and the advice where there is none.


_FILES = "*/rank-*.trace.json.gz"
_USUAL_STEPS = (20, 40)
"""Recorded steps: after the warm-up of most trainings, and few enough to be written in a minute."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FoundTrace:
    """Trace that a rank recorded in an attempt."""

    path: Path
    stage: str
    rank: int

    @property
    def attempt(self) -> str:
        """Name of its folder: `s00000.a0002`."""
        return self.path.parent.name

    @property
    def title(self) -> str:
        """Text such as `train, s00000.a0002, rank 0`."""
        return f"{self.stage}, {self.attempt}, rank {self.rank}"


def find_trace(run_dir: Path, stage: str | None, rank: int | None) -> FoundTrace:
    """Return the trace of the newest attempt that has one; of its first rank if none is named.

    Raises:
        InputError: no trace exists, or the stage must be named, or is not in the run.
    """
    paths = RunPaths(run_dir)
    folder = paths.timing_stage_dir("x").parent
    every = [
        FoundTrace(
            path=path, stage=stage_dir.name, rank=int(path.name.split(".")[0][len("rank-") :])
        )
        for stage_dir in (sorted(folder.iterdir()) if folder.is_dir() else [])
        for path in sorted(stage_dir.glob(_FILES))
    ]
    of_stage = [trace for trace in every if stage in {None, trace.stage}]
    names = list(dict.fromkeys(trace.stage for trace in of_stage))
    if len(names) > 1:
        message = f"stages {', '.join(names)} have profiles; name one with --stage"
        raise InputError(message)
    if not of_stage:
        if stage is not None:
            stages_named(stage, dict.fromkeys(read_resolved_values(paths)["stages"], ""))
        raise InputError(_no_trace(paths, every, stage, rank))
    meant = [trace for trace in of_stage if rank in {None, trace.rank}]
    if not meant:
        raise InputError(_no_rank(paths, of_stage, rank))
    newest = max(trace.attempt for trace in meant)
    return min((t for t in meant if t.attempt == newest), key=lambda t: t.rank)


def _no_rank(paths: RunPaths, traces: Sequence[FoundTrace], rank: int | None) -> str:
    """Return the message for a stage that has traces, but none of this rank."""
    name, there = traces[0].stage, sorted({trace.rank for trace in traces})
    message = (
        f"stage {name} of {paths.run_dir.name} has no profile of rank {rank}; it has those of "
        f"rank {ranges_text(there)}"
    )
    stage = _trainings(paths).get(name, {})
    num_ranks = _num_ranks(stage)
    if rank is None or not 0 <= rank < num_ranks:
        return f"{message}, and has {num_ranks} in all, from 0 on"
    return f"{message}; {_to_record(paths, name, stage, [*there, rank])}"


def _no_trace(
    paths: RunPaths, traces: Sequence[FoundTrace], name: str | None, rank: int | None
) -> str:
    """Return the message for a stage or run without traces."""
    of_what = f"stage {name} of {paths.run_dir.name}" if name else f"run {paths.run_dir.name}"
    others = ", ".join(dict.fromkeys(trace.stage for trace in traces))
    message = f"{of_what} has no profile{f'; stage {others} has' if others else ''}"
    trainings = _trainings(paths)
    if name is not None and name not in trainings:
        return f"{message}; `run: train` in this run: {', '.join(trainings) or 'no stage'}"
    if not trainings:
        return f"{message}, and no stage with `run: train`, whose steps could be recorded"
    meant = name or next(iter(trainings))
    num_ranks = _num_ranks(trainings[meant])
    if rank is not None and rank >= num_ranks:
        return f"{message}; its training `{meant}` has {num_ranks} ranks, from 0 on, and no {rank}"
    return f"{message}; {_to_record(paths, meant, trainings[meant], [rank or 0])}"


def _num_ranks(stage: Mapping[str, Any]) -> int:
    resources = stage.get("resources") or {}
    nodes, tasks = resources.get("nodes") or 1, resources.get("tasks_per_node") or 1
    return int(nodes) * int(tasks)


def _to_record(paths: RunPaths, name: str, stage: Mapping[str, Any], ranks: Sequence[int]) -> str:
    """Return the command that records these ranks."""
    config = stage.get("config") or {}
    profile = config.get("profile") or {}
    asked = profile.get("ranks") or [0]
    if profile.get("steps") and set(ranks) <= set(asked):
        first, last = profile["steps"]
        return (
            f"its spec asks for steps {first} to {last} on rank {ranges_text(asked)}: they are "
            "not made yet, or were before it asked (a resume makes no step again: submit it as a "
            "new run), or its log says what went wrong\n"
            f"next: slurm-jobs logs {shlex.quote(str(paths.run_dir))} {name}"
        )
    steps, num_steps = profile.get("steps") or _USUAL_STEPS, config.get("num_steps")
    if not profile.get("steps") and num_steps is not None and num_steps <= _USUAL_STEPS[1]:
        steps = num_steps // 2, max(num_steps - 1, 0)  # the later half of a short training
    first, last = steps
    ranks_text = "" if list(ranks) == [0] else f", ranks: {sorted(ranks)}"
    key = f"stages.{origin_of(name, stage.get('matrix')) or name}.config.profile"
    origin = read_json(paths.spec_origin)  # overrides from the command line of the run count, too
    given = origin.get("overrides")
    overrides = given if isinstance(given, list) and all(isinstance(o, str) for o in given) else []
    overrides = [*overrides, f"{key}={{steps: [{first}, {last}]{ranks_text}}}"]
    words = [origin["spec_file"], *(word for o in overrides for word in ("--set", o))]
    return (
        "a new run records one (a resume makes no step again)\n"
        f"next: slurm-jobs submit {shlex.join(words)}"
    )


def _trainings(paths: RunPaths) -> Mapping[str, Mapping[str, Any]]:
    """Return the run's training stages from its resolved spec."""
    stages = read_resolved_values(paths)["stages"]
    return {name: stage for name, stage in stages.items() if stage.get("run") == "train"}


# Profile on one screen of the terminal, 80 columns wide. rich honours NO_COLOR.


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
    table = Table(box=None, padding=(0, 1), header_style="dim")
    for name in ("step", "time", "computing", "communicating", "of it exposed", "idle"):
        table.add_column(name, justify="right", no_wrap=True)
    for step in trace.steps[:_MOST_STEPS]:
        shares = occupancy(trace, [step])
        seconds = (shares.compute_s, shares.communication_s, shares.exposed_s, shares.idle_s)
        cells = (units.percent(s / shares.wall_s) if shares.wall_s else "" for s in seconds)
        table.add_row(f"{step[0]}", units.seconds(shares.wall_s), *cells)
    more = len(trace.steps) - _MOST_STEPS
    return Group(table, *([Text(f"  ... and {more} more (--json has all)")] if more > 0 else []))


def _operators(table_of_operators: OperatorTable, most: int) -> RenderableType:
    table = Table(box=None, padding=(0, 1), header_style="dim")
    table.add_column("operator", no_wrap=True)
    for name in ("calls", "self host", "self device", "share"):
        table.add_column(name, justify="right", no_wrap=True)
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
