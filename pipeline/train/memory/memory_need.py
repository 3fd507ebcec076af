"""Memory needs of a rank, computed from sizes alone.

The state (weights, gradients, optimizer) is exact: tests compare it with real trainings. The
rest is a lower bound, so what does not fit by these numbers really does not fit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from pipeline.train.memory.sharing import Sharing
from pipeline.train.memory.tensor_sizes import ModelSizes
from pipeline.train.optimizer.bitsandbytes_optimizer import BLOCK_SIZE

FP32_BYTES = 4
"""Bytes of a trained weight, of its gradient, and of each of the optimizer's two moments."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryNeed:
    """Needs of the rank with the most, in bytes."""

    weights_bytes: int
    """The master copy: fp32, or packed in 4 bits."""
    buffers_bytes: int
    """Constants, not sharded."""
    gradients_bytes: int
    optimizer_bytes: int
    """Without pageable state."""
    accumulated_bytes: int
    """Unsharded gradients between the microbatches of a step."""
    computing_bytes: int
    """Weights in the compute dtype: gathered, or cast by autocast."""
    activations_bytes: int
    """Lower bound: inputs of each layer of the language model, kept for the backward pass."""
    mask_bytes: int
    """Masks that keep the samples of packed rows apart; one for all layers of a kind."""
    offloads: bool
    """True if weights, gradients and optimizer are in the node's memory."""
    gathered_bytes: int = 0
    """All weights of a sharded model in the compute dtype, gathered for a held-out evaluation
    between two steps; 0 without one."""

    @property
    def state_bytes(self) -> int:
        """State between steps: everything that exists when weights are updated."""
        return self.weights_bytes + self.buffers_bytes + self.gradients_bytes + self.optimizer_bytes

    @property
    def offloaded_bytes(self) -> int:
        """Part in the node's memory, though the device computes."""
        return self.state_bytes - self.buffers_bytes if self.offloads else 0

    @property
    def saved_bytes(self) -> int:
        """A checkpoint's memory on the rank: trained weights, as large as their gradients."""
        return self.gradients_bytes + self.optimizer_bytes

    @property
    def least_bytes(self) -> int:
        """Memory that must be on the device at one time, in a step or in a held-out evaluation."""
        return self._most_bytes(0)

    @property
    def expected_bytes(self) -> int:
        """Least bytes with compute weights and activations: still a lower bound."""
        return self._most_bytes(self.computing_bytes + self.activations_bytes + self.mask_bytes)

    def _most_bytes(self, passing_bytes: int) -> int:
        """Return the larger of a step's and an evaluation's memory; `passing_bytes` in a step."""
        if self.offloads:
            step, between_steps = self.buffers_bytes + self.accumulated_bytes, self.buffers_bytes
        else:
            step = self.state_bytes + max(0, self.accumulated_bytes - self.gradients_bytes)
            between_steps = self.state_bytes - self.gradients_bytes
        return max(step + passing_bytes, between_steps + self.gathered_bytes)


def memory_need(
    sizes: ModelSizes,
    learned: Collection[str],
    sharing: Sharing,
    *,
    compute_itemsize: int,
    optimizer_kind: str,
    num_microbatches: int,
    num_tokens: int,
    masked_length: int = 0,
    num_masks_of_row: int = 1,
    residual_itemsize: int | None = None,
    evaluates_held_out: bool = False,
) -> MemoryNeed:
    """Return the needs of a rank in training.

    `num_microbatches` are those of a step, `num_tokens` those of a microbatch on one rank. A row
    with a dense mask has `masked_length` tokens; 0 if rows have none. It has one mask for each
    kind of layer, `num_masks_of_row`. `residual_itemsize` is that of the residual stream; None:
    the compute dtype's. `evaluates_held_out`: during training.
    """
    learning = [each for each in sizes.parameters if each.name in learned]
    nums = [sharing.num_on_first(each) for each in learning]
    accumulates = sharing.is_sharded and sharing.accumulates_whole and num_microbatches > 1
    gathers_all = evaluates_held_out and sharing.is_sharded
    residual = sizes.hidden_size * sizes.num_layers * (residual_itemsize or compute_itemsize)
    # of full rows: a number for each pair of positions
    num_rows = max(1, num_tokens // masked_length) if masked_length else 0
    num_masks = num_rows * num_masks_of_row
    return MemoryNeed(
        weights_bytes=sum(e.itemsize * sharing.num_on_first(e) for e in sizes.parameters),
        buffers_bytes=sizes.buffer_bytes,
        gradients_bytes=FP32_BYTES * sum(nums),
        optimizer_bytes=optimizer_bytes(nums, optimizer_kind),
        accumulated_bytes=FP32_BYTES * sum(e.num_stored for e in learning) if accumulates else 0,
        computing_bytes=_computing_bytes(sizes, sharing, compute_itemsize),
        activations_bytes=num_tokens * residual,
        mask_bytes=num_masks * masked_length**2 * compute_itemsize,
        offloads=sharing.offloads,
        gathered_bytes=sum(e.gathered_bytes(compute_itemsize) for e in sizes.parameters)
        if gathers_all
        else 0,
    )


def optimizer_bytes(nums: Collection[int], kind: str) -> int:
    """Return the state of an optimizer that stays on the device.

    `nums` are the numbers in each tensor on this rank.
    """
    if kind == "adamw":
        return sum(2 * FP32_BYTES * num + FP32_BYTES for num in nums)  # and a count of steps
    is_paged, is_8_bit = kind.startswith("paged_"), kind.endswith("_8bit")
    num_bytes, has_codes = 0, False
    # bitsandbytes keeps the state of smaller tensors in fp32, and does not page that of small ones
    for num in nums:
        is_packed = is_8_bit and num >= 4096
        if is_packed:
            has_codes = True
            num_bytes += 2 * FP32_BYTES * math.ceil(num / BLOCK_SIZE)  # scales
        if not is_paged or num < 100_000:
            num_bytes += 2 * num if is_packed else 2 * FP32_BYTES * num
    # values of the 256 codes of both moments, shared by all tensors
    return num_bytes + (2 * 256 * FP32_BYTES if has_codes else 0)


def checkpoint_bytes(sizes: ModelSizes, learned: Collection[str], optimizer_kind: str) -> int:
    """Return the size of a checkpoint on disk, over all ranks: trained weights and optimizer."""
    nums = [each.num_stored for each in sizes.parameters if each.name in learned]
    return FP32_BYTES * sum(nums) + optimizer_bytes(nums, optimizer_kind.removeprefix("paged_"))


def _computing_bytes(sizes: ModelSizes, sharing: Sharing, itemsize: int) -> int:
    """Return the memory in addition to the master copy."""
    if not sharing.is_sharded:
        if itemsize >= FP32_BYTES:
            return 0
        cast = [each for each in sizes.parameters if each.is_multiplied and not each.is_packed]
        return sum(itemsize * each.num_stored for each in cast)
    by_unit = Counter[int | None]()
    for each in sizes.parameters:
        by_unit[each.unit] += each.gathered_bytes(itemsize)
    rest = by_unit.pop(None, 0)
    in_order = [by_unit[unit] for unit in sorted(by_unit, key=lambda unit: unit or 0)]
    at_once = len(in_order) if sharing.keeps_gathered else 1 + sharing.num_ahead
    windows = (in_order[first : first + at_once] for first in range(len(in_order)))
    return rest + max(map(sum, windows), default=0)


def describe_need(need: MemoryNeed) -> str:
    """Describe a rank's memory: `weights 1.2 GB, gradients ..`."""
    parts = {
        "weights": need.weights_bytes + need.buffers_bytes,
        "gradients": max(need.gradients_bytes, need.accumulated_bytes),
        "optimizer": need.optimizer_bytes,
    }
    if need.gathered_bytes:
        parts["all weights gathered for a held-out evaluation"] = need.gathered_bytes
    return ", ".join(f"{name} {gb(num_bytes)}" for name, num_bytes in parts.items())


def gb(num_bytes: float) -> str:
    """Return `1.20 GB`, or `1.20 MB` below 0.1 GB."""
    return f"{num_bytes / 1e9:.2f} GB" if num_bytes >= 1e8 else f"{num_bytes / 1e6:.2f} MB"
