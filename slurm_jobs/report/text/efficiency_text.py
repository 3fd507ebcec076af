"""Tables of the efficiency of stages, and the lines below them, for terminal and page. PURE."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_jobs.base import units
from slurm_jobs.base.quantities import Quantity
from slurm_jobs.report.values.efficiency_model import StageEfficiency, Use

_DASH = "-"
"""Shown for an unknown number; the reason is below the table."""
_SHOWN_HOURS = 0.005
"""Fewer hours are shown as `<0.01`."""
HOUR_COLUMNS = ("allocated", "failed", "repeated", "idle")
Row = tuple[str, ...]
"""A line of a table: the name of a stage, and its cells."""


def has_numbers(efficiency: Sequence[StageEfficiency]) -> bool:
    """Check whether there is accounting of any stage, without which a table is only dashes."""
    return any(stage.cpu_hours.value is not None for stage in efficiency)


def use_columns(efficiency: Sequence[StageEfficiency]) -> tuple[str, ...]:
    """Return the names of the requests; without GPUs if no stage requested any."""
    has_gpus = any(stage.gpu.requested.value for stage in efficiency)
    return ("cores", "memory", "time", *(["GPUs"] if has_gpus else []))


def use_rows(efficiency: Sequence[StageEfficiency]) -> list[Row]:
    """Return what was used of the requests, in the order of `use_columns`."""
    has_gpus = "GPUs" in use_columns(efficiency)
    rows = []
    for stage in efficiency:
        row = [_name(stage), _share_text(stage.cpu), _memory_text(stage), _share_text(stage.time)]
        if has_gpus:
            row.append(_share_text(stage.gpu) if stage.gpu.requested.value else "none")
        rows.append(tuple(row))
    return rows


def hour_rows(efficiency: Sequence[StageEfficiency]) -> list[Row]:
    """Return allocated and wasted hours of the GPUs of each stage, or else of its cores."""
    return [gpu_row(stage) if stage.gpu_hours.value else cpu_row(stage) for stage in efficiency]


def cpu_row(stage: StageEfficiency) -> Row:
    """Return allocated and wasted CPU-hours, in the order of `HOUR_COLUMNS`."""
    parts = [_part_text(waste.cpu_hours, stage.cpu_hours) for waste in stage.waste]
    return (_name(stage), _whole_text(stage.cpu_hours), *parts)


def gpu_row(stage: StageEfficiency) -> Row:
    """Return allocated and wasted GPU-hours, in the order of `HOUR_COLUMNS`."""
    parts = [_part_text(waste.gpu_hours, stage.gpu_hours) for waste in stage.waste]
    return (_name(stage), _whole_text(stage.gpu_hours), *parts)


def lines_below(efficiency: Sequence[StageEfficiency]) -> list[str]:
    """Return the sum of what was lost, and why numbers are dashes."""
    stages: dict[tuple[str, str], list[str]] = {}
    for stage in efficiency:
        for reason, names in _unknown(stage).items():
            stages.setdefault((", ".join(names), reason), []).append(_name(stage))
    lines = [f"{name} of {', '.join(of)}: {reason}" for (name, reason), of in stages.items()]
    lost = list(filter(None, (_lost(efficiency, "gpu_hours"), _lost(efficiency, "cpu_hours"))))
    if lost:
        lines.insert(0, f"failed and repeated: {', '.join(lost)}")
    return lines


def _unknown(stage: StageEfficiency) -> dict[str, list[str]]:
    missing = {
        "cores": stage.cpu.share.missing,
        "memory": stage.memory.share.missing,
        "time": stage.time.share.missing,
        "hours": stage.cpu_hours.missing,
        "idle cores": stage.waste[-1].cpu_hours.missing,
    }
    if stage.gpu.requested.value:
        missing["GPUs"] = stage.gpu.share.missing
        missing["idle GPUs"] = stage.waste[-1].gpu_hours.missing
    by_reason: dict[str, list[str]] = {}
    for name, reason in missing.items():
        if reason:
            by_reason.setdefault(reason, []).append(name)
    return by_reason


def _lost(efficiency: Sequence[StageEfficiency], name: str) -> str:
    """Return `0.12 of 1.93 CPU h (6.2 %)`; empty if no work was lost."""
    whole = lost = 0.0
    unit = ""
    for stage in efficiency:
        hours: Quantity = getattr(stage, name)
        whole, unit = whole + (hours.value or 0.0), hours.unit
        for waste in stage.waste:
            if waste.kind != "idle":
                lost += getattr(waste, name).value or 0.0
    if not lost:
        return ""
    share = units.percent(lost / whole)
    return f"{_hours_text(lost)} of {_hours_text(whole)} {unit} ({share})"


def _name(stage: StageEfficiency) -> str:
    return units.stage_name(stage.stage, is_former=stage.is_former)


def _memory_text(stage: StageEfficiency) -> str:
    """Return `0.13 of 2.00 GiB (6.3 %)`; `at least 8.00 of 8.00 GiB, killed`."""
    use = stage.memory
    if use.used.value is None and use.requested.value is None:
        return _DASH
    used, requested = _text(use.used), _text(use.requested)
    if used.endswith(requested.rpartition(" ")[2]):
        used = used.rpartition(" ")[0]
    share = "" if use.share.value is None else f" ({units.percent(use.share.value)})"
    return f"{used} of {requested}{', killed' if stage.is_largest_killed else share}"


def _share_text(use: Use) -> str:
    """Return `62 % of 4`."""
    if use.share.value is None and use.requested.value is None:
        return _DASH
    share = _DASH if use.share.value is None else units.quantity(use.share)
    return f"{share} of {_text(use.requested)}"


def _text(number: Quantity) -> str:
    return _DASH if number.value is None else units.quantity(number)


def _whole_text(hours: Quantity) -> str:
    if hours.value is None:
        return _DASH
    at_least = "at least " if hours.at_least else ""
    return f"{at_least}{_hours_text(hours.value)} {hours.unit}"


def _part_text(part: Quantity, whole: Quantity) -> str:
    """Return hours and their share of the whole: `0.11 (5.8 %)`."""
    if part.value is None or not whole.value:
        return _DASH
    if part.value == 0 and not part.at_least:
        return "0"
    at_least = "at least " if part.at_least else ""
    return f"{at_least}{_hours_text(part.value)} ({units.percent(part.value / whole.value)})"


def _hours_text(hours: float) -> str:
    return "<0.01" if 0 < hours < _SHOWN_HOURS else units.significant(hours)
