"""Result of a finished tuning as JSON: predictions, measurements, and what was not tried. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from slurm_jobs.base.files import plain_json
from slurm_jobs.report.comparison.speed_verdict import Verdict
from slurm_jobs.tuning.knobs import NOT_MEASURED
from slurm_jobs.tuning.pairs import MIN_REPEATS, TrialPairs
from slurm_jobs.tuning.trial_model import Trial
from slurm_jobs.tuning.tuning_progress import Facts, Tried, TuningProgress

FORMAT_NAME = "slurm-jobs-tuning-1"


def result_of(
    facts: Facts, tuning: TuningProgress, trials: Sequence[Trial], *, stage: str
) -> dict[str, Any]:
    """Return the content of `tuning.json`.

    Args:
        facts: facts of the tuning.
        tuning: final progress.
        trials: all that count.
        stage: name of the training.
    """
    assert tuning.control is not None
    assert tuning.probe is not None
    first = tuning.control.first
    last_by_key = {change.key: change for change in tuning.kept}
    kept = []
    for key, change in last_by_key.items():
        before: Any = facts.train
        for name in key.split("."):
            before = before[name]
        kept.append({"key": key, "value": change.value, "was": before})
    data_wait = next((cause for cause in tuning.causes if cause.rule == "data-wait"), None)
    closing = None
    if tuning.closing is not None:
        pairs = tuning.closing
        closing = {
            "before": arm_values(pairs.first) if pairs.first else None,
            "after": arm_values(pairs.second) if pairs.second else None,
            "failure": pairs.second_failure,
            **_verdict(None if pairs.second_failure else verdict_of_closing(pairs)),
        }
    values: dict[str, Any] = {
        "format": FORMAT_NAME,
        "stage": stage,
        "device": facts.hardware.device,
        "num_ranks": facts.hardware.num_ranks,
        "unit": "tokens/s" if first[0].tokens_per_s else "samples/s",
        "budget_s": facts.budget_s,
        "spent_s": sum(trial.wall_s for trial in trials),
        "num_trials": len(trials),
        "num_steps": first[0].num_steps,
        "baseline": arm_values(first),
        "data": {
            "predicted": "" if data_wait is None else data_wait.ceiling,
            "predicted_times": None if data_wait is None else data_wait.times,
            "without": arm_values(tuning.control.second) if tuning.control.second else None,
            "failure": tuning.control.second_failure,
            **_verdict(tuning.control.verdict),
        },
        "findings": [asdict(cause) for cause in tuning.causes],
        "tried": [_result_tried(entry) for entry in tuning.tried],
        "not_tried": [asdict(entry) for entry in tuning.not_tried],
        "more_budget_min": tuning.more_budget_min,
        "not_measured": list(NOT_MEASURED),
        "kept": kept,
        "is_taken_back": _is_no_gain(tuning),
        "closing": closing,
    }
    plain: dict[str, Any] = plain_json(values)
    return plain


def _is_no_gain(tuning: TuningProgress) -> bool:
    """Check whether the kept changes together are not surely faster; then nothing is changed.

    Of several knobs without effect one is kept in every fifth tuning, and two very rarely. A change
    that fails in the closing trials would fail in the training, too.
    """
    closing = tuning.closing
    if closing is None:
        return False
    verdict = closing.verdict
    return bool(closing.second_failure) or (verdict is not None and verdict.word != "faster")


def verdict_of_closing(pairs: TrialPairs) -> Verdict | None:
    """Return the verdict on before and after; None if it is positive, but on too few repeats.

    A negative verdict is reported with fewer repeats, too.
    """
    verdict = pairs.verdict
    is_whole = min(len(pairs.first), len(pairs.second)) >= MIN_REPEATS
    return None if verdict is not None and verdict.word == "faster" and not is_whole else verdict


def arm_values(trials: Sequence[Trial]) -> dict[str, float]:
    """Return means over the trials of an arm, and the maximum of memory."""

    def mean(name: str) -> float:
        return sum(float(getattr(trial, name)) for trial in trials) / len(trials)

    names = ("tokens_per_s", "samples_per_s", "step_s", "data_wait_share")
    most = max(trial.memory_peak_bytes for trial in trials)
    return {"num_repeats": len(trials), "memory_peak_bytes": most, **{n: mean(n) for n in names}}


def _result_tried(entry: Tried) -> dict[str, Any]:
    change = entry.proposal.change
    assert change is not None
    return {
        "name": entry.proposal.name,
        "key": change.key,
        "value": change.value,
        "rule": entry.proposal.cause.rule,
        "finding": entry.proposal.cause.title,
        "predicted": entry.proposal.cause.ceiling,
        "predicted_times": entry.proposal.cause.times,
        "outcome": entry.outcome,
        "why": entry.why,
        "num_repeats": [len(entry.pairs.first), len(entry.pairs.second)],
        **_verdict(entry.pairs.verdict),
    }


def _verdict(verdict: Verdict | None) -> dict[str, Any]:
    """Return the ratio of the second arm to the first."""
    if verdict is None:
        return {"word": None, "ratio": None, "low": None, "high": None}
    return {
        "word": verdict.word,
        "ratio": verdict.ratio,
        "low": verdict.low,
        "high": verdict.high,
    }
