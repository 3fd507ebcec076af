"""Valid results of the stages. PURE.

A resume may replace a job whose work was done: another config, or an array cut into fewer slices.
Its time stays in the budgets; its result no longer counts. Valid is the completion of the newest
intent that covers a slice (see `slice_status.completed_slices`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slurm_jobs.report.inputs.records import ReportInputs, StageInputs
from slurm_jobs.report.model.run import EvaluationNumbers, StageNumbers
from slurm_jobs.run.intents import Intent, latest_intents

_EVALUATION_KEYS = frozenset({"evaluation", "exact_match"})

SliceResults = Mapping[int, Mapping[str, Any]]
"""Result of each slice, by slice, ascending."""


def current_results(inputs: ReportInputs) -> Mapping[str, SliceResults]:
    """Return the valid results by stage; those of all jobs if the ledger is unreadable."""
    return {stage.name: _slice_results(stage, inputs.intents) for stage in inputs.stages}


def _slice_results(stage: StageInputs, intents: Sequence[Intent] | None) -> SliceResults:
    """Return the result of the last completed attempt of each slice that the stage still has."""
    newest = latest_intents(intents or (), stage.name)
    found: dict[int, Mapping[str, Any]] = {}
    for done in stage.completions:
        index = done.slice_index
        is_own = intents is None or (index in newest and newest[index].token == done.token)
        if done.outcome == "completed" and index < stage.num_slices and is_own:
            found[index] = done.result
    return found


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
    own = {
        a.attempt
        for a in stage.attempts
        if a.slice_index == slice_index and a.fingerprint == newest.fingerprint
    }
    return not own.isdisjoint(_with_steps(stage, slice_index))


def _with_steps(stage: StageInputs, slice_index: int) -> set[int]:
    """Return the attempts with steps, or that continued from a checkpoint with some."""
    timings = [t for t in stage.timings if t.slice_index == slice_index]
    found = {t.attempt for t in timings if t.steps is not None and len(t.steps.steps)}
    found |= {
        t.attempt
        for t in timings
        for span in t.spans
        if span["name"] == "checkpoint_load" and _is_past_start(span.get("step"))
    }
    return found | {
        done.attempt
        for done in stage.completions
        if done.slice_index == slice_index and _is_past_start(done.result.get("resumed_from_step"))
    }


def _is_past_start(step: object) -> bool:
    return isinstance(step, int) and step > 0


def stage_results(stage: StageInputs, results: SliceResults) -> Mapping[str, float]:
    """Return the numbers of a stage without an array, nested names joined by a dot."""
    return flat_numbers(results[0]) if 0 in results and stage.num_slices == 1 else {}


def flat_numbers(values: Mapping[str, object], prefix: str = "") -> dict[str, float]:
    """Flatten nested mappings: `{"a": {"b": 1}}` is `{"a.b": 1}`; whole numbers stay whole."""
    found: dict[str, float] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found.update(flat_numbers(value, f"{prefix}{key}."))
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[f"{prefix}{key}"] = value
    return found


def evaluation_numbers(stages: Sequence[StageNumbers]) -> tuple[EvaluationNumbers, ...]:
    """Return an entry for each stage with evaluation results, in the spec's order."""
    found = [EvaluationNumbers(stage=s.name, numbers=_evaluation(s.results)) for s in stages]
    return tuple(evaluation for evaluation in found if evaluation.numbers)


def _evaluation(results: Mapping[str, float]) -> Mapping[str, float]:
    """Return the evaluation numbers, without the prefix `evaluation.` unless names then collide."""
    own = {k: v for k, v in results.items() if not _EVALUATION_KEYS.isdisjoint(k.split("."))}
    found: dict[str, float] = {}
    for key, value in own.items():
        short = key.removeprefix("evaluation.")
        found[short if own.get(short, value) == value else key] = value
    return found
