"""Results of a run that still count, as records and as numbers. PURE.

A resume may replace a job whose work was done: another config, or an array cut into fewer slices.
Its time stays in the budgets; its result no longer counts. Valid is the completion of the newest
intent that covers a slice (see `status.completed_slices`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slurm_jobs.formats.records.attempt_records import CompletionRecord
from slurm_jobs.report.inputs.run_inputs import ReportInputs, StageInputs
from slurm_jobs.report.values.data_model import EvaluationNumbers
from slurm_jobs.report.values.stage_model import StageNumbers
from slurm_jobs.run_folder.ledger import Intent, latest_intents

_EVALUATION_KEYS = frozenset({"evaluation", "exact_match"})

SliceResults = Mapping[int, Mapping[str, Any]]
"""Result of each slice, by slice, ascending."""


def current_completions(inputs: ReportInputs) -> Mapping[str, Mapping[int, CompletionRecord]]:
    """Return the valid completion of each slice, ascending, by stage.

    It is the last completed attempt of each slice that the stage still has, of any job if the
    ledger is unreadable.
    """
    valid: dict[str, dict[int, CompletionRecord]] = {}
    for stage in inputs.stages:
        newest = latest_intents(inputs.intents or (), stage.name)
        valid[stage.name] = {
            done.slice_index: done
            for done in stage.completions
            if done.outcome == "completed"
            and done.slice_index < stage.num_slices
            and (
                inputs.intents is None
                or (done.slice_index in newest and newest[done.slice_index].token == done.token)
            )
        }
    return valid


def current_results(inputs: ReportInputs) -> Mapping[str, SliceResults]:
    """Return the results of the valid completions by stage."""
    return {
        name: {index: done.result for index, done in slices.items()}
        for name, slices in current_completions(inputs).items()
    }


def has_newest_steps(
    stage: StageInputs, slice_index: int, intents: Sequence[Intent] | None
) -> bool:
    """Check whether the steps are of the slice's current plan, config and code.

    That holds if some were recorded under those, or if the training continued from a checkpoint
    under those: then earlier steps are its own, even if none were left to make. Without a readable
    ledger, or for an unknown slice, config and code count as current.
    """
    if slice_index >= stage.num_slices:
        return False
    newest = latest_intents(intents or (), stage.name).get(slice_index)
    if newest is None:
        return True
    current = {
        a.attempt
        for a in stage.attempts
        if a.slice_index == slice_index and a.fingerprint == newest.fingerprint
    }
    for timing in stage.timings:
        if timing.slice_index == slice_index and timing.attempt in current:
            loads = (s.get("step") for s in timing.spans if s["name"] == "checkpoint_load")
            has_steps = timing.steps is not None and len(timing.steps.steps) > 0
            if has_steps or any(map(_is_past_start, loads)):
                return True
    return any(
        _is_past_start(done.result.get("resumed_from_step"))
        for done in stage.completions
        if done.slice_index == slice_index and done.attempt in current
    )


def _is_past_start(step: object) -> bool:
    return isinstance(step, int) and step > 0


def stage_results(stage: StageInputs, results: SliceResults) -> Mapping[str, float]:
    """Return the numbers of a stage without an array, nested names joined by a dot."""
    return flat_numbers(results[0]) if 0 in results and stage.num_slices == 1 else {}


def flat_numbers(values: Mapping[str, object], prefix: str = "") -> dict[str, float]:
    """Flatten nested mappings: `{"a": {"b": 1}}` is `{"a.b": 1}`; whole numbers stay whole."""
    flat: dict[str, float] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat.update(flat_numbers(value, f"{prefix}{key}."))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            flat[f"{prefix}{key}"] = value
    return flat


def evaluation_numbers(stages: Sequence[StageNumbers]) -> tuple[EvaluationNumbers, ...]:
    """Return an entry for each stage with evaluation results, in the spec's order.

    Names lose the prefix `evaluation.` unless they then collide.
    """
    evaluations = []
    for stage in stages:
        results = {
            key: value
            for key, value in stage.results.items()
            if not _EVALUATION_KEYS.isdisjoint(key.split("."))
        }
        numbers: dict[str, float] = {}
        for key, value in results.items():
            short = key.removeprefix("evaluation.")
            numbers[short if results.get(short, value) == value else key] = value
        if numbers:
            evaluations.append(EvaluationNumbers(stage=stage.name, numbers=numbers))
    return tuple(evaluations)
