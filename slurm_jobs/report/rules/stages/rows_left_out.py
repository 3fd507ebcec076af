"""Rules on rows that did not become samples: over a limit, or unusable. PURE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slurm_jobs.base import units
from slurm_jobs.base.quantities import Quantity
from slurm_jobs.formats.configs.stages import CHOSEN_REASONS, NOT_BROKEN
from slurm_jobs.report.rules.base import abstain, clear, rule
from slurm_jobs.report.values.data_model import DataNumbers
from slurm_jobs.report.values.finding_model import Finding, RuleOutcome

_LIMIT, _HIGH = 0.05, 0.5
_KNOBS = {
    "max_tokens": "Raise max_tokens, as far as the model's positions and the device's memory "
    "allow.",
    "max_images": "Raise max_images.",
}


@rule(
    "left-out",
    "5 % of the rows or more are left out over max_tokens or max_images (half: high)",
)
def left_out(data: DataNumbers) -> Finding | RuleOutcome:
    """Find rows over a limit that the config leaves out: 5 % of all, high from half on."""
    by_reason = {reason: num for reason, num in data.rejects if reason in CHOSEN_REASONS}
    # All limits if the records give no reason.
    limits = dict.fromkeys(CHOSEN_REASONS[reason] for reason in by_reason or CHOSEN_REASONS)
    knobs = [_KNOBS[limit] for limit in limits]
    if "too_long" in by_reason:
        knobs.append("`too_long: truncate_text` keeps such samples and cuts their text.")
    if "images_too_long" in by_reason:
        knobs.append(
            "A processor with fewer tokens per image keeps rows with too many image tokens."
        )
    return _lost_rows(
        data,
        data.num_too_long,
        by_reason,
        what="are over a limit and left out",
        text="`too_long` leaves them out without an error; the model learns from the rest only.",
        next_knob=" ".join([*knobs, "The lists of rejects have the length of each row."]),
    )


@rule("rejected", "5 % of the rows or more cannot be used (half: high)")
def rejected(data: DataNumbers) -> Finding | RuleOutcome:
    """Find rows that no setting asked to leave out: 5 % of all, high from half on."""
    num_chosen = sum(num for reason, num in data.rejects if reason in NOT_BROKEN)
    num_rejects = data.num_rejects
    if num_rejects.value is not None:
        num_rejects = replace(num_rejects, value=num_rejects.value - num_chosen)
    return _lost_rows(
        data,
        num_rejects,
        {reason: num for reason, num in data.rejects if reason not in NOT_BROKEN},
        what="cannot be used",
        text="`max_reject_share` allows this, so the stage does not fail.",
        next_knob="Fix the rows that the lists of rejects name, then lower max_reject_share.",
    )


def _lost_rows(
    data: DataNumbers,
    num_lost: Quantity,
    by_reason: Mapping[str, int],
    *,
    what: str,
    text: str,
    next_knob: str,
) -> Finding | RuleOutcome:
    num_rows = data.num_rows
    if not num_rows.value or num_lost.value is None:
        return abstain(num_rows.missing or num_lost.missing or "there are no rows")
    share = num_lost.value / num_rows.value
    title = f"{units.percent(share)} of the rows {what}"
    if share < _LIMIT:
        return clear(title)
    reasons = ", ".join(f"{reason} {num:,}" for reason, num in by_reason.items())
    rows = f"{units.quantity(num_lost)} of {units.quantity(num_rows)} rows"
    return Finding(
        severity="high" if share >= _HIGH else "medium",
        title=title,
        text=text,
        evidence=(f"{rows}: {reasons}" if reasons else rows,),
        next_knob=next_knob,
        ceiling="no gain in speed, but more training data",
    )
