"""Memory of a training: what it needs, what the card and the node have, what would need less."""

from __future__ import annotations

import gc
import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import nn
from torch.autograd.profiler import profile

from pipeline.models.finetuning.packed_linear import PackedLinear
from pipeline.models.finetuning.parameter_names import is_adapter, without_adapters
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.timing.recorder import StepRecorder
from pipeline.train.device import DeviceFacts
from pipeline.train.host_memory import HostMemory, read_host_memory, resident_bytes
from pipeline.train.optimizer import BLOCK_SIZE
from pipeline.train.ranks import Ranks
from pipeline.train.strategies import Place, shape_by_nodes, units_of
from pipeline.train.strategy_checks import wrapped_by_file
from slurm_jobs.shared.accelerate_file import AccelerateFile
from slurm_jobs.shared.configs.train import TrainConfig
from slurm_jobs.shared.errors import StageConfigError

# Remedies when a GPU's memory runs out, and the error that names them.
#
# For memory that is estimated before the first step, `pipeline.train.preflight` has separate
# remedies, because it knows which part of the state is too large.


def less_memory(config: TrainConfig) -> str:
    """Return settings that reduce memory and that this config does not use yet."""
    ways = ["lower batching.max_tokens"] if config.batching.kind == "packed" else []
    ways.append("preprocess with a lower max_tokens or max_images")
    if not config.activation_checkpointing:
        ways.append("set `activation_checkpointing: true`")
    return "; ".join([*ways, smaller_state(config)])


def smaller_state(config: TrainConfig) -> str:
    """Return the ways to smaller weights and optimizer state that this config does not use."""
    ways = []
    if config.strategy in {"ddp", "single"}:
        ways.append("set `strategy: fsdp2`")
    if config.adapters is None:
        ways.append("set adapters")
    elif config.quantize is None:
        ways.append("set quantize")
    if config.optimizer.kind == "adamw":
        ways.append("set `optimizer.kind: adamw_8bit`")
    if config.strategy == "fsdp2" and config.device == "cuda" and not config.sharding.cpu_offload:
        ways.append("set `sharding.cpu_offload: true`")
    ways.append("use more ranks, or devices with more memory")
    return "; ".join(ways)


@contextmanager
def explain_out_of_memory_in_steps(
    config: TrainConfig, ranks: Ranks, recorder: StepRecorder
) -> Iterator[None]:
    """Wrap the steps; `config` is the user's, before `auto` values were resolved.

    Raises:
        StageConfigError: this rank's GPU ran out of memory; a retry would fail the same way.
    """
    if config.num_microbatches == "auto":
        pieces = f"lower memory_share ({config.memory_share:g})"
    else:
        auto = "`num_microbatches: auto`, or " if config.reader == "index" else ""
        pieces = f"set {auto}num_microbatches to more than {config.num_microbatches}"
    try:
        yield
    except torch.OutOfMemoryError:
        remedy = f"{pieces}; {less_memory(config)}"
        with explain_out_of_memory(ranks, f"in step {recorder.step}", remedy):
            raise


@contextmanager
def explain_out_of_memory(ranks: Ranks, where: str, remedy: str) -> Iterator[None]:
    """Turn running out of GPU memory into an error that names the remedy.

    Raises:
        StageConfigError: this rank's GPU ran out of memory; a retry would fail the same way.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        message = f"rank {ranks.rank} ran out of memory {where} ({error}); {remedy}"
        raise StageConfigError(message) from error


# Peak device memory of forward and backward, measured; and the device's capacity.
#
# For a GPU PyTorch's allocator reports it. For a CPU PyTorch's profiler reports each allocation
# and release, including those of kernels and of FSDP, which inspecting tensors would miss.


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryUse:
    """Memory of one rank's device."""

    peak_bytes: float
    capacity_bytes: float

    @property
    def share(self) -> float:
        """Share of the capacity; above 1 it does not fit."""
        return self.peak_bytes / self.capacity_bytes


def read_capacity(device: torch.device, num_local_ranks: int) -> float:
    """Return bytes a rank may use: its GPU's, or an equal part of the job's memory on this node."""
    if device.type == "cuda":
        return float(torch.cuda.mem_get_info(device)[1])
    return read_host_memory(os.environ).limit_bytes / num_local_ranks


def read_resident(device: torch.device) -> float:
    """Return bytes in use now: by all on a GPU (context, NCCL's buffers), else by this process.

    PyTorch's cache, and unreachable objects, are freed first.
    """
    gc.collect()
    if device.type != "cuda":
        return float(resident_bytes())
    torch.cuda.empty_cache()
    free, total = torch.cuda.mem_get_info(device)
    cached_bytes = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return float(total - free - cached_bytes)


@dataclass(frozen=True, kw_only=True, slots=True)
class Growth:
    """Bytes that tensors take beyond those that existed before."""

    peak_bytes: float
    left_bytes: float
    """At the end."""

    def then(self, after: Growth) -> Growth:
        """Combine two growths, one after the other."""
        return Growth(
            peak_bytes=max(self.peak_bytes, self.left_bytes + after.peak_bytes),
            left_bytes=self.left_bytes + after.left_bytes,
        )


def measure_growth(work: Callable[[], object], device: torch.device) -> Growth:
    """Measure the memory of tensors while `work` runs.

    On a CPU, releases of earlier memory during `work` are not detected: the result is then too
    high, never too low.

    Raises:
        torch.OutOfMemoryError: they do not fit into a GPU.
    """
    if device.type != "cuda":
        gc.collect()  # garbage of an earlier measurement would count as released by `work`
        # Without it, Kineto writes two lines into the log at each use; it is read once.
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")
        with profile(profile_memory=True) as profiled:
            work()
        assert profiled.kineto_results is not None
        events = [e for e in profiled.kineto_results.events() if e.name() == "[memory]"]
        changes = (event.nbytes() for event in sorted(events, key=lambda e: e.start_ns()))
        sums = list(accumulate(changes, initial=0))
        return Growth(peak_bytes=max(sums), left_bytes=sums[-1])
    torch.cuda.synchronize(device)  # SYNC: earlier work is not part of it
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    work()
    torch.cuda.synchronize(device)  # SYNC: wait for its end
    return Growth(
        peak_bytes=torch.cuda.max_memory_allocated(device) - before,
        left_bytes=torch.cuda.memory_allocated(device) - before,
    )


def forget_peaks(device: torch.device) -> None:
    """Reset the peaks, so that later readings do not include them."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def extrapolate(peaks: Sequence[tuple[int, float]], fixed: float, num_rows: int) -> float:
    """Estimate the peak of a microbatch of more rows than any before, in bytes.

    It is at most the fixed part plus the rest in proportion to the rows: samples are at most as
    heavy together as apart. If the fixed part is underestimated, this is too high, and the line
    through the last two peaks is closer. But a peak is the highest of several, of which another
    may grow faster. So the line's last error counts twice, because the next stretch is twice as
    long.

    `peaks` are rows, ascending, and bytes; at least one. `fixed` bytes are in use whatever the
    rows: weights, gradients, the optimizer.
    """
    rows, peak = peaks[-1]
    most = fixed + (peak - fixed) * num_rows / rows
    if len(peaks) < 3:
        return most

    def on_line(points: Sequence[tuple[int, float]], at: int) -> float:
        (rows, peak), (last_rows, last_peak) = points
        return last_peak + (last_peak - peak) / (last_rows - rows) * (at - last_rows)

    error = abs(on_line(peaks[-3:-1], rows) - peak)
    return min(most, on_line(peaks[-2:], num_rows) + 2 * error)


# Sizes of a model's tensors, read from a model without weights.


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorSizes:
    """Sizes of one parameter."""

    name: str
    shape: tuple[int, ...]
    """Stored shape: packed if it is in 4 bits."""
    itemsize: int
    """Bytes of a number."""
    is_packed: bool
    """True if it is in 4 bits, and so never cast."""
    is_multiplied: bool
    """True if it is the matrix of a linear layer."""
    num_weights: int
    """Number of unpacked weights."""
    unit: int | None
    """Number of the layer that it is gathered with; None for the rest of the model."""

    @property
    def num_stored(self) -> int:
        """Stored numbers of the whole tensor."""
        return math.prod(self.shape)

    def gathered_bytes(self, itemsize: int) -> int:
        """Return the size in a compute dtype of this itemsize."""
        return self.num_stored * (self.itemsize if self.is_packed else itemsize)


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSizes:
    """Sizes of a whole model."""

    parameters: tuple[TensorSizes, ...]
    """Tied parameters are listed once."""
    buffer_bytes: int
    """Never sharded; includes scales of 4-bit blocks."""
    hidden_size: int
    """Width of the language model."""
    num_layers: int

    @property
    def num_weights(self) -> int:
        """Unpacked weights of all parameters."""
        return sum(each.num_weights for each in self.parameters)

    @property
    def stored_bytes(self) -> int:
        """Size of all full weights, as after reading them."""
        return sum(each.itemsize * each.num_stored for each in self.parameters)


def read_sizes(model: VisionLanguageModel, units: Sequence[nn.Module]) -> ModelSizes:
    """Read the sizes of a model, which may be on "meta"; `units` are gathered one at a time."""
    unit_of = {id(p): number for number, unit in enumerate(units) for p in unit.parameters()}
    modules = list(model.modules())
    packed = {id(m.weight): m.num_weights for m in modules if isinstance(m, PackedLinear)}
    multiplied = {id(m.weight) for m in modules if isinstance(m, nn.Linear)}
    language = model.sizes()[1]
    return ModelSizes(
        parameters=tuple(
            TensorSizes(
                name=name,
                shape=tuple(parameter.shape),
                itemsize=parameter.itemsize,
                is_packed=id(parameter) in packed,
                is_multiplied=id(parameter) in multiplied,
                num_weights=packed.get(id(parameter), parameter.numel()),
                unit=unit_of.get(id(parameter)),
            )
            for name, parameter in model.named_parameters()
        ),
        buffer_bytes=sum(buffer.numel() * buffer.itemsize for buffer in model.buffers()),
        hidden_size=language.hidden_size,
        num_layers=language.num_layers,
    )


# Sharding of a model over ranks, as far as it determines memory.


@dataclass(frozen=True, kw_only=True, slots=True)
class Sharing:
    """Sharding of a config, or of a file of accelerate."""

    is_sharded: bool
    """True if weights are gathered for computing; unsharded ones are cast by autocast."""
    num_shards: int = 1
    """Ranks over which weights, gradients and optimizer are sharded."""
    keeps_gathered: bool = False
    """True if all gathered weights stay until the backward pass."""
    num_ahead: int = 0
    """Layers that are prefetched."""
    accumulates_whole: bool = False
    """True if gradients are unsharded between the microbatches of a step."""
    offloads: bool = False
    """True if shards, gradients and optimizer are in the node's memory."""

    def num_on_first(self, tensor: TensorSizes) -> int:
        """Return the numbers on the first rank, the most of any: rows are dealt in equal runs."""
        if not self.is_sharded or not tensor.shape:
            return tensor.num_stored
        return math.ceil(tensor.shape[0] / self.num_shards) * math.prod(tensor.shape[1:])


def sharing_of(
    config: TrainConfig, file: AccelerateFile | None, places: Sequence[Place]
) -> Sharing:
    """Return the strategy's sharding on these ranks; `file` is that of `strategy: accelerate`.

    Raises:
        StageConfigError: `sharding.within` is `node`, but nodes have unequal ranks.
    """
    sharding = config.sharding
    if file is not None and file.distributed_type == "FSDP":
        return Sharing(
            is_sharded=True,
            num_shards=len(places) // file.num_replicas,
            accumulates_whole=True,
            offloads=file.offloads,
        )
    if file is not None or config.strategy != "fsdp2":
        return Sharing(is_sharded=False)
    return Sharing(
        is_sharded=True,
        num_shards=shape_by_nodes(places)[1] if sharding.within == "node" else len(places),
        keeps_gathered=not sharding.reshard_after_forward,
        num_ahead=sharding.forward_prefetch,
        accumulates_whole=sharding.accumulate == "whole",
        offloads=sharding.cpu_offload,
    )


def gathered_units(
    model: VisionLanguageModel, config: TrainConfig, file: AccelerateFile | None
) -> list[nn.Module]:
    """Return the parts of the model that are gathered one at a time; empty without sharding."""
    if file is not None:
        return wrapped_by_file(model, file) if file.distributed_type == "FSDP" else []
    return units_of(model, config.sharding.unit_min_params) if config.strategy == "fsdp2" else []


# Memory needs of a rank, computed from sizes alone.
#
# The state (weights, gradients, optimizer) is exact: tests compare it with real trainings. The
# rest is a lower bound, so what does not fit by these numbers really does not fit.


_FP32 = 4
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
    residual_itemsize: int | None = None,
    evaluates_held_out: bool = False,
) -> MemoryNeed:
    """Return the needs of a rank in training.

    `num_microbatches` are those of a step, `num_tokens` those of a microbatch on one rank. A row
    with a dense mask has `masked_length` tokens; 0 if rows have none. `residual_itemsize` is that
    of the residual stream; None: the compute dtype's. `evaluates_held_out`: during training.
    """
    learning = [each for each in sizes.parameters if each.name in learned]
    nums = [sharing.num_on_first(each) for each in learning]
    accumulates = sharing.is_sharded and sharing.accumulates_whole and num_microbatches > 1
    gathers_all = evaluates_held_out and sharing.is_sharded
    residual = sizes.hidden_size * sizes.num_layers * (residual_itemsize or compute_itemsize)
    # of full rows: a number for each pair of positions
    num_masks = max(1, num_tokens // masked_length) if masked_length else 0
    return MemoryNeed(
        weights_bytes=sum(e.itemsize * sharing.num_on_first(e) for e in sizes.parameters),
        buffers_bytes=sizes.buffer_bytes,
        gradients_bytes=_FP32 * sum(nums),
        optimizer_bytes=optimizer_bytes(nums, optimizer_kind),
        accumulated_bytes=_FP32 * sum(e.num_stored for e in learning) if accumulates else 0,
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
        return sum(2 * _FP32 * num + _FP32 for num in nums)  # and a count of steps
    is_paged, is_8_bit = kind.startswith("paged_"), kind.endswith("_8bit")
    # bitsandbytes keeps the state of smaller tensors in fp32, and does not page that of small ones
    packed = [num for num in nums if is_8_bit and num >= 4096]
    whole = [num for num in nums if not is_8_bit or num < 4096]
    stays = [[num for num in kind if not is_paged or num < 100_000] for kind in (packed, whole)]
    scales = sum(2 * _FP32 * math.ceil(num / BLOCK_SIZE) for num in packed)
    # values of the 256 codes of both moments, shared by all tensors
    codes = 2 * 256 * _FP32 if packed else 0
    return 2 * sum(stays[0]) + 2 * _FP32 * sum(stays[1]) + scales + codes


def checkpoint_bytes(sizes: ModelSizes, learned: Collection[str], optimizer_kind: str) -> int:
    """Return the size of a checkpoint on disk, over all ranks: trained weights and optimizer."""
    nums = [each.num_stored for each in sizes.parameters if each.name in learned]
    return _FP32 * sum(nums) + optimizer_bytes(nums, optimizer_kind.removeprefix("paged_"))


def _computing_bytes(sizes: ModelSizes, sharing: Sharing, itemsize: int) -> int:
    """Return the memory in addition to the master copy."""
    if not sharing.is_sharded:
        cast = (each for each in sizes.parameters if each.is_multiplied and not each.is_packed)
        return sum(itemsize * each.num_stored for each in cast) if itemsize < _FP32 else 0
    by_unit = Counter[int | None]()
    for each in sizes.parameters:
        by_unit[each.unit] += each.gathered_bytes(itemsize)
    rest = by_unit.pop(None, 0)
    in_order = [by_unit[unit] for unit in sorted(by_unit, key=lambda unit: unit or 0)]
    at_once = len(in_order) if sharing.keeps_gathered else 1 + sharing.num_ahead
    windows = (in_order[first : first + at_once] for first in range(len(in_order)))
    return rest + max(map(sum, windows), default=0)


# Check that export and evaluation, after the last step, fit in memory.
#
# Both start when all the training is done; their memory is a lower bound here.


_NO_EVALUATION = "disable it (`evaluate: {manifest: null}`)"


@dataclass(frozen=True, kw_only=True, slots=True)
class EndingNeed:
    """Needs in bytes."""

    export_bytes: int
    """In the memory of rank 0's node."""
    evaluation_bytes: int
    """For each rank, on its device and before that in its node's memory; 0 without evaluation."""


def ending_need(sizes: ModelSizes, *, evaluation_itemsize: int | None) -> EndingNeed:
    """Return the memory of export and evaluation.

    The export holds the gathered weights, with 4-bit ones unpacked, and another copy of those
    that adapters are merged into.

    `evaluation_itemsize` is that of its weights; None without an evaluation.
    """
    packed = sum(e.num_weights for e in sizes.parameters if e.is_packed)
    merged = sum(e.num_weights for e in sizes.parameters if not is_adapter(e.name))
    adapted = sum(
        each.num_weights
        for each in sizes.parameters
        if each.name.endswith(".weight") and without_adapters(each.name) != each.name
    )
    return EndingNeed(
        export_bytes=sizes.stored_bytes + _FP32 * (packed + adapted),
        evaluation_bytes=merged * (evaluation_itemsize or 0),
    )


def judge_ending(
    need: EndingNeed,
    *,
    card: DeviceFacts,
    host: HostMemory,
    exports: bool,
    num_local_ranks: int,
    node_name: str,
) -> Iterator[str]:
    """Yield what will not fit when the training is done, each with the remedy.

    Rank 0 `exports`. All `num_local_ranks` of the node evaluate at once.
    """
    if card.total_bytes is not None and need.evaluation_bytes > card.total_bytes:
        yield (
            "the evaluation after training will hold the whole model on each rank's card, "
            f"{_gb(need.evaluation_bytes)} or more, but {card} has {_gb(card.total_bytes)}: use "
            f"cards with more memory, or {_NO_EVALUATION}"
        )
    limit = f"{host.source} gives {_gb(host.limit_bytes)}: request more memory (resources.mem_gb)"
    together_bytes = num_local_ranks * need.evaluation_bytes
    if together_bytes > host.limit_bytes:
        yield (
            "the evaluation after training will read the whole model on each of the "
            f"{num_local_ranks} ranks on {node_name}, {_gb(together_bytes)} or more together, "
            f"but {limit}, or {_NO_EVALUATION}"
        )
    if exports and need.export_bytes > host.limit_bytes:
        yield (
            f"the export after training will take {_gb(need.export_bytes)} or more of the memory "
            f"of {node_name}, where rank 0 gathers the weights, but {limit}"
        )


# Check that a training fits in memory, and remedies if not.


_OTHERS_SHARE = 0.1
"""Share of a card: a CUDA context and a desktop take less."""


def judge_card(
    need: MemoryNeed, facts: DeviceFacts, remedy: str, *, fewer_rows: str = ""
) -> str | None:
    """Return a warning about the memory of a GPU; `fewer_rows` helps against activations only.

    Raises:
        StageConfigError: the training does not fit.
    """
    total_bytes, free_bytes = facts.total_bytes, facts.free_bytes
    assert total_bytes is not None
    assert free_bytes is not None
    described, limit = describe_need(need), f"but {facts} has {_gb(total_bytes)}"
    if need.least_bytes > total_bytes:
        message = (
            f"each rank must hold at least {_gb(need.least_bytes)} ({described}), {limit}: {remedy}"
        )
        raise StageConfigError(message)
    if need.expected_bytes > total_bytes:
        return (
            f"each rank will hold {_gb(need.expected_bytes)} or more ({described}, compute weights "
            f"{_gb(need.computing_bytes)}, activations {_gb(need.activations_bytes)} or more), "
            f"{limit}: {fewer_rows}{remedy}"
        )
    if total_bytes - free_bytes > _OTHERS_SHARE * total_bytes:
        return (
            f"other processes use {_gb(total_bytes - free_bytes)} of {facts}, and "
            f"{_gb(free_bytes)} are free: see `nvidia-smi` there"
        )
    return None


def judge_node(
    *, least_bytes: int, expected_bytes: int, host: HostMemory, node_name: str, remedy: str
) -> str | None:
    """Return a warning about the memory of a node.

    The ranks there together need `least_bytes`, and probably `expected_bytes`.

    Raises:
        StageConfigError: the training does not fit.
    """
    who = f"the ranks on {node_name} must hold"
    more = f"request more memory (resources.mem_gb), or {remedy}"
    limit = f"{host.source} gives {_gb(host.limit_bytes)}"
    if least_bytes > host.limit_bytes:
        message = f"{who} at least {_gb(least_bytes)}, but {limit}: {more}"
        if host.source == "SLURM_MEM_PER_CPU":  # a site's default, which may not be enforced
            return message
        raise StageConfigError(message)
    if expected_bytes > host.limit_bytes:
        return f"{who} {_gb(expected_bytes)} or more, but {limit}: {more}"
    if expected_bytes > host.available_bytes:
        return (
            f"{who} {_gb(expected_bytes)} or more, but {_gb(host.available_bytes)} are available "
            f"there now: {more}"
        )
    return None


def remedies(config: TrainConfig, need: MemoryNeed, *, num_ranks: int, optimizer_kind: str) -> str:
    """Return settings that reduce memory and are not in use yet, the most direct first."""
    sharding, is_fsdp2 = config.sharding, config.strategy == "fsdp2"
    accumulates = need.accumulated_bytes > need.gradients_bytes
    several = "" if num_ranks > 1 else " with several ranks"
    ways = {
        "disable held-out evaluations, which gather all weights (`evaluate: {every_steps: "
        "null}`)": need.gathered_bytes > 0,
        "set `sharding: {accumulate: sharded}`": accumulates and is_fsdp2,
        "train adapters instead of weights (`adapters: {rank: 16}`)": config.adapters is None,
        "quantise frozen layers to 4 bits under adapters (`quantize: {kind: nf4}`)": (
            config.quantize is None
        ),
        f"set `strategy: fsdp2`{several}": not is_fsdp2,
        "set `sharding: {within: all}`": is_fsdp2 and sharding.within == "node",
        "use more ranks under fsdp2 (resources.nodes, tasks_per_node)": True,
        "set `optimizer: {kind: adamw_8bit}`": optimizer_kind == "adamw",
        "set `sharding: {cpu_offload: true}` under fsdp2": (
            config.device == "cuda" and not sharding.cpu_offload
        ),
    }
    return "; or ".join(way for way, helps in ways.items() if helps)


def describe_need(need: MemoryNeed) -> str:
    """Describe a rank's memory: `weights 1.2 GB, gradients ..`."""
    parts = {
        "weights": need.weights_bytes + need.buffers_bytes,
        "gradients": max(need.gradients_bytes, need.accumulated_bytes),
        "optimizer": need.optimizer_bytes,
    }
    if need.gathered_bytes:
        parts["all weights gathered for a held-out evaluation"] = need.gathered_bytes
    return ", ".join(f"{name} {_gb(num_bytes)}" for name, num_bytes in parts.items())


def _gb(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.2f} GB" if num_bytes >= 1e8 else f"{num_bytes / 1e6:.2f} MB"
