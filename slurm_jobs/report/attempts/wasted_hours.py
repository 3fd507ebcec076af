"""Hours of a stage that were wasted: failed, repeated or idle. PURE.

The time of a start is divided among its attempts, and of each second it is judged once whether it
was lost. What is left counts as idle as far as its cores or GPUs were not used.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from slurm_jobs.base import units
from slurm_jobs.base.quantities import Quantity, known, missing
from slurm_jobs.formats.records.attempt_records import CompletionRecord
from slurm_jobs.report.attempts.gathered_attempts import AttemptFacts
from slurm_jobs.report.attempts.lost_time import LostTime
from slurm_jobs.report.attempts.starts import Start, ended_after_s, starts_of
from slurm_jobs.report.inputs.run_inputs import StageInputs
from slurm_jobs.report.values.efficiency_model import Waste, WasteKind
from slurm_jobs.report.values.stage_model import StageNumbers

_LOST: tuple[WasteKind, ...] = ("failed", "repeated")


@dataclass(frozen=True, kw_only=True, slots=True)
class _JudgedStart:
    """A start, its length, and the shares of it that were lost, by kind."""

    start: Start
    elapsed_s: float
    lost: Mapping[WasteKind, float]


def wasted_hours(
    stage: StageInputs,
    numbers: StageNumbers,
    facts: Sequence[AttemptFacts],
    valid: Mapping[int, CompletionRecord],
) -> tuple[Waste, ...]:
    """Return the failed, repeated and idle hours of a stage.

    Args:
        stage: stage with its timings.
        numbers: numbers of the stage.
        facts: its attempts.
        valid: completions whose results count, by slice.
    """
    judged = _judged_starts(facts, LostTime(stage, facts, valid))
    num_open = sum(fact.bar.outcome == "unknown" for fact in facts)
    reason = f"it is not known how {units.number_of('attempt', num_open)} ended" if num_open else ""

    def lost_hours(whole: Quantity, count: str, kind: WasteKind) -> Quantity:
        seconds = (
            (getattr(each.start.row, count) or 0) * each.elapsed_s * each.lost[kind]
            for each in judged
        )
        return _part(whole, sum(seconds) / 3600, reason)

    lost = tuple(
        Waste(
            kind=kind,
            cpu_hours=lost_hours(numbers.cpu_hours, "num_cpus", kind),
            gpu_hours=lost_hours(numbers.gpu_hours, "num_gpus", kind),
        )
        for kind in _LOST
    )
    idle = Waste(
        kind="idle",
        cpu_hours=_idle_cpu_hours(numbers, judged),
        gpu_hours=_idle_gpu_hours(numbers, lost),
    )
    return (*lost, idle)


def _part(whole: Quantity, hours: float, reason: str) -> Quantity:
    """Return a part of a stage's hours: unknown if they are, a lower bound if they are one."""
    if whole.value is None:
        return whole
    return known(hours, whole.unit, whole.at_least or reason)


def _idle_cpu_hours(numbers: StageNumbers, judged: Sequence[_JudgedStart]) -> Quantity:
    if numbers.cpu_efficiency.value is None:
        return missing("CPU h", numbers.cpu_efficiency.missing)
    idle_s, num_unknown = 0.0, 0
    for each in judged:
        row = each.start.row
        if row.cpu_time_s is None or row.num_cpus is None or ended_after_s(row) is None:
            num_unknown += 1
            continue
        unused_s = max(0.0, row.num_cpus * each.elapsed_s - row.cpu_time_s)
        idle_s += unused_s * (1 - sum(each.lost.values()))
    starts = units.number_of("start", num_unknown)
    reason = f"the processor time of {starts} is not known" if num_unknown else ""
    return _part(numbers.cpu_hours, idle_s / 3600, reason)


def _idle_gpu_hours(numbers: StageNumbers, lost: Sequence[Waste]) -> Quantity:
    if not numbers.gpu_hours.value:
        return numbers.gpu_hours
    if numbers.gpu_busy.value is None:
        return missing("GPU h", numbers.gpu_busy.missing)
    lost_hours = sum(waste.gpu_hours.value or 0.0 for waste in lost)
    kept_hours = max(0.0, numbers.gpu_hours.value - lost_hours)
    return _part(numbers.gpu_hours, kept_hours * (1 - numbers.gpu_busy.value), "")


def _judged_starts(facts: Sequence[AttemptFacts], lost: LostTime) -> list[_JudgedStart]:
    attempts: dict[Hashable, list[AttemptFacts]] = defaultdict(list)  # by start
    for fact in facts:
        start_key = id(fact) if fact.record is None else (fact.job, fact.record.restart)
        attempts[start_key].append(fact)
    starts = {id(start.row): start for start in starts_of(facts)}
    judged = []
    for members in attempts.values():
        rows = [fact.accounting for fact in members if fact.accounting is not None]
        start = starts[id(rows[0])] if rows else None
        if start is None or start.elapsed_s is None:
            continue
        whole_s = sum(fact.bar.end_unix_s - fact.bar.start_unix_s for fact in members)
        lost_s: dict[WasteKind, float] = {
            "failed": sum(map(lost.failed_s, members)),
            "repeated": sum(map(lost.repeated_s, members)),
        }
        shares = {kind: s / whole_s if whole_s > 0 else 0.0 for kind, s in lost_s.items()}
        judged.append(_JudgedStart(start=start, elapsed_s=start.elapsed_s, lost=shares))
    return judged
