"""Speed by number of ranks, against a base that is checked first. PURE."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from slurm_jobs.base import units
from slurm_jobs.report.comparison.comparison_model import RunMeasure
from slurm_jobs.report.comparison.comparison_words import notes_once, too_few_steps
from slurm_jobs.report.comparison.run_settings import ABSENT, DIFFERS_BETWEEN_REPEATS
from slurm_jobs.report.comparison.scaling_base import MOST_EFFICIENCY, memory_not_judged, problems
from slurm_jobs.report.comparison.speed_verdict import MIN_RUNS, interval, judge
from slurm_jobs.report.steps.newest_steps import MIN_STEPS

Kind = Literal["strong", "weak", "neither"]
"""Strong: the same global batch on more ranks. Weak: the same batch per rank."""


Identity = tuple[tuple[str, str], ...]
"""Names and values of the settings that all runs of a series share."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """All runs of a series on so many ranks, against the base of a curve."""

    num_ranks: int
    runs: tuple[RunMeasure, ...]
    tokens_per_s: float
    """Geometric mean over the runs."""
    speedup: float
    """Speed over the base's; 1 for the base."""
    ideal: float
    """Ranks over those of the base."""
    efficiency: float
    """`speedup` over `ideal`."""
    low: float | None
    """Interval of the efficiency; None with single runs."""
    high: float | None
    problems: tuple[str, ...]
    """Reasons why these runs are not a valid base."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """Runs that differ only in what scaling changes."""

    name: str
    """Settings that distinguish it from the other series; empty if there is only one."""
    kind: Kind
    batch_note: str
    """Relation of batches to ranks, if it is neither strong nor weak."""
    as_given: tuple[Point, ...]
    """Against the runs on the fewest ranks."""
    honest: tuple[Point, ...]
    """Against the valid base with the fewest ranks; empty if there is none, or if the curve is the
    same."""
    notes: tuple[str, ...] = ()
    """Checks of the bases that were not possible."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalingResult:
    """Every series, and notes on all."""

    series: tuple[Series, ...]
    warnings: tuple[str, ...]


BATCH_SHARE = 0.02
"""Batches within this share of each other count as equal. Own choice."""
_SCALED = (
    *DIFFERS_BETWEEN_REPEATS,
    "num_ranks",
    "train.resources.",
    *(f"train.config.{key}" for key in ("global_batch_size", "num_microbatches", "num_lanes")),
    *("code", "slurm-jobs"),
)
"""Prefixes of settings that scaling changes, that repeats need not share, or (code) that a warning
reports instead."""
_STRATEGY, _SHARDING = "train.config.strategy", "train.config.sharding."
_BESIDE = ".resources."
"""Part of the names of other stages' requests, which do not affect the training."""


def scale(runs: Sequence[RunMeasure]) -> ScalingResult:
    """Sort runs into series, and measure each against its base.

    Args:
        runs: at least two, each with a speed in tokens.

    Raises:
        ValueError: a run counted no tokens, or all that are long enough to be judged have the same
            number of ranks.
    """
    silent = [run.run_id for run in runs if run.tokens_per_s <= 0]
    if silent:
        message = f"{', '.join(silent)}: no tokens were counted, so there is no speed to compare"
        raise ValueError(message)
    judged = [run for run in runs if run.num_steps >= MIN_STEPS]
    short = too_few_steps(runs)
    if len({run.num_ranks for run in judged}) < MIN_RUNS:
        if short:
            raise ValueError(short)
        ranks = units.number_of("rank", judged[0].num_ranks)
        message = (
            f"all runs had {ranks}; name runs on other numbers too, or use `slurm-jobs compare`"
        )
        raise ValueError(message)
    grouped: dict[Identity, list[RunMeasure]] = {}
    for run in judged:
        shared = {
            name: value
            for name, value in run.settings.items()
            if not name.startswith(_SCALED) and _BESIDE not in name
        }
        grouped.setdefault(tuple(sorted(shared.items())), []).append(run)
    grouped = _with_single_ranks(grouped)
    each = [dict(identity) for identity in grouped]
    names = sorted({name for settings in each for name in settings})
    unlike = [n for n in names if len({settings.get(n, ABSENT) for settings in each}) > 1]
    series, warnings = [], [f"left out: {short}"] if short else []
    warnings += notes_once(judged)
    for settings, members in zip(each, grouped.values(), strict=True):
        name = ", ".join(f"{key} {settings.get(key, ABSENT)}" for key in unlike)
        if len({run.num_ranks for run in members}) >= MIN_RUNS:
            series.append(_series(name, members))
            continue
        ids = ", ".join(run.run_id for run in members)
        suffix = f" ({name})" if name else ""
        warnings.append(f"left out, no run on another number of ranks is comparable: {ids}{suffix}")
    codes = {run.settings.get("code", ABSENT) for run in judged}
    if len(codes) > 1:
        warnings.append(f"the runs are of different code: {', '.join(sorted(codes))}")
    return ScalingResult(series=tuple(series), warnings=tuple(warnings))


def _with_single_ranks(
    grouped: Mapping[Identity, list[RunMeasure]],
) -> dict[Identity, list[RunMeasure]]:
    """Use `strategy: single` as the base of every other strategy: one rank shards nothing."""

    def but_strategy(identity: Identity) -> dict[str, str]:
        return {k: v for k, v in identity if k != _STRATEGY and not k.startswith(_SHARDING)}

    alone = {}
    for identity, runs in grouped.items():
        is_single = dict(identity).get(_STRATEGY) == "single"
        if is_single and all(run.num_ranks == 1 for run in runs):
            alone[identity] = runs
    merged = {identity: list(runs) for identity, runs in grouped.items()}
    for identity, runs in alone.items():
        rest = but_strategy(identity)
        others = [o for o in grouped if o not in alone and but_strategy(o) == rest]
        for other in others:
            merged[other] += runs
        if others:
            del merged[identity]
    return merged


def _series(name: str, runs: Sequence[RunMeasure]) -> Series:
    by_ranks: dict[int, list[RunMeasure]] = {}
    for run in sorted(runs, key=lambda run: run.num_ranks):
        by_ranks.setdefault(run.num_ranks, []).append(run)
    nums = list(by_ranks)
    kind, batch_note = _kind(runs)
    reasons = {}
    for num, some in by_ranks.items():
        reasons[num] = problems(some, [run for run in runs if run.num_ranks != num])
    for num, line in _unlike_batches(by_ranks).items():
        reasons[num] = (*reasons[num], line)
    bases = nums[:-1]
    for base in bases:  # a valid one may still be slow for an unrecorded reason
        if not reasons[base]:
            too_good = _too_good(_curve(by_ranks, base, reasons))
            if not too_good:
                break
            reasons[base] = (too_good,)
    valid = [num for num in bases if not reasons[num]]
    honest: tuple[Point, ...] = ()
    if reasons[nums[0]] and valid:
        later = {num: some for num, some in by_ranks.items() if num >= valid[0]}
        honest = _curve(later, valid[0], reasons)
    note = memory_not_judged([run for base in bases for run in by_ranks[base]])
    return Series(
        name=name,
        kind=kind,
        batch_note=batch_note,
        as_given=_curve(by_ranks, nums[0], reasons),
        honest=honest,
        notes=(note,) if note else (),
    )


def _unlike_batches(by_ranks: Mapping[int, Sequence[RunMeasure]]) -> dict[int, str]:
    """Return numbers of ranks below which batches do not follow the ranks, and what is wrong.

    Empty if all follow, or if no two above a failing one do.
    """
    reasons: dict[int, str] = {}
    rest = dict(by_ranks)
    while _kind([run for runs in rest.values() for run in runs])[0] == "neither":
        if len(rest) <= 2:
            return {}
        num = next(iter(rest))
        first = _batches_text(rest.pop(num))
        others = _batches_text([run for runs in rest.values() for run in runs])
        reasons[num] = f"different global batch from the rest: {first} samples a step, not {others}"
    return reasons


def _batches_text(runs: Sequence[RunMeasure]) -> str:
    return ", ".join(dict.fromkeys(f"{run.samples_per_step:.4g}" for run in runs))


def _kind(runs: Sequence[RunMeasure]) -> tuple[Kind, str]:
    batches = [run.samples_per_step for run in runs]
    shares = [run.samples_per_step / run.num_ranks for run in runs]
    if max(batches) / min(batches) - 1 <= BATCH_SHARE:
        return "strong", ""
    if max(shares) / min(shares) - 1 <= BATCH_SHARE:
        return "weak", ""
    listed = ", ".join(
        f"{batch:.4g} on {num}"
        for num, batch in dict(sorted((r.num_ranks, r.samples_per_step) for r in runs)).items()
    )
    return "neither", f"samples a step: {listed} ranks; neither equal in all nor equal a rank"


def _curve(
    by_ranks: Mapping[int, Sequence[RunMeasure]], base: int, reasons: Mapping[int, tuple[str, ...]]
) -> tuple[Point, ...]:
    at_base = [run.tokens_per_s for run in by_ranks[base]]
    points = []
    for num, runs in by_ranks.items():
        speeds = [run.tokens_per_s for run in runs]
        mean, ideal = interval(speeds)[0], num / base
        speedup = mean / interval(at_base)[0]
        low = high = None
        if num != base and min(len(at_base), len(speeds)) >= MIN_RUNS:
            verdict = judge(at_base, speeds)
            assert math.isfinite(verdict.high)
            low, high = verdict.low / ideal, verdict.high / ideal
        point = Point(
            num_ranks=num,
            runs=tuple(runs),
            tokens_per_s=mean,
            speedup=speedup,
            ideal=ideal,
            efficiency=speedup / ideal,
            low=low,
            high=high,
            problems=reasons[num],
        )
        points.append(point)
    return tuple(points)


def _too_good(points: Sequence[Point]) -> str:
    """Return why the base of the curve may be slowed down, or nothing.

    Points with other problems (other GPUs) are no evidence about the base; with repeats, the whole
    interval must be above.
    """
    valid = [p for p in points[1:] if not p.problems and p.num_ranks > points[0].num_ranks]
    beyond = [p for p in valid if (p.low or p.efficiency) > MOST_EFFICIENCY]
    if not beyond:
        return ""
    best = max(beyond, key=lambda point: point.efficiency)
    hedge = "; single runs: repeats would show whether it is noise" if not best.low else ""
    return (
        f"{best.num_ranks} ranks are {best.speedup:.2f} times as fast, {best.efficiency * 100:.0f} "
        "% of ideal: no number of ranks adds more than its share, so these runs were held up by "
        f"something that is not in their records{hedge}"
    )
