"""Numbers that compare ranks: the mean step of each, and the possible cost of each part. PURE.

Attempts differ in their number of ranks and the length of a step, so each has separate means.
Numbers over several attempts are weighted by steps. Vectorised.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from slurm_jobs.base.index_ranges import parse_ranges, ranges_text
from slurm_jobs.base.quantities import TimeShare
from slurm_jobs.formats.timings.step_records import STEP_PHASES
from slurm_jobs.report.inputs.run_inputs import ProfileTable, RankTiming
from slurm_jobs.report.steps.attempt_steps import AttemptSteps
from slurm_jobs.report.values.rank_model import FarRank, RankNumbers
from slurm_jobs.report.values.training_model import ExposedCommunication


def exposed_communication(profiles: Sequence[ProfileTable]) -> ExposedCommunication | None:
    """Return that of the newest attempt that has a profile."""
    newest = max((p.attempt for p in profiles), default=0)
    shares = [
        ExposedCommunication(
            rank=p.rank,
            attempt=p.attempt,
            num_steps=p.table.num_steps,
            share=p.table.exposed_communication_s / p.table.wall_s,
            communication_share=(p.table.communication_s or 0.0) / p.table.wall_s,
        )
        for p in profiles
        if p.attempt == newest
        and p.table.exposed_communication_s is not None
        and p.table.wall_s > 0
    ]
    return max(shares, key=lambda share: share.share, default=None)


PHASE_KINDS = tuple(name.removesuffix("_s") for name in STEP_PHASES[:-1])
"""Named step phases; the rest of a step is `unexplained`."""

_PRICE_PERCENTILE = 5.0
"""Percentile for records with both waits in one number. Own choice: with 2 ranks one is last in
both exchanges of half of the steps, with 16 in a sixteenth."""

_MOST_CORES = 65_536
"""A header with more is damaged."""

PHASE_NAMES = {"rank_wait": "waiting for other ranks"}
"""Names of step phases that differ from their kind."""


def phase_name(kind: str) -> str:
    """Return the name of a step phase for readers."""
    return PHASE_NAMES.get(kind, kind.replace("_", " "))


@dataclass(frozen=True, kw_only=True, slots=True)
class AttemptMeans:
    """Mean measured step of each rank in one attempt."""

    num_steps: int
    """Measured steps, equal for all ranks."""
    members: tuple[tuple[int, str], ...]
    """Rank, and its node."""
    means: Mapping[str, np.ndarray]
    """Shape [members], float64, seconds per step: `step`, `own` (the step without the waits for
    others), `core_wait` (NaN if not recorded), and each step phase by kind."""
    is_whole: bool
    """True if every rank left records: otherwise there is no mean of all to compare with."""
    is_on_cpu: bool
    """If false, the host only queues work: its phases say little about late ranks."""
    tells_waits: bool
    """True if waits for other ranks are timed; older versions did not."""


_Part = tuple[AttemptSteps, AttemptMeans, int]
"""An attempt that a rank took part in, its means, and the rank's index in both."""


def attempt_means(attempts: Sequence[AttemptSteps]) -> tuple[AttemptMeans, ...]:
    """Return the means of each attempt that has measured steps."""
    found = []
    for attempt in attempts:
        if not attempt.num_measured:
            continue
        records = [attempt.measured(index) for index in range(len(attempt.ranks))]
        fields = {kind: f"{kind}_s" for kind in (*PHASE_KINDS, "step", "core_wait")}
        means = {
            kind: np.array([r[name].mean(dtype=np.float64) for r in records])
            for kind, name in fields.items()
        }
        means["unexplained"] = means["step"] - sum(means[kind] for kind in PHASE_KINDS)
        means["own"] = means["step"] - means["rank_wait"]
        files = [timing.steps for timing in attempt.ranks if timing.steps is not None]
        found.append(
            AttemptMeans(
                num_steps=attempt.num_measured,
                members=tuple((timing.rank, timing.node) for timing in attempt.ranks),
                means=means,
                is_whole=attempt.is_whole,
                is_on_cpu=all(timing.header.get("device") == "cpu" for timing in attempt.ranks),
                tells_waits=not any("rank_wait_s" in file.lacking for file in files),
            )
        )
    return tuple(found)


def far_ranks(attempt: AttemptSteps) -> tuple[FarRank, ...] | None:
    """Return the ranks without a core near their GPU; None if no record has the locations."""
    cores = {timing.rank: _cores(timing, "cores") for timing in attempt.ranks}
    near = {timing.rank: _cores(timing, "cores_near_gpu") for timing in attempt.ranks}
    nodes = {timing.rank: timing.node for timing in attempt.ranks}
    known = [rank for rank in nodes if cores[rank] and near[rank]]
    if not known:
        return None
    return tuple(
        FarRank(
            rank=rank,
            node=nodes[rank],
            cores=ranges_text(cores[rank]),
            near_cores=ranges_text(near[rank]),
            others_are_near=any(
                nodes[other] == nodes[rank] and {*cores[other]} & {*near[rank]} for other in nodes
            ),
        )
        for rank in known
        if not {*cores[rank]} & {*near[rank]}
    )


def _cores(timing: RankTiming, name: str) -> tuple[int, ...]:
    """Return the cores in a rank's header; none in records of older versions."""
    cores = timing.header.get(name)
    with suppress(ValueError):
        return parse_ranges(cores, below=_MOST_CORES) if isinstance(cores, str) and cores else ()
    return ()


def rank_numbers(
    attempts: Sequence[AttemptSteps], means: Sequence[AttemptMeans]
) -> tuple[RankNumbers, ...]:
    """Return the mean measured step of each rank on each of its nodes."""
    parts: dict[tuple[int, str], list[_Part]] = {}
    with_steps = [attempt for attempt in attempts if attempt.num_measured]
    for attempt, of_all in zip(with_steps, means, strict=True):
        for index, place in enumerate(of_all.members):
            parts.setdefault(place, []).append((attempt, of_all, index))
    return tuple(_one_rank(place, parts[place]) for place in sorted(parts))


def _one_rank(place: tuple[int, str], parts: Sequence[_Part]) -> RankNumbers:
    def mean(kind: str) -> float:
        return _by_steps([(m.num_steps, float(m.means[kind][i])) for _, m, i in parts])

    def excess(kind: str) -> float | None:
        over = []
        for _, m, i in parts:
            if m.is_whole:
                over.append((m.num_steps, float(m.means[kind][i] - m.means[kind].mean())))
        return _by_steps(over) if over else None

    step_s = [attempt.measured(index)["step_s"] for attempt, _, index in parts]
    core_wait_s = mean("core_wait")
    return RankNumbers(
        rank=place[0],
        node=place[1],
        num_steps=sum(m.num_steps for _, m, _ in parts),
        attempts=tuple(sorted(attempt.attempt for attempt, _, _ in parts)),
        step_mean_s=mean("step"),
        step_p95_s=float(np.percentile(np.concatenate(step_s), 95)),
        own_mean_s=mean("own"),
        own_excess_s=excess("own"),
        data_excess_s=excess("data_wait"),
        core_wait_mean_s=core_wait_s if math.isfinite(core_wait_s) else None,
        phases_s={kind: mean(kind) for kind in (*PHASE_KINDS, "unexplained")},
    )


def mean_phases(means: Sequence[AttemptMeans]) -> tuple[TimeShare, ...]:
    """Return the mean step: every step counts once, and in it all ranks of its attempt equally.

    Attempts may have different numbers of ranks and lengths of steps.
    """
    if not means:
        return ()

    def mean(kind: str) -> float:
        return _by_steps([(m.num_steps, float(m.means[kind].mean())) for m in means])

    step_s = mean("step")
    return tuple(
        TimeShare(
            name=phase_name(kind),
            kind=kind,
            seconds=mean(kind),
            share=mean(kind) / step_s if step_s > 0 else 0.0,
        )
        for kind in (*PHASE_KINDS, "unexplained")
    )


def _by_steps(values: Sequence[tuple[int, float]]) -> float:
    return sum(num * value for num, value in values) / sum(num for num, _ in values)


def critical_shares(attempts: Sequence[AttemptSteps]) -> dict[str, float]:
    """Return the largest share of measured time that each step phase can cost.

    The ranks meet in every step, so the step waits for one rank at a time. Without a phase it is
    shorter by at most the longest time that a rank spends in it. That rank may differ between
    steps. A padded token counts as much as a real one. The whole time is that of the longest step
    of any rank, too: where ranks do not meet in every step, each may have other long steps.
    """
    whole = [a for a in attempts if a.is_whole and a.num_measured]
    wall_s = 0.0
    longest = dict.fromkeys((*PHASE_KINDS, "padding"), 0.0)
    for attempt in whole:
        ranks = [attempt.measured(i) for i in range(len(attempt.ranks))]
        for kind in PHASE_KINDS:
            most = np.max([r[f"{kind}_s"] for r in ranks], axis=0)
            longest[kind] += float(most.sum(dtype=np.float64))
        shares = []  # of padding in the token slots
        for rank in ranks:
            padding = rank["num_padding_tokens"].astype(np.float64)
            slots = padding + rank["num_tokens"]
            none = np.zeros_like(padding)
            shares.append(np.divide(padding, slots, out=none, where=slots > 0))
        step_s = np.max([r["step_s"] for r in ranks], axis=0)
        wall_s += float(step_s.sum(dtype=np.float64))
        longest["padding"] += float((np.max(shares, axis=0) * step_s).sum(dtype=np.float64))
    if wall_s <= 0:
        return {}
    return {kind: min(1.0, seconds / wall_s) for kind, seconds in longest.items()}


@dataclass(frozen=True, kw_only=True, slots=True)
class MeetingPrice:
    """Cost of the exchanges between the passes."""

    share: float
    """Share of the measured time."""
    is_apart: bool
    """True if each exchange has a price; otherwise both have one together."""


def meeting_price(attempts: Sequence[AttemptSteps]) -> MeetingPrice | None:
    """Return what the exchanges cost even the rank that comes last and does not wait.

    None if no attempt has the records of all its ranks, or if they lack these waits.
    """
    whole = [a for a in attempts if a.is_whole and a.num_ranks > 1 and a.num_measured]
    files = [t.steps for a in whole for t in a.ranks if t.steps is not None]
    wall_s = sum(a.measured_s() for a in whole)
    if wall_s <= 0 or any("rank_wait_s" in file.lacking for file in files):
        return None
    prices: list[float] = []  # seconds, by attempt
    is_apart = True
    for attempt in whole:
        # In each of the two exchanges of a step one rank comes last: the smallest wait is its
        # price.
        records = [attempt.measured(index) for index in range(len(attempt.ranks))]
        first = np.min([r["rank_wait_data_s"] for r in records], axis=0)
        if np.isfinite(first).all():
            second = np.min([r["rank_wait_s"] - r["rank_wait_data_s"] for r in records], axis=0)
            prices.append(float((first + second).sum(dtype=np.float64)))
        else:
            # Older records combine both waits. Their smallest sum exceeds the price unless a rank
            # is last in both, so the steps with the smallest sum represent all.
            is_apart = False
            least = np.min([r["rank_wait_s"] for r in records], axis=0)
            prices.append(float(np.percentile(least, _PRICE_PERCENTILE)) * len(least))
    return MeetingPrice(share=sum(prices) / wall_s, is_apart=is_apart)
