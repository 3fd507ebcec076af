"""Result of a finished course as JSON: predictions, measurements, and what was not tried. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from slurm_jobs.common.files import plain_json
from slurm_jobs.comparison.verdict import Verdict
from slurm_jobs.tuning.knobs import NOT_MEASURED
from slurm_jobs.tuning.model import Change, Trial
from slurm_jobs.tuning.pairs import MIN_REPEATS, Pairs
from slurm_jobs.tuning.standing import Course, Facts, Tried

FORMAT_NAME = "slurm-jobs-tuning-1"


def result_of(
    facts: Facts, course: Course, trials: Sequence[Trial], *, stage: str
) -> dict[str, Any]:
    """Return the content of `tuning.json`.

    Args:
        facts: facts of the tuning.
        course: final course.
        trials: all that count.
        stage: name of the training.
    """
    assert course.control is not None
    assert course.probe is not None
    first = course.control.first
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
        "data": _data(course),
        "findings": [asdict(cause) for cause in course.causes],
        "tried": [_tried(one) for one in course.tried],
        "not_tried": [asdict(one) for one in course.not_tried],
        "more_budget_min": course.more_budget_min,
        "not_measured": list(NOT_MEASURED),
        "kept": [{"key": c.key, "value": c.value, "was": _was(facts, c)} for c in _last(course)],
        "is_taken_back": _is_no_gain(course),
        "closing": None if course.closing is None else _closing(course.closing),
    }
    plain: dict[str, Any] = plain_json(values)
    return plain


def _is_no_gain(course: Course) -> bool:
    """Check whether the kept changes together are not surely faster; then nothing is changed.

    Of several knobs without effect one is kept in every fifth tuning, and two very rarely. A change
    that fails in the closing trials would fail in the training, too.
    """
    closing = course.closing
    if closing is None:
        return False
    verdict = closing.verdict
    return bool(closing.second_failure) or (verdict is not None and verdict.word != "faster")


def verdict_of_closing(pairs: Pairs) -> Verdict | None:
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


def _last(course: Course) -> list[Change]:
    """Return one change per key: the last one counts."""
    return list({change.key: change for change in course.kept}.values())


def _was(facts: Facts, change: Change) -> Any:
    value: Any = facts.train
    for name in change.key.split("."):
        value = value[name]
    return value


def _data(course: Course) -> dict[str, Any]:
    """Return the cost of data: the report's ceiling, and the control without data path."""
    assert course.control is not None
    found = next((cause for cause in course.causes if cause.rule == "data-wait"), None)
    return {
        "predicted": "" if found is None else found.ceiling,
        "predicted_times": None if found is None else found.times,
        "without": arm_values(course.control.second) if course.control.second else None,
        "failure": course.control.second_failure,
        **_verdict(course.control.verdict),
    }


def _tried(one: Tried) -> dict[str, Any]:
    change = one.proposal.change
    assert change is not None
    return {
        "name": one.proposal.name,
        "key": change.key,
        "value": change.value,
        "rule": one.proposal.cause.rule,
        "finding": one.proposal.cause.title,
        "predicted": one.proposal.cause.ceiling,
        "predicted_times": one.proposal.cause.times,
        "outcome": one.outcome,
        "why": one.why,
        "num_repeats": [len(one.pairs.first), len(one.pairs.second)],
        **_verdict(one.pairs.verdict),
    }


def _closing(pairs: Pairs) -> dict[str, Any]:
    return {
        "before": arm_values(pairs.first) if pairs.first else None,
        "after": arm_values(pairs.second) if pairs.second else None,
        "failure": pairs.second_failure,
        **_verdict(None if pairs.second_failure else verdict_of_closing(pairs)),
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
