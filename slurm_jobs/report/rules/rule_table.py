"""Table of all rules, and their application. PURE.

A rule returns a finding, is clear, or abstains with a reason. Every rule contains its threshold
and the source; those marked "own choice" have no published source. Ceilings follow Amdahl's law:
the gain if that part took no time, on the rank that spends most on it, because the others wait for
that rank. They hold one at a time and are never multiplied.
"""

from __future__ import annotations

from collections.abc import Sequence

from slurm_jobs.base.quantities import TimeShare
from slurm_jobs.report.rules.loading.data_wait import data_wait
from slurm_jobs.report.rules.loading.foreign_load import foreign_load
from slurm_jobs.report.rules.loading.storage_and_network import full_network, slow_storage
from slurm_jobs.report.rules.stages.array_imbalance import array_imbalance
from slurm_jobs.report.rules.stages.no_pictures import no_pictures
from slurm_jobs.report.rules.stages.queue_wait import queue_dominates
from slurm_jobs.report.rules.stages.rows_left_out import left_out, rejected
from slurm_jobs.report.rules.stages.slurm_requests import (
    memory_exceeded,
    memory_request,
    time_request,
)
from slurm_jobs.report.rules.stages.time_lost_to_ends import lost_between_attempts
from slurm_jobs.report.rules.stages.tokenising import slow_tokenising
from slurm_jobs.report.rules.training.around_the_steps import around_steps, unexplained_time
from slurm_jobs.report.rules.training.checkpoint_and_evaluation import (
    checkpoint_stall,
    evaluation_stall,
)
from slurm_jobs.report.rules.training.exposed_communication import exposed_communication
from slurm_jobs.report.rules.training.far_from_gpu import far_from_gpu
from slurm_jobs.report.rules.training.gpu_use import fluctuating_gpu, gpu_use
from slurm_jobs.report.rules.training.meetings import meetings
from slurm_jobs.report.rules.training.memory_pressure import allocator_retries
from slurm_jobs.report.rules.training.padding import padding
from slurm_jobs.report.rules.training.profiled_device import (
    kernel_launches,
    pageable_copies,
    small_copies,
)
from slurm_jobs.report.rules.training.repeated_steps import repeated_steps
from slurm_jobs.report.rules.training.slow_node import slow_node
from slurm_jobs.report.rules.training.straggler import straggler
from slurm_jobs.report.rules.training.unused_memory import (
    accumulation,
    needless_checkpointing,
    small_batch,
)
from slurm_jobs.report.values.attempt_model import StageAttempts
from slurm_jobs.report.values.data_model import DataNumbers
from slurm_jobs.report.values.efficiency_model import StageEfficiency
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome
from slurm_jobs.report.values.stage_model import StageNumbers
from slurm_jobs.report.values.training_model import TrainingNumbers

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
_DATA_RULES = (
    left_out,
    rejected,
    no_pictures,
    slow_tokenising,
)
_STAGE_RULES = (
    array_imbalance,
    memory_request,
    time_request,
)
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
) -> tuple[tuple[Finding, ...], tuple[RuleOutcome, ...]]:
    """Apply every rule; findings are sorted by strength, checks in the order of the rules."""
    answers: list[Finding | RuleOutcome] = []
    for rows in data:
        answers += [rule(rows) for rule in _DATA_RULES]
    for numbers in training:
        answers += [rule(numbers) for rule in _TRAINING_RULES]
    is_open = any(stage.status in {"running", "waiting"} for stage in stages)
    open_note = "the run continues, and its remaining jobs may wait less" if is_open else ""
    answers.append(queue_dominates(timeline, timeline_note or open_note))
    names = {stage.name for stage in stages}
    answers += [memory_exceeded(each) for each in efficiency if each.stage in names]
    for stage in stages:
        answers += [rule(stage) for rule in _STAGE_RULES]
    lossy = [each for each in attempts if each.stage in names and each.lost.seconds > 0]
    answers += [lost_between_attempts(each) for each in lossy]
    findings: list[Finding] = []
    checks: list[RuleOutcome] = []
    for answer in answers:
        if isinstance(answer, RuleOutcome):
            checks.append(answer)
            continue
        findings.append(answer)
        found = RuleOutcome(
            rule_id=answer.rule_id,
            outcome="found",
            rule=answer.rule,
            source=answer.source,
            reason=answer.title,
        )
        checks.append(found)
    return tuple(sorted(findings, key=_strength)), tuple(checks)


def _strength(finding: Finding) -> tuple[int, bool, float]:
    """Return the sort key, strongest first: severity, then the possible gain if known."""
    is_first = finding.rule_id.startswith(_BEFORE_SPEED)
    return _SEVERITY_ORDER[finding.severity], not is_first, -(finding.ceiling_times or 0.0)
