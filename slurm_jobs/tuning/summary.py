"""Result of a tuning, in words and in the terminal. PURE."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from slurm_jobs.report.compare import Verdict
from slurm_jobs.shared.files import plain_json
from slurm_jobs.shared.statistics import CONFIDENCE
from slurm_jobs.tuning.knobs import (
    MIN_REPEATS,
    NOT_MEASURED,
    Change,
    Facts,
    Pairs,
    Trial,
    Tried,
    TuningProgress,
)

# Result of a finished tuning as JSON: predictions, measurements, and what was not tried.


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
    data_wait = next((cause for cause in tuning.causes if cause.rule == "data-wait"), None)
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
        "kept": [{"key": c.key, "value": c.value, "was": _was(facts, c)} for c in _last(tuning)],
        "is_taken_back": _is_no_gain(tuning),
        "closing": None if tuning.closing is None else _closing(tuning.closing),
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


def _last(tuning: TuningProgress) -> list[Change]:
    """Return one change per key: the last one counts."""
    return list({change.key: change for change in tuning.kept}.values())


def _was(facts: Facts, change: Change) -> Any:
    value: Any = facts.train
    for name in change.key.split("."):
        value = value[name]
    return value


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


# Result of a tuning in one sentence.


Values = Mapping[str, Any]
TOO_SHORT = "trials have too few steps for it: give a larger --budget"
"""Reason why a change was not tried that needs longer trials than the budget allows."""
LOADING_TAKES_CORES = (
    "Steps hardly wait for data, and are faster without it all the same: what loads it takes cores "
    "from what computes. More cores a task (cpus_per_task) would help; no setting of the loader "
    "does."
)
"""Explanation if the control and the report seem to contradict each other."""
_INTERVAL = f"{CONFIDENCE:.0%} interval".replace("%", " %")


def headline(result: Values) -> str:
    """Return the headline; only the comparison of before and after may state a speed.

    Args:
        result: content of `tuning.json`.
    """
    closing, kept = result["closing"], result["kept"]
    if not kept:
        return f"Nothing is kept: {_none(result)}."
    names = ", ".join(f"{entry['key']}: {value_text(entry['value'])}" for entry in kept)
    if closing is not None and closing.get("failure"):  # earlier versions do not record it
        return (
            f"Nothing is changed: with {names} the training failed when before and after were "
            f"measured: {closing['failure']}."
        )
    if closing is None or closing["word"] is None:
        return (
            f"Kept: {names}; whether all of it together is faster is not known: no budget was left "
            "to measure before and after side by side."
        )
    if closing["word"] == "faster":
        return f"{came(closing)} as fast with {names}."
    sentences = {
        "equal": "before and after are equally fast",
        "slower": "after is slower than before",
    }.get(closing["word"], "whether after is faster than before, their trials cannot tell")
    return f"Nothing is changed, no gain is sure with {names}: {sentences}: {came(closing)}."


def disturbed(result: Values) -> str:
    """Return a note that other jobs used the cores during the baseline; empty if they did not."""
    findings = [
        finding for finding in result.get("findings", ()) if finding["rule"] == "foreign-load"
    ]
    if not findings:
        return ""
    return (
        f"{findings[0]['title']}: what follows has that in it, intervals are wider for it, and "
        "budgets that are advised longer. Tune again when no other jobs run there."
    )


def is_unseen_price(data: Values) -> bool:
    """Check whether data costs time although no step waits for it.

    Args:
        data: `data` in `tuning.json`.
    """
    return data["predicted_times"] is None and data["word"] == "faster"


def _none(result: Values) -> str:
    num_tried = len(result["tried"])
    if not num_tried:
        return why_nothing_tried(result)
    if num_tried == 1:
        return "the one change that was tried is not surely faster"
    return f"none of the {num_tried} changes that were tried is surely faster"


def why_nothing_tried(result: Values) -> str:
    """Return why nothing was tried: too small a budget for the findings, or no findings."""
    if names := [
        _shown(entry["name"]) for entry in result["not_tried"] if entry.get("needs_s") is not None
    ]:
        return f"the budget left no room for {', '.join(names)}"
    if short := [
        _shown(entry["name"]) for entry in result["not_tried"] if entry["why"] == TOO_SHORT
    ]:
        return f"trials have too few steps for {', '.join(short)}: give a larger --budget"
    return "no finding names a change that could be tried"


def _shown(name: str) -> str:
    """Return a change as a spec writes it."""
    key, _, value = name.partition(": ")
    return f"{key}: {value_text(json.loads(value))}"


def came(values: Values) -> str:
    """Return `1.32 times (95 % interval 1.25 to 1.40)`."""
    return f"{values['ratio']:.3g} times ({_INTERVAL} {values['low']:.3g} to {values['high']:.3g})"


def value_text(value: Any) -> str:
    """Format a value as a spec writes it."""
    return json.dumps(value) if not isinstance(value, str) else value
