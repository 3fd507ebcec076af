"""Samples as sizes and costs: packs are filled by the scarcer of tokens and images."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pipeline.data.packing.budget import PackBudget
from pipeline.data.packing.subset_sum import fill, fill_within


@dataclass(frozen=True, kw_only=True, slots=True)
class Measures:
    """Space that samples take in a pack: sizes that should fill it, and costs that must fit."""

    sizes: list[int]
    costs: list[int]
    size_limit: int
    cost_limit: int
    some_are_free: bool
    """True if some sizes are 0: images fill packs, and some samples have none."""

    def __len__(self) -> int:
        return len(self.sizes)

    def head(self, num_samples: int) -> Measures:
        """Return the measures of the first samples."""
        sizes, costs = self.sizes[:num_samples], self.costs[:num_samples]
        return replace(self, sizes=sizes, costs=costs)


def measure(num_tokens: list[int], num_images: list[int], budget: PackBudget) -> Measures:
    """Return tokens as sizes and images as costs, or the reverse where images need more packs.

    Args:
        num_tokens: One per sample, at least 1.
        num_images: One per sample.
        budget: Budget of a pack.
    """
    max_tokens, max_images = budget.max_tokens, budget.max_images
    if max_images is None:  # then no number of images exceeds the limit
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
    """Return positions of samples that fill `room` best within `cost_room`, and the rest of both.

    A good filling that ignores costs is used if it happens to keep the limit; only otherwise
    are costs searched, which takes ten times as long.
    """
    chosen, left = fill(sizes, room)
    cost_left = cost_room - sum([costs[place] for place in chosen])
    if cost_left < 0:
        chosen, left = fill_within(sizes, room, costs, cost_room)
        cost_left = cost_room - sum([costs[place] for place in chosen])
    return chosen, left, cost_left
