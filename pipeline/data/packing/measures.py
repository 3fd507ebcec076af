"""Samples as sizes and costs: the scarcer of tokens and images is what packs are filled with."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.data.packing.budget import PackBudget
from pipeline.data.packing.subset import fill, fill_within


@dataclass(frozen=True, kw_only=True, slots=True)
class Measures:
    """What samples take of a pack: sizes that are to fill it, and costs that must only fit."""

    sizes: list[int]
    costs: list[int]
    size_limit: int
    cost_limit: int
    some_are_free: bool
    """Some sizes are 0: images fill packs, and not every sample has one."""

    def __len__(self) -> int:
        return len(self.sizes)

    def head(self, num_samples: int) -> Measures:
        """The same of the first samples alone."""
        return Measures(
            sizes=self.sizes[:num_samples],
            costs=self.costs[:num_samples],
            size_limit=self.size_limit,
            cost_limit=self.cost_limit,
            some_are_free=self.some_are_free,
        )


def measure(num_tokens: list[int], num_images: list[int], budget: PackBudget) -> Measures:
    """Tokens as sizes and images as costs, or the reverse where images need more packs.

    Args:
        num_tokens: One a sample, at least 1.
        num_images: One a sample.
        budget: Of a pack.
    """
    max_tokens, max_images = budget.max_tokens, budget.max_images
    if max_images is None:  # then no number of images breaks the limit
        num_images, max_images = [0] * len(num_tokens), 0
    if sum(num_images) * max_tokens > sum(num_tokens) * max_images:
        return Measures(
            sizes=num_images,
            costs=num_tokens,
            size_limit=max_images,
            cost_limit=max_tokens,
            some_are_free=0 in num_images,
        )
    return Measures(
        sizes=num_tokens,
        costs=num_images,
        size_limit=max_tokens,
        cost_limit=max_images,
        some_are_free=False,
    )


def choose(
    sizes: list[int], room: int, costs: list[int], cost_room: int
) -> tuple[list[int], int, int]:
    """Places of samples that fill `room` best with costs that fit, and what is left of both.

    What fills well without a look at the costs is taken if it keeps them; only
    else are costs searched, which takes ten times as long.
    """
    chosen, left = fill(sizes, room)
    cost_left = cost_room - sum([costs[place] for place in chosen])
    if cost_left < 0:
        chosen, left = fill_within(sizes, room, costs, cost_room)
        cost_left = cost_room - sum([costs[place] for place in chosen])
    return chosen, left, cost_left
