"""Communication in the profiled steps of two arms, and the measured speeds. PURE.

Communication concurrent with computation costs nothing, which is the purpose of prefetching. The
profiles show whether it is hidden, the speeds whether that was a gain. Both are shown, because one
often holds without the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from slurm_jobs.comparison.model import Comparison, RunMeasure
from slurm_jobs.report import words
from slurm_jobs.report.model.training import ExposedCommunication

_DIFFERS = 0.02
"""Share of the profiled steps; smaller differences are ignored. Own choice."""


def communication_lines(comparison: Comparison) -> list[str]:
    """Return a line per arm, and the conclusion; none if no step of either was profiled."""
    arms = (("A", comparison.first), ("B", comparison.second))
    if not any(run.exposed for _, runs in arms for run in runs):
        return []
    return [*(f"{name}: {_of_arm(runs)}" for name, runs in arms), *_reading(comparison)]


def _of_arm(runs: Sequence[RunMeasure]) -> str:
    found = [run.exposed for run in runs if run.exposed is not None]
    if not found:
        return "no steps were profiled (`profile: {steps: [20, 40]}`)"
    whole = sum(one.communication_share for one in found) / len(found)
    exposed = sum(one.share for one in found) / len(found)
    num_steps = words.number_of("step", sum(one.num_steps for one in found))
    return f"{words.percent(whole)} of {num_steps}, {words.percent(exposed)} exposed"


def _reading(comparison: Comparison) -> list[str]:
    """Return what the profiles predict for B, and what the speeds show."""
    first, second = (
        [run.exposed for run in arm if run.exposed is not None]
        for arm in (comparison.first, comparison.second)
    )
    verdict = comparison.tokens
    if not first or not second or verdict is None or not _are_alike(comparison):
        return []
    before, after = _mean_exposed(first), _mean_exposed(second)
    if abs(before - after) < _DIFFERS or max(before, after) >= 1:
        return []
    promised = (1 - after) / (1 - before)
    has_less = after < before
    text = (
        f"{'less' if has_less else 'more'} time is exposed communication in B: by that alone B / A "
        f"would be {promised:.2f}, and it is {verdict.ratio:.2f}"
    )
    if has_less and not verdict.low > 1:
        is_hidden = _share_hidden(second) > _share_hidden(first) + _DIFFERS
        text += (
            f". It is {'hidden' if is_hidden else 'less'}, and yet B is not surely faster: the "
            "computation may have become slower with it, or recorded steps, which are slower "
            "than others, showed more than there was"
        )
    return [text]


def _are_alike(comparison: Comparison) -> bool:
    """Compare ranks, GPUs and batches: others change what a step communicates and computes."""
    runs = (*comparison.first, *comparison.second)
    batches = [run.samples_per_step for run in runs]
    kinds = {(run.num_ranks, run.cards) for run in runs}
    return len(kinds) == 1 and max(batches) <= (1 + _DIFFERS) * min(batches)


def _mean_exposed(found: Sequence[ExposedCommunication]) -> float:
    return sum(one.share for one in found) / len(found)


def _share_hidden(found: Sequence[ExposedCommunication]) -> float:
    """Return the share of the communication that is concurrent with computation."""
    whole = sum(one.communication_share for one in found)
    return 1 - sum(one.share for one in found) / whole if whole > 0 else 0.0
