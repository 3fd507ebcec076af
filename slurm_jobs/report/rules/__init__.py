"""Application of all rules. PURE, one function a rule.

A rule returns a finding, is clear, or abstains with a reason. Every rule contains its threshold
and the source; those marked "own choice" have no published source. Ceilings follow Amdahl's law:
the gain if that part took no time, on the rank that spends most on it, because the others wait for
that rank. They hold one at a time and are never multiplied.
"""

from __future__ import annotations

from collections.abc import Sequence

from slurm_jobs.report.report_model import (
    Check,
    DataNumbers,
    Finding,
    StageNumbers,
    TrainingNumbers,
)
from slurm_jobs.report.rules.data_wait import foreign_load
from slurm_jobs.report.rules.node_rules import (
    fluctuating_gpu,
    full_network,
    gpu_use,
    slow_node,
    slow_storage,
)
from slurm_jobs.report.rules.stage_rules import (
    array_imbalance,
    left_out,
    memory_request,
    queue_dominates,
    rejected,
    slow_tokenising,
    time_request,
)
from slurm_jobs.report.rules.training_rules import (
    accumulation,
    allocator_retries,
    around_steps,
    checkpoint_stall,
    data_wait,
    evaluation_stall,
    exposed_communication,
    far_from_gpu,
    kernel_launches,
    meetings,
    needless_checkpointing,
    padding,
    pageable_copies,
    repeated_steps,
    small_batch,
    small_copies,
    straggler,
    unexplained_time,
)
from slurm_jobs.shared.units import TimeShare

_TRAINING_RULES = (
    data_wait,
    slow_storage,
    full_network,
    foreign_load,
    gpu_use,
    fluctuating_gpu,
    straggler,
    meetings,
    far_from_gpu,
    slow_node,
    exposed_communication,
    kernel_launches,
    pageable_copies,
    small_copies,
    padding,
    checkpoint_stall,
    evaluation_stall,
    repeated_steps,
    allocator_retries,
    accumulation,
    small_batch,
    needless_checkpointing,
    around_steps,
    unexplained_time,
)
_DATA_RULES = (left_out, rejected, slow_tokenising)
_STAGE_RULES = (array_imbalance, memory_request, time_request)
_BEFORE_SPEED = ("left-out:", "rejected:", "foreign-load:")
"""First among equals: rows that are not learned, and load that affects all other times."""
_SEVERITY_ORDER = {"high": 0, "medium": 1, "note": 2}


def find(
    stages: Sequence[StageNumbers],
    training: Sequence[TrainingNumbers],
    timeline: Sequence[TimeShare],
    timeline_note: str,
    data: Sequence[DataNumbers] = (),
) -> tuple[tuple[Finding, ...], tuple[Check, ...]]:
    """Apply every rule; findings are sorted by strength, checks in the order of the rules."""
    answers: list[Finding | Check] = [rule(rows) for rows in data for rule in _DATA_RULES]
    answers.extend(rule(numbers) for numbers in training for rule in _TRAINING_RULES)
    is_open = any(stage.status in {"running", "waiting"} for stage in stages)
    open_note = "the run continues, and what is left may not wait so long" if is_open else ""
    answers.append(queue_dominates(timeline, timeline_note or open_note))
    answers.extend(rule(stage) for stage in stages for rule in _STAGE_RULES)
    findings = [answer for answer in answers if isinstance(answer, Finding)]
    checks = tuple(_as_check(answer) for answer in answers)
    return tuple(sorted(findings, key=_strength)), checks


def _strength(finding: Finding) -> tuple[int, bool, float]:
    """Return the sort key, strongest first: severity, then the possible gain if known."""
    is_first = finding.rule_id.startswith(_BEFORE_SPEED)
    return _SEVERITY_ORDER[finding.severity], not is_first, -(finding.ceiling_times or 0.0)


def _as_check(answer: Finding | Check) -> Check:
    if isinstance(answer, Check):
        return answer
    found = {"rule": answer.rule, "source": answer.source, "reason": answer.title}
    return Check(rule_id=answer.rule_id, outcome="found", **found)
