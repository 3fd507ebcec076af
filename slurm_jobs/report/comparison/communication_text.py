"""Communication in the profiled steps of two arms, and the measured speeds.

Communication concurrent with computation costs nothing, which is the purpose of prefetching. The
profiles show whether it is hidden, the speeds whether that was a gain. Both are shown, because
one often holds without the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from slurm_jobs.base import units
from slurm_jobs.report.comparison.comparison_model import Comparison
from slurm_jobs.report.comparison.speed_verdict import mean_value
from slurm_jobs.report.values.training_model import ExposedCommunication

_DIFFERS = 0.02
"""Share of the profiled steps; smaller differences are ignored. Own choice."""


def communication_lines(comparison: Comparison) -> list[str]:
    """Return a line per arm, and the conclusion; none if no step of either was profiled."""
    first = [run.exposed for run in comparison.first if run.exposed is not None]
    second = [run.exposed for run in comparison.second if run.exposed is not None]
    if not first and not second:
        return []
    lines = []
    for name, profiles in (("A", first), ("B", second)):
        text = "no steps were profiled (`profile: {steps: [20, 40]}`)"
        if profiles:
            whole = mean_value([profile.communication_share for profile in profiles])
            num_steps = units.number_of("step", sum(profile.num_steps for profile in profiles))
            exposed = units.percent(_mean_exposed(profiles))
            text = f"{units.percent(whole)} of {num_steps}, {exposed} exposed"
        lines.append(f"{name}: {text}")
    return [*lines, *_prediction(comparison, first, second)]


def _prediction(
    comparison: Comparison,
    first: Sequence[ExposedCommunication],
    second: Sequence[ExposedCommunication],
) -> list[str]:
    """Return what the profiles predict for B, and what the speeds show."""
    verdict = comparison.tokens
    if not first or not second or verdict is None:
        return []
    runs = (*comparison.first, *comparison.second)
    batches = [run.samples_per_step for run in runs]
    kinds = {(run.num_ranks, run.cards) for run in runs}
    if len(kinds) > 1 or max(batches) > (1 + _DIFFERS) * min(batches):
        return []  # what a step communicates and computes is not the same
    before, after = _mean_exposed(first), _mean_exposed(second)
    if abs(before - after) < _DIFFERS or max(before, after) >= 1:
        return []
    predicted = (1 - after) / (1 - before)
    has_less = after < before
    text = (
        f"{'less' if has_less else 'more'} time is exposed communication in B: by that alone B / A "
        f"would be {predicted:.2f}, and it is {verdict.ratio:.2f}"
    )
    if has_less and not verdict.low > 1:
        is_hidden = _share_hidden(second) > _share_hidden(first) + _DIFFERS
        reason = "More communication is hidden" if is_hidden else "There is less communication"
        text += (
            f". {reason}, yet B is not surely faster: "
            "computation may have become slower, or the profile, which slows steps down, shows "
            "more exposed communication than other steps have"
        )
    return [text]


def _mean_exposed(profiles: Sequence[ExposedCommunication]) -> float:
    return mean_value([profile.share for profile in profiles])


def _share_hidden(profiles: Sequence[ExposedCommunication]) -> float:
    whole = sum(profile.communication_share for profile in profiles)
    return 1 - sum(profile.share for profile in profiles) / whole if whole > 0 else 0.0
