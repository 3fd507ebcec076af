"""Application of all rules. PURE, one function a rule.

A rule returns a finding, is clear, or abstains with a reason. Every rule contains its threshold
and the source; those marked "own choice" have no published source. Ceilings follow Amdahl's law:
the gain if that part took no time, on the rank that spends most on it, because the others wait for
that rank. They hold one at a time and are never multiplied.
"""

from __future__ import annotations

from collections.abc import Sequence

from slurm_jobs.report.attempt_model import StageAttempts
from slurm_jobs.report.efficiency_model import StageEfficiency
from slurm_jobs.report.report_model import (
    Check,
    DataNumbers,
    Finding,
    StageNumbers,
    TrainingNumbers,
)
from slurm_jobs.report.rules import (
    attempt_rules,
    data_wait,
    node_rules,
    stage_rules,
    training_rules,
)
from slurm_jobs.shared.units import TimeShare

_TRAINING_RULES = (
    training_rules.data_wait,
    node_rules.slow_storage,
    node_rules.full_network,
    data_wait.foreign_load,
    node_rules.gpu_use,
    node_rules.fluctuating_gpu,
    training_rules.straggler,
    training_rules.meetings,
    training_rules.far_from_gpu,
    node_rules.slow_node,
    training_rules.exposed_communication,
    training_rules.kernel_launches,
    training_rules.pageable_copies,
    training_rules.small_copies,
    training_rules.padding,
    training_rules.checkpoint_stall,
    training_rules.evaluation_stall,
    training_rules.repeated_steps,
    training_rules.allocator_retries,
    training_rules.accumulation,
    training_rules.small_batch,
    training_rules.needless_checkpointing,
    training_rules.around_steps,
    training_rules.unexplained_time,
)
_DATA_RULES = (
    stage_rules.left_out,
    stage_rules.rejected,
    stage_rules.no_pictures,
    stage_rules.slow_tokenising,
)
_STAGE_RULES = (
    stage_rules.array_imbalance,
    stage_rules.memory_request,
    stage_rules.time_request,
)
_EFFICIENCY_RULES = (stage_rules.memory_exceeded,)
_BEFORE_SPEED = ("no-pictures:", "left-out:", "rejected:", "foreign-load:")
"""First among equals: rows that are not learned, and load that affects all other times."""
_SEVERITY_ORDER = {"high": 0, "medium": 1, "note": 2}


def find(
    stages: Sequence[StageNumbers],
    training: Sequence[TrainingNumbers],
    timeline: Sequence[TimeShare],
    timeline_note: str,
    data: Sequence[DataNumbers] = (),
    *,
    efficiency: Sequence[StageEfficiency] = (),
    attempts: Sequence[StageAttempts] = (),
) -> tuple[tuple[Finding, ...], tuple[Check, ...]]:
    """Apply every rule; findings are sorted by strength, checks in the order of the rules."""
    answers: list[Finding | Check] = [rule(rows) for rows in data for rule in _DATA_RULES]
    answers.extend(rule(numbers) for numbers in training for rule in _TRAINING_RULES)
    is_open = any(stage.status in {"running", "waiting"} for stage in stages)
    open_note = "the run continues, and its remaining jobs may wait less" if is_open else ""
    answers.append(stage_rules.queue_dominates(timeline, timeline_note or open_note))
    names = {stage.name for stage in stages}
    judged = [each for each in efficiency if each.stage in names]
    answers.extend(rule(each) for each in judged for rule in _EFFICIENCY_RULES)
    answers.extend(rule(stage) for stage in stages for rule in _STAGE_RULES)
    lossy = [each for each in attempts if each.stage in names and each.lost.seconds > 0]
    answers.extend(attempt_rules.lost_between_attempts(each) for each in lossy)
    findings = [answer for answer in answers if isinstance(answer, Finding)]
    checks = tuple(
        answer
        if isinstance(answer, Check)
        else Check(
            rule_id=answer.rule_id,
            outcome="found",
            rule=answer.rule,
            source=answer.source,
            reason=answer.title,
        )
        for answer in answers
    )
    return tuple(sorted(findings, key=_strength)), checks


def _strength(finding: Finding) -> tuple[int, bool, float]:
    """Return the sort key, strongest first: severity, then the possible gain if known."""
    is_first = finding.rule_id.startswith(_BEFORE_SPEED)
    return _SEVERITY_ORDER[finding.severity], not is_first, -(finding.ceiling_times or 0.0)
