"""Rules on the rows that became samples. PURE. `findings` describes rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slurm_jobs.common.stage_config.preprocess import CHOSEN_REASONS
from slurm_jobs.report import words
from slurm_jobs.report.findings.base import abstain, ceiling, clear, rule
from slurm_jobs.report.model.run import Check, DataNumbers, Finding
from slurm_jobs.report.model.values import Quantity

_LIMIT, _HIGH = 0.05, 0.5
_MOST_OF_THE_WORK, _MIN_WORK_S = 0.5, 60.0
_KNOBS = {
    "max_tokens": "raise max_tokens, as far as the model's positions and the device's memory allow",
    "max_images": "raise max_images",
}


@rule("rows over max_tokens or max_images that are left out are 5 % of all or more (half: high)")
def left_out(data: DataNumbers) -> Finding | Check:
    """Find rows over a limit, omitted by the config: 5 % of all, high from half on."""
    by_reason = {reason: num for reason, num in data.rejects if reason in CHOSEN_REASONS}
    return _lost_rows(
        f"left-out:{data.stage}",
        data,
        data.num_too_long,
        by_reason,
        what="are left out over a limit",
        text="Nothing fails for them, because `too_long` chose so: the model learns of the rest.",
        next_knob=_next_knob(by_reason),
    )


@rule("rows that cannot be used are 5 % of all or more (half: high)")
def rejected(data: DataNumbers) -> Finding | Check:
    """Find rows rejected for other reasons than limits: 5 % of all, high from half on."""
    num_chosen = sum(num for reason, num in data.rejects if reason in CHOSEN_REASONS)
    num_rejects = data.num_rejects
    if num_rejects.value is not None:
        num_rejects = replace(num_rejects, value=num_rejects.value - num_chosen)
    return _lost_rows(
        f"rejected:{data.stage}",
        data,
        num_rejects,
        {reason: num for reason, num in data.rejects if reason not in CHOSEN_REASONS},
        what="cannot be used",
        text="Nothing fails for them, because `max_reject_share` allows it.",
        next_knob="fix the rows that the lists of rejects name, then lower max_reject_share",
    )


def _lost_rows(
    rule_id: str,
    data: DataNumbers,
    num_lost: Quantity,
    by_reason: Mapping[str, int],
    *,
    what: str,
    text: str,
    next_knob: str,
) -> Finding | Check:
    num_rows = data.num_rows
    if not num_rows.value or num_lost.value is None:
        return abstain(rule_id, num_rows.missing or num_lost.missing or "there are no rows")
    share = num_lost.value / num_rows.value
    title = f"{words.percent(share)} of the rows {what}"
    if share < _LIMIT:
        return clear(rule_id, title)
    reasons = ", ".join(f"{reason} {num:,}" for reason, num in by_reason.items())
    return Finding(
        rule_id=rule_id,
        severity="high" if share >= _HIGH else "medium",
        title=f"{title} ({data.stage})",
        text=text,
        evidence=(
            f"{words.quantity(num_lost)} of {words.quantity(num_rows)} rows"
            + (f": {reasons}" if reasons else ""),
        ),
        next_knob=next_knob,
        ceiling="no gain in speed: more to learn from",
    )


def _next_knob(by_reason: Mapping[str, int]) -> str:
    """Return the limits to change: all if the records give no reason."""
    limits = dict.fromkeys(CHOSEN_REASONS[reason] for reason in by_reason or CHOSEN_REASONS)
    knobs = [_KNOBS[limit] for limit in limits]
    if "too_long" in by_reason:
        knobs.append("too_long: truncate_text keeps such samples and cuts their text")
    if "images_too_long" in by_reason:
        knobs.append("a processor with fewer tokens an image keeps those whose images are too many")
    return "; ".join(knobs) + "; the lists of rejects say how long each is"


@rule("tokenising takes half of the work of preprocessing or more, of a minute or more")
def slow_tokenising(data: DataNumbers) -> Finding | Check:
    """Find tokenising that takes half of the preprocessing time, or more."""
    rule_id = f"tokenising:{data.stage}"
    whole_s = sum(data.work_s.values())
    if not whole_s:
        return abstain(rule_id, "the work of preprocessing is not timed apart")
    share = data.work_s.get("tokenise", 0.0) / whole_s
    if share < _MOST_OF_THE_WORK or whole_s < _MIN_WORK_S:
        return clear(rule_id, f"{words.percent(share)} of {words.seconds(whole_s)} of work")
    return Finding(
        rule_id=rule_id,
        severity="medium",
        title=f"tokenising is the slow part of preprocessing ({data.stage})",
        text="Images are processed faster than the texts.",
        evidence=(
            ", ".join(f"{name} {words.seconds(s)}" for name, s in data.work_s.items() if s >= 0.05),
        ),
        next_knob="a fast tokenizer (tokenizer.json next to the processor); "
        "then more slices, which work side by side",
        ceiling=ceiling(share, "no tokenising, in the time of the slices"),
    )
