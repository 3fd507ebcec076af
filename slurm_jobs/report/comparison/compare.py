"""Comparison of two arms of runs: the verdict, its basis, and its limits. PURE."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slurm_jobs.base import units
from slurm_jobs.report.comparison.comparison_model import Comparison, RunMeasure
from slurm_jobs.report.comparison.comparison_words import notes_once
from slurm_jobs.report.comparison.run_settings import differences, unlike_within
from slurm_jobs.report.comparison.scaling_base import HELD_SHARE, kinds_text
from slurm_jobs.report.comparison.speed_verdict import (
    MIN_RUNS,
    Verdict,
    judge,
    judge_single,
    mean_value,
)
from slurm_jobs.report.steps.newest_steps import MIN_STEPS

TOKENS_ALIKE = 0.02
"""Mean real tokens per sample may differ by this share; otherwise the data differ. Own choice."""
_HELD_MORE = 0.10
"""Difference between the arms in the share of requested cores that others held, from which on it is
reported. Own choice."""
_MANY = 6
"""Maximum length of a list of names; more are counted."""


def compare(first: Sequence[RunMeasure], second: Sequence[RunMeasure]) -> Comparison:
    """Compare the runs of two arms.

    Args:
        first: the runs of the arm that the other is measured against, at least one.
        second: those of the other, at least one.
    """
    runs = (*first, *second)
    tokens = _verdict(first, second, "tokens_per_s") if all(r.tokens_per_s for r in runs) else None
    more = tokens.more_runs if tokens is not None else None
    hours_of_both = sum(mean_value([run.rank_hours for run in arm]) for arm in (first, second))
    return Comparison(
        first=tuple(first),
        second=tuple(second),
        tokens=tokens,
        samples=_verdict(first, second, "samples_per_s"),
        cost_rank_hours=more * hours_of_both if more else None,
        differences=tuple(differences(first, second)),
        warnings=(
            *_run_warnings(first, second),
            *_load_warnings(first, second),
            *_data_warnings(first, second),
            *notes_once(runs),
        ),
    )


def _verdict(
    first: Sequence[RunMeasure], second: Sequence[RunMeasure], speed: str
) -> Verdict | None:
    """Return None if a run is too short, or counted nothing."""
    if min(run.num_steps for run in (*first, *second)) < MIN_STEPS:
        return None
    if min(len(first), len(second)) >= MIN_RUNS:
        a = [getattr(run, speed) for run in first]
        b = [getattr(run, speed) for run in second]
        return judge(a, b) if min(*a, *b) > 0 else None
    if speed != "tokens_per_s" or max(len(first), len(second)) > 1:
        return None
    stretches = [run.token_stretches for run in (*first, *second)]
    return judge_single(*stretches) if all(stretches) else None


def _run_warnings(first: Sequence[RunMeasure], second: Sequence[RunMeasure]) -> Iterator[str]:
    runs = (*first, *second)
    for name, arm in (("A", first), ("B", second)):
        unlike = unlike_within(arm)
        if unlike:
            listed = ", ".join(unlike[:_MANY])
            if len(unlike) > _MANY:
                listed += f" and {len(unlike) - _MANY} more"
            yield f"the runs of {name} are not repeats of each other: they differ in {listed}"
    devices = {run.device for run in runs if run.device}
    if len(devices) > 1:
        yield f"the runs used different devices: {', '.join(sorted(devices))}"
    if len({run.num_ranks for run in runs}) > 1:
        yield (
            "the numbers of ranks differ: this compares the speeds of whole jobs; "
            "`slurm-jobs scaling` shows what each rank adds"
        )
    for what, kinds in (("cards", {r.cards for r in runs}), ("processors", {r.cpus for r in runs})):
        known = kinds - {()}
        if len(known) > 1:
            yield (
                f"not all runs had the same {what} ({kinds_text(known)}): that is part of the "
                "difference"
            )


def _load_warnings(first: Sequence[RunMeasure], second: Sequence[RunMeasure]) -> Iterator[str]:
    """Yield warnings on other processes on a run's cores: not a setting, but they slow it down."""
    largest = 0.0
    means, texts = [], []
    for name, arm in (("A", first), ("B", second)):
        shares = [run.share_held for run in arm if run.share_held is not None]
        if not shares:
            texts.append(f"not read in {name}")
            continue
        largest = max(largest, *shares)
        means.append(mean_value(shares))
        texts.append(f"{units.percent(means[-1])} in {name}")
    is_unlike = len(means) > 1 and abs(means[0] - means[1]) >= _HELD_MORE
    if is_unlike or largest >= HELD_SHARE:
        yield (
            f"other processes kept requested cores busy ({' and '.join(texts)}, on average): that "
            "is part of the difference, or hides one"
        )


def _data_warnings(first: Sequence[RunMeasure], second: Sequence[RunMeasure]) -> Iterator[str]:
    arms = (first, second)
    lengths = [mean_value([r.tokens_per_sample for r in arm]) for arm in arms]
    if min(lengths) > 0 and max(lengths) / min(lengths) - 1 > TOKENS_ALIKE:
        yield (
            f"the samples differ: {lengths[0]:.1f} real tokens each in A, {lengths[1]:.1f} "
            "in B; tokens/s and samples/s then mean different things"
        )
    phases: set[str] = set().union(*(run.phase_shares for run in (*first, *second)))
    in_a, in_b = (
        {phase: mean_value([r.phase_shares.get(phase, 0.0) for r in arm]) for phase in phases}
        for arm in arms
    )
    if any(abs(in_a[phase] - in_b[phase]) > TOKENS_ALIKE for phase in phases):
        yield (
            "the phases of the training do not have the same shares of the steps in A and B, and "
            "each phase has its own speed"
        )
    batches = [mean_value([r.samples_per_step for r in arm]) for arm in arms]
    if max(batches) / min(batches) - 1 > TOKENS_ALIKE:
        yield (
            f"the global batches differ ({batches[0]:.0f} and {batches[1]:.0f} samples a step): "
            "times of steps are not compared, and a step of one arm learns from more samples"
        )
