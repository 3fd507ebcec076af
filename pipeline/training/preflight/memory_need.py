"""Memory needs of a rank, computed from sizes alone. PURE.

The state (weights, gradients, optimizer) is exact: tests compare it with real trainings. The
rest is a lower bound, so what does not fit by these numbers really does not fit.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

from pipeline.training.local_optimizer import BLOCK_SIZE
from pipeline.training.preflight.model_sizes import ModelSizes, TensorSizes
from pipeline.training.preflight.sharing import Sharing

_FP32 = 4
"""Bytes of a trained weight, of its gradient, and of each of the optimizer's two moments."""
_LEAST_8_BIT = 4096
"""bitsandbytes keeps the state of smaller tensors in fp32."""
_LEAST_PAGED = 100_000
"""bitsandbytes does not page the state of smaller tensors."""
_TABLES_BYTES = 2 * 256 * _FP32
"""Tables of the values of 8-bit codes for the two moments, shared by all tensors."""


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
    """Mask that keeps the samples of packed rows apart; shared by all layers."""
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
        return max(self._step_bytes, self._look_bytes)

    @property
    def expected_bytes(self) -> int:
        """Least bytes with compute weights and activations: still a lower bound."""
        passing = self.computing_bytes + self.activations_bytes + self.mask_bytes
        return max(self._step_bytes + passing, self._look_bytes)

    @property
    def _step_bytes(self) -> int:
        if self.offloads:
            return self.buffers_bytes + self.accumulated_bytes
        more_than_reduced = max(0, self.accumulated_bytes - self.gradients_bytes)
        return self.state_bytes + more_than_reduced

    @property
    def _look_bytes(self) -> int:
        """Between two steps there are no gradients."""
        stays = 0 if self.offloads else self.weights_bytes + self.optimizer_bytes
        return self.buffers_bytes + stays + self.gathered_bytes


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
    residual_itemsize: int | None = None,
    looks: bool = False,
) -> MemoryNeed:
    """Return the needs of a rank in training.

    Args:
        sizes: Sizes of the model.
        learned: Names of the trained parameters.
        sharing: Sharding of the model.
        compute_itemsize: Bytes of a number in the compute dtype.
        optimizer_kind: Kind in `OptimizerConfig`.
        num_microbatches: Microbatches of a step.
        num_tokens: Tokens of a microbatch on one rank.
        masked_length: Tokens of a row with a dense mask; 0 if rows have none.
        residual_itemsize: Bytes of a number in the residual stream; None: that of the compute
            dtype.
        looks: True if held-out samples are evaluated during training.
    """
    learning = [each for each in sizes.parameters if each.name in learned]
    accumulates = sharing.is_sharded and sharing.accumulates_whole and num_microbatches > 1
    return MemoryNeed(
        weights_bytes=sum(each.itemsize * _share(each, sharing) for each in sizes.parameters),
        buffers_bytes=sizes.buffer_bytes,
        gradients_bytes=sum(_FP32 * _share(each, sharing) for each in learning),
        optimizer_bytes=optimizer_bytes(
            [_share(each, sharing) for each in learning], optimizer_kind
        ),
        accumulated_bytes=sum(_FP32 * _num(each) for each in learning) if accumulates else 0,
        computing_bytes=_computing_bytes(sizes, sharing, compute_itemsize),
        activations_bytes=num_tokens
        * sizes.hidden_size
        * (residual_itemsize or compute_itemsize)
        * sizes.num_layers,
        mask_bytes=_mask_bytes(num_tokens, masked_length, compute_itemsize),
        offloads=sharing.offloads,
        gathered_bytes=sum(_gathered_bytes(each, compute_itemsize) for each in sizes.parameters)
        if looks and sharing.is_sharded
        else 0,
    )


def _mask_bytes(num_tokens: int, length: int, itemsize: int) -> int:
    """Return the size for full rows: a number for each pair of positions."""
    num_rows = max(1, num_tokens // length) if length else 0
    return num_rows * length**2 * itemsize


def optimizer_bytes(nums: Collection[int], kind: str) -> int:
    """Return the state of an optimizer that stays on the device.

    Args:
        nums: Numbers in each tensor on this rank.
        kind: Kind in `OptimizerConfig`.
    """
    if kind == "adamw":
        return sum(2 * _FP32 * num + _FP32 for num in nums)  # and a count of steps
    is_paged, is_8_bit = kind.startswith("paged_"), kind.endswith("_8bit")
    total = 0
    for num in nums:
        packs = is_8_bit and num >= _LEAST_8_BIT
        if not (is_paged and num >= _LEAST_PAGED):
            total += 2 * num * (1 if packs else _FP32)
        if packs:
            total += 2 * _FP32 * math.ceil(num / BLOCK_SIZE)
    return total + (_TABLES_BYTES if is_8_bit and any(n >= _LEAST_8_BIT for n in nums) else 0)


def checkpoint_bytes(sizes: ModelSizes, learned: Collection[str], optimizer_kind: str) -> int:
    """Return the size of a checkpoint on disk, over all ranks: trained weights and optimizer."""
    nums = [_num(each) for each in sizes.parameters if each.name in learned]
    kind = optimizer_kind.removeprefix("paged_")
    return sum(_FP32 * num for num in nums) + optimizer_bytes(nums, kind)


def stored_bytes(sizes: ModelSizes) -> int:
    """Return the size of all full weights, as after reading them."""
    return sum(each.itemsize * _num(each) for each in sizes.parameters)


def _num(each: TensorSizes) -> int:
    return math.prod(each.shape)


def _share(each: TensorSizes, sharing: Sharing) -> int:
    """Return the numbers on the first rank, the most of any: rows are dealt in equal runs."""
    if not sharing.is_sharded or not each.shape:
        return _num(each)
    return math.ceil(each.shape[0] / sharing.num_shards) * math.prod(each.shape[1:])


def _gathered_bytes(each: TensorSizes, itemsize: int) -> int:
    return _num(each) * (each.itemsize if each.is_packed else itemsize)


def _computing_bytes(sizes: ModelSizes, sharing: Sharing, itemsize: int) -> int:
    """Return the memory in addition to the master copy."""
    if not sharing.is_sharded:
        cast = (each for each in sizes.parameters if each.is_multiplied and not each.is_packed)
        return sum(itemsize * _num(each) for each in cast) if itemsize < _FP32 else 0
    rest, by_unit = 0, dict[int, int]()
    for each in sizes.parameters:
        num_bytes = _gathered_bytes(each, itemsize)
        if each.unit is None:
            rest += num_bytes
        else:
            by_unit[each.unit] = by_unit.get(each.unit, 0) + num_bytes
    in_order = [num_bytes for _, num_bytes in sorted(by_unit.items())]
    if sharing.keeps_gathered or not in_order:
        return rest + sum(in_order)
    at_once = 1 + sharing.num_ahead
    windows = (in_order[first : first + at_once] for first in range(len(in_order)))
    return rest + max(map(sum, windows))
