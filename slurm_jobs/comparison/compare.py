"""Comparison of two arms of runs: the verdict, its basis, and its limits. PURE."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_jobs.comparison.health import HELD_SHARE
from slurm_jobs.comparison.model import Comparison, RunMeasure
from slurm_jobs.comparison.sentences import notes_once
from slurm_jobs.comparison.settings import differences, unlike_within
from slurm_jobs.comparison.verdict import MIN_RUNS, Verdict, judge, judge_single
from slurm_jobs.report import words
from slurm_jobs.report.numbers.judged import MIN_STEPS

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
    samples = _verdict(first, second, "samples_per_s")
    more = tokens.more_runs if tokens is not None else None
    mean_hours = [sum(r.rank_hours for r in arm) / len(arm) for arm in (first, second)]
    return Comparison(
        first=tuple(first),
        second=tuple(second),
        tokens=tokens,
        samples=samples,
        cost_rank_hours=more * sum(mean_hours) if more else None,
        differences=tuple(differences(first, second)),
        warnings=tuple(_warnings(first, second)),
    )


def _verdict(
    first: Sequence[RunMeasure], second: Sequence[RunMeasure], speed: str
) -> Verdict | None:
    """Return None if a run is too short, or counted nothing."""
    if min(run.num_steps for run in (*first, *second)) < MIN_STEPS:
        return None
    if min(len(first), len(second)) >= MIN_RUNS:
        a, b = ([getattr(run, speed) for run in arm] for arm in (first, second))
        return judge(a, b) if min(*a, *b) > 0 else None
    if speed != "tokens_per_s" or max(len(first), len(second)) > 1:
        return None
    stretches = [run.token_stretches for run in (*first, *second)]
    return judge_single(*stretches) if all(stretches) else None


def _warnings(first: Sequence[RunMeasure], second: Sequence[RunMeasure]) -> list[str]:
    said: list[str] = []
    runs = (*first, *second)
    for name, arm in (("A", first), ("B", second)):
        unlike = unlike_within(arm)
        if unlike:
            said.append(
                f"the runs of {name} are no repeats of each other: they differ in {_listed(unlike)}"
            )
    devices = {run.device for run in runs if run.device}
    if len(devices) > 1:
        said.append(f"the runs had unlike devices: {', '.join(sorted(devices))}")
    if len({run.num_ranks for run in runs}) > 1:
        said.append(
            "the numbers of ranks differ: this compares what whole jobs do a second; "
            "`slurm-jobs scaling` shows what each rank adds"
        )
    for kind, values in (
        ("cards", [r.cards for r in runs]),
        ("processors", [r.cpus for r in runs]),
    ):
        known = {value for value in values if value}
        if len(known) > 1:
            listed = "; ".join(sorted(", ".join(value) for value in known))
            said.append(f"not all runs had the same {kind} ({listed}): part of the difference")
    said.extend(_load_warnings(first, second))
    said.extend(_data_warnings(first, second))
    return said + notes_once(runs)


def _load_warnings(first: Sequence[RunMeasure], second: Sequence[RunMeasure]) -> list[str]:
    """Yield warnings on other processes on a run's cores, which are no setting but slow it down."""
    known = {
        name: [run.share_held for run in arm if run.share_held is not None]
        for name, arm in (("A", first), ("B", second))
    }
    means = {name: sum(shares) / len(shares) for name, shares in known.items() if shares}
    is_unlike = len(means) > 1 and abs(means["A"] - means["B"]) >= _HELD_MORE
    if not is_unlike and max((max(s) for s in known.values() if s), default=0.0) < HELD_SHARE:
        return []
    told = " and ".join(
        f"{words.percent(means[name])} in {name}" if name in means else f"not read in {name}"
        for name in known
    )
    return [
        (
            f"processes of others held cores that the runs had asked for ({told}, on average): "
            "that is a part of the difference, or hides one"
        )
    ]


def _data_warnings(first: Sequence[RunMeasure], second: Sequence[RunMeasure]) -> list[str]:
    said = []
    lengths = [sum(r.tokens_per_sample for r in arm) / len(arm) for arm in (first, second)]
    if min(lengths) > 0 and max(lengths) / min(lengths) - 1 > TOKENS_ALIKE:
        said.append(
            f"the samples are not alike: {lengths[0]:.1f} real tokens each in A, {lengths[1]:.1f} "
            "in B; tokens/s and samples/s then mean different things"
        )
    phases = sorted({name for run in (*first, *second) for name in run.phase_shares})
    shares = [
        [sum(r.phase_shares.get(name, 0.0) for r in arm) / len(arm) for name in phases]
        for arm in (first, second)
    ]
    if any(abs(a - b) > TOKENS_ALIKE for a, b in zip(*shares, strict=True)):
        said.append(
            "the phases of the training do not have the same shares of the steps in A and B, and "
            "each phase has a speed of its own"
        )
    batches = [sum(r.samples_per_step for r in arm) / len(arm) for arm in (first, second)]
    if max(batches) / min(batches) - 1 > TOKENS_ALIKE:
        said.append(
            f"the global batches differ ({batches[0]:.0f} and {batches[1]:.0f} samples a step): "
            "times of steps are not compared, and what a step teaches is not the same"
        )
    return said


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _MANY
    return ", ".join(names[:_MANY]) + (f" and {more} more" if more > 0 else "")
