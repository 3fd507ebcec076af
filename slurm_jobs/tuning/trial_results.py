"""Results of one trial from its step records: its speed, and the findings of the report's rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_jobs.base.errors import StageError
from slurm_jobs.formats.configs.stages import WARMUP_STEPS
from slurm_jobs.report.comparison.plain_steps import speed_of
from slurm_jobs.report.inputs.run_inputs import StageInputs
from slurm_jobs.report.inputs.timing_records import read_profiles, read_readings, read_timings
from slurm_jobs.report.numbers.trainings.training_numbers import TRAIN_RUN, training_numbers
from slurm_jobs.report.rules.rule_table import find
from slurm_jobs.report.steps.attempt_steps import split_attempts
from slurm_jobs.tuning.knobs import by_strength
from slurm_jobs.tuning.trial_model import TrialFinding

_NO_REMEDY = ("queue-wait", "around-the-steps")
"""Rules on the time around a whole run, which do not apply to a trial."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """Measurements of a trial."""

    tokens_per_s: float
    samples_per_s: float
    step_s: float
    data_wait_share: float
    memory_peak_bytes: float
    stage_in_s: float
    """Staging time of rank 0, before the first step."""
    causes: tuple[TrialFinding, ...]
    """Strongest first."""


def read_trial(folder: Path, stage: str, train: Mapping[str, Any]) -> Reading:
    """Read the trial's records with the report's readers, and apply its rules.

    Args:
        folder: holds the trial's timing folder as a stage's holds that of an attempt.
        stage: name of the training.
        train: config of the trial.

    Raises:
        StageError: it recorded no step that counts.
    """
    problems: list[str] = []
    inputs = StageInputs(
        name=stage,
        run=TRAIN_RUN,
        after={},
        num_slices=1,
        resources={},
        attempts=(),
        completions=(),
        timings=read_timings(folder, problems, whole=False),
        readings=read_readings(folder, problems),
        profiles=read_profiles(folder, problems),
        config=train,
    )
    attempts = split_attempts(inputs.timings, WARMUP_STEPS, {})
    speed = speed_of(attempts)
    if speed is None:
        message = f"no step of all ranks is left after the warm-up; {'; '.join(problems)}"
        raise StageError(message.removesuffix("; "))
    numbers = training_numbers(inputs, (), WARMUP_STEPS)
    findings, _ = find((), numbers, (), "")
    causes = []
    for finding in findings:
        rule = finding.rule_id.partition(":")[0]
        if rule not in _NO_REMEDY:
            cause = TrialFinding(
                rule=rule,
                title=finding.title.removesuffix(f" ({stage})"),
                ceiling=finding.ceiling,
                times=finding.ceiling_times,
                kind=finding.cause,
            )
            causes.append(cause)
    memory = numbers[0].memory_peak_bytes.value
    return Reading(
        tokens_per_s=speed.tokens_per_s,
        samples_per_s=speed.samples_per_s,
        step_s=speed.step_s,
        data_wait_share=numbers[0].phase("data_wait").share,
        memory_peak_bytes=memory or 0.0,
        stage_in_s=sum(
            float(span["duration_s"])
            for timing in inputs.timings[:1]
            for span in timing.spans
            if span["name"] == "stage_in"
        ),
        causes=tuple(by_strength(causes)),
    )
