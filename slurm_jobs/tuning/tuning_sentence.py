"""Result of a tuning in one sentence. PURE."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from slurm_jobs.report.comparison.speed_verdict import CONFIDENCE

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
    if short := [_shown(entry["name"]) for entry in result["not_tried"] if _is_too_short(entry)]:
        return f"trials have too few steps for {', '.join(short)}: give a larger --budget"
    return "no finding names a change that could be tried"


def _is_too_short(entry: Values) -> bool:
    if "kind" in entry:
        return bool(entry["kind"] == "too_short")
    return bool(entry["why"] == TOO_SHORT)  # earlier versions do not record the kind


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
