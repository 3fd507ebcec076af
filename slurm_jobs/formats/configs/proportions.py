"""Shares of manifests in a data set that several of them make together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from slurm_jobs.formats.config import Bounds, Count


@dataclass(frozen=True, kw_only=True, slots=True)
class Proportion:
    """Share of a manifest's samples in the data set; without a key, each sample once."""

    repeat: Annotated[float, Bounds(gt=0, le=1000)] | None = None
    """Copies of each sample. For 2.5, each sample has two, and half of them, drawn by the seed of
    `consolidate`, have a third."""
    num_samples: Count | None = None
    """Samples of this manifest in the data set, drawn or repeated as evenly as for `repeat`."""
    weight: Annotated[float, Bounds(gt=0, le=1_000_000)] | None = None
    """Share of the data set relative to the weights of the other manifests, which all need one. The
    data set then has as many samples as all manifests together."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys that are set."""
        return tuple(key for key in PROPORTION_KEYS if getattr(self, key) is not None)


PROPORTION_KEYS = ("repeat", "num_samples", "weight")
"""Keys of `Proportion`, of which a manifest has one at most."""


def proportion_problems(
    proportions: Mapping[str, Proportion], *, is_whole: bool = True
) -> Iterator[str]:
    """Yield broken rules; `proportions` are by place in the config, all of them if `is_whole`."""
    for place, proportion in proportions.items():
        if len(proportion.keys) > 1:
            first, second, *_ = (f"{place}.{key}" for key in proportion.keys)
            yield f"{first} and {second} are both given: keep one of the two"
    weighted = [place for place, each in proportions.items() if each.weight is not None]
    others = [place for place in proportions if place not in weighted]
    if is_whole and weighted and others:
        yield (
            f"{weighted[0]}.weight is given, and {others[0]} has no weight: give every manifest a "
            "weight, or none"
        )


def mixed_counts(available: Sequence[int], proportions: Sequence[Proportion]) -> list[int]:
    """Return how many samples of each manifest the data set has, copies included.

    A manifest with samples has at least one in the data set. With weights, the data set has as many
    samples as all manifests together.

    Args:
        available: Samples of each manifest; one without any has none in the data set.
        proportions: Shares of each; all with a weight, or none.
    """
    if any(each.weight is not None for each in proportions):
        return _weighted_counts(available, [Fraction(str(each.weight)) for each in proportions])
    counts = []
    for num, proportion in zip(available, proportions, strict=True):
        wanted = num
        if proportion.num_samples is not None:
            wanted = proportion.num_samples
        elif proportion.repeat is not None:
            # decimal: 0.07 of 100 samples is 7, though as a float it is slightly more
            wanted = max(1, int(Fraction(str(proportion.repeat)) * num + Fraction(1, 2)))
        counts.append(wanted if num else 0)
    return counts


def _weighted_counts(available: Sequence[int], weights: Sequence[Fraction]) -> list[int]:
    """Divide the number of all samples by weight; each manifest with samples gets one at least."""
    present = [place for place, num in enumerate(available) if num]
    total, sum_of_weights = sum(available), sum((weights[place] for place in present), Fraction())
    exact = {place: total * weights[place] / sum_of_weights for place in present}
    counts = [0] * len(available)
    for place, count in exact.items():
        counts[place] = max(1, int(count))
    by_remainder = sorted(present, key=lambda place: (int(exact[place]) - exact[place], place))
    for place in by_remainder[: max(0, total - sum(counts))]:
        counts[place] += 1
    return counts
