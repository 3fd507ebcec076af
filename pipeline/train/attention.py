"""Attention kernel that PyTorch selects for a model, determined without weights.

The selection depends on the card, the dtype, the head sizes and on the mask. A mask excludes
FlashAttention, and cards before compute capability 8.0 have none. If nothing else is left, the
`math` kernel silently stores every score in memory. If the reason is that heads share keys, the
keys are repeated (`pipeline.models.attention_kernels.shared_keys`).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
import transformers
from torch import nn
from torch.nn.attention import SDPBackend
from transformers.integrations.sdpa_attention import use_gqa_in_sdpa

from pipeline.data.batch import Batch
from pipeline.models.computation.attention_sizes import AttentionSizes, attention_sizes
from pipeline.models.computation.compiling import count_compiled
from pipeline.models.layouts.native_patches import NativePatches
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.batches import loss_of, to_device
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.optimizer.local_parts import local_part
from pipeline.train.optimizer.loss_scaling import Scaling
from pipeline.train.ranks.process_group import Ranks
from pipeline.train.strategies.strategy import ParallelModel, Strategy
from pipeline.train.trials.trial_passes import leaving_no_trace
from slurm_jobs.shared.errors import StageConfigError

if TYPE_CHECKING:
    from pipeline.data.disk_format.dataset_info import DatasetInfo


# Comparison of varlen attention with the dense mask on the first batch of an attempt.
#
# The varlen kernel is chosen where no CPU can test it. Samples that see each other, or a wrong
# gradient, would train without an error.


log = logging.getLogger(__name__)

_EPSILONS = {"outputs": 8, "gradients": 16}
"""Multiples of the rounding error after one pass through a few layers, forward and backward.
Errors differ by more: in a model of two random layers by 10 % and 13 % if samples see each
other, and by 0.1 % and 0.7 % from rounding in bf16."""
_NUM_FEW_LAYERS = 8
"""More layers add rounding like a random walk. With 80 random layers in bf16, rounding gave 5.7
% and 13 %; if samples see each other, or half a gradient is lost, at least 47 %."""
_LEAST_TOLERANCE = 1e-3
_TOWERS = ("the vision tower", "the language model")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pass:
    """Results of one attention implementation on this rank, by name of the tower."""

    outputs: dict[str, torch.Tensor]
    """[.., width] of the last layer."""
    gradients: dict[str, list[torch.Tensor]]
    """On the host, local to this rank: gradients of the first trained layer."""
    loss: float


def tolerance(dtype: torch.dtype, kind: str, num_layers: int) -> float:
    """Return the relative difference of `outputs` or `gradients` that rounding may explain.

    `num_layers` is that of the tower.
    """
    growth = math.sqrt(max(1.0, num_layers / _NUM_FEW_LAYERS))
    return max(_LEAST_TOLERANCE, growth * _EPSILONS[kind] * torch.finfo(dtype).eps)


def check_attention(
    batches: Sequence[Batch],
    *,
    strategy: Strategy,
    parallel: ParallelModel,
    scaling: Scaling,
    rank_device: RankDevice,
    ranks: Ranks,
) -> None:
    """Compare both implementations on a microbatch of the first step; a collective for varlen.

    Compares the outputs of the last layer of each tower, and the gradients of the first trained
    one. Compiled layers have no backward pass here: the other implementation would be compiled
    only for it. Nothing is learned, and random number generators are restored.

    Raises:
        StageConfigError: on all ranks: they differ by more than rounding.
    """
    if not parallel.bare.uses_varlen:
        return
    batch = next((each for each in batches if each.is_packed), batches[0])
    way = {
        "strategy": strategy,
        "parallel": parallel,
        "scaling": scaling,
        "rank_device": rank_device,
    }
    try:
        parallel.bare.uses_varlen = False
        dense = _compute(batch, **way)
    finally:
        parallel.bare.uses_varlen = True
    varlen = _compute(batch, **way)
    differences = _differences(varlen, dense, may_overflow=scaling.is_on)
    by_rank: list[dict[str, float]] = ranks.from_main(ranks.gather(differences))
    worst = {
        what: max((each.get(what, 0.0), rank) for rank, each in enumerate(by_rank))
        for what in dict.fromkeys(what for each in by_rank for what in each)
    }
    numbers = ", ".join(f"{what} by {100 * share:.2g} %" for what, (share, _) in worst.items())
    most = {
        f"{kind} of {name}": tolerance(rank_device.dtype, kind, tower.num_layers)
        for kind in _EPSILONS
        for name, tower in zip(_TOWERS, parallel.bare.sizes(), strict=True)
    }
    wrong = {what: rank for what, (share, rank) in worst.items() if share > most[what]}
    if wrong:
        explained = ", ".join(f"{what} by {100 * most[what]:.2g} %" for what in wrong)
        message = (
            "varlen attention differs from the dense mask in the first batch "
            f"(rank {min(wrong.values())}): {numbers}; rounding in {rank_device.precision} "
            f"explains {explained}. The losses of rank {ranks.rank} are {varlen.loss:.6g} and "
            f"{dense.loss:.6g}. Nothing was learned. Set `attention: dense` (torch "
            f"{torch.__version__}, transformers {transformers.__version__})"
        )
        raise StageConfigError(message)
    if ranks.rank == 0:
        log.info("attention: varlen differs from the dense mask by rounding alone: %s", numbers)


def _compute(
    batch: Batch,
    *,
    strategy: Strategy,
    parallel: ParallelModel,
    scaling: Scaling,
    rank_device: RankDevice,
) -> _Pass:
    learns = not count_compiled(parallel.bare)
    inputs = to_device(batch, rank_device, parallel.bare.layout)
    with (
        leaving_no_trace(rank_device.device),
        _last_outputs(parallel.bare) as outputs,
        strategy.microbatch(parallel.model, is_last=True),
    ):
        with strategy.forward_context(), nullcontext() if learns else torch.no_grad():
            loss = loss_of(parallel.model, inputs)
        if learns:
            scaling.backward(loss)
    # SYNC: once per attempt, like the numbers that are compared.
    gradients: dict[str, list[torch.Tensor]] = {}
    for name, layers in zip(_TOWERS, parallel.bare.towers(), strict=True):
        by_layer = ([w.grad for w in layer.parameters() if w.grad is not None] for layer in layers)
        first = next(filter(None, by_layer), [])
        gradients[name] = [local_part(gradient).cpu() for gradient in first]
    parallel.optimizer.zero_grad()
    return _Pass(outputs=outputs, gradients=gradients, loss=float(loss.detach()))


@contextmanager
def _last_outputs(model: VisionLanguageModel) -> Iterator[dict[str, torch.Tensor]]:
    """Yield the outputs of the towers' last layers, once they have run."""
    outputs: dict[str, torch.Tensor] = {}

    def hook_of(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def keep(_layer: nn.Module, _given: Any, output: Any) -> None:
            outputs[name] = (output[0] if isinstance(output, tuple) else output).detach()

        return keep

    handles = [
        layers[-1].register_forward_hook(hook_of(name))
        for name, layers in zip(_TOWERS, model.towers(), strict=True)
    ]
    try:
        yield outputs
    finally:
        for handle in handles:
            handle.remove()


def _differences(varlen: _Pass, dense: _Pass, *, may_overflow: bool) -> dict[str, float]:
    """Return relative differences by what is compared.

    For outputs the mean over tokens, because a few are very large in some models. Values that
    are not finite with the dense mask are left out. So are gradients that overflowed with
    varlen only, because the fp16 scale may overflow one implementation and not the other.
    """
    differences = {}
    for name, output in dense.outputs.items():
        norms = output.float().norm(dim=-1)
        errors = (varlen.outputs[name].float() - output.float()).norm(dim=-1)
        if norms.isfinite().all():
            least = torch.finfo(torch.float32).tiny  # a token may be all zeros
            shares = errors / norms.clamp_min(least)
            differences[f"outputs of {name}"] = float(shares.mean())
    for name, gradients in dense.gradients.items():
        norm = _norm(gradients)
        overflows = may_overflow and not math.isfinite(_norm(varlen.gradients[name]))
        if math.isfinite(norm) and norm and not overflows:
            pairs = zip(varlen.gradients[name], gradients, strict=True)
            differences[f"gradients of {name}"] = _norm([a - b for a, b in pairs]) / norm
    return {what: math.inf if math.isnan(share) else share for what, share in differences.items()}


def _norm(tensors: Sequence[torch.Tensor]) -> float:
    return math.hypot(*(float(tensor.float().norm()) for tensor in tensors))


# Choice of the attention for packed samples and for images of varying size.
#
# `varlen` takes the bounds of samples and images; `dense` adds a mask to packed rows, and attends
# images of one size at a time (`pipeline.models.attention_kernels.packed_rows`).


_MOST_HEAD_SIZE = 192
"""FlashAttention's backward pass supports larger sizes only on some cards
(aten/src/ATen/native/transformers/cuda/sdp_utils.cpp of PyTorch)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionFacts:
    """Facts that determine the choice."""

    device_type: str
    """`cuda` or `cpu`."""
    capability: tuple[int, int] | None
    """Compute capability of the GPU; None for CPUs."""
    precision: str
    """`fp32`, `bf16` or `fp16`."""
    implementation: str
    """Attention implementation of the model: `sdpa` or `eager`."""
    text_type: str
    """`model_type` of the language model's config."""
    takes_borders: bool
    """True if that language model is known to pass bounds on."""
    head_sizes: tuple[int, ...]
    """Head sizes of the towers."""
    dropout: float
    """Dropout of the scores, in training."""
    packs: bool
    """True if a row may have several samples."""
    sizes_differ: bool
    """True if images have varying sizes."""
    why_no_varlen: str
    """Reason why this PyTorch has no such kernel; empty if it has."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionChoice:
    """Attention of a run, and the reason."""

    packed: Literal["varlen", "dense"]
    """For packed rows, and for images of varying size."""
    reason: str

    @property
    def uses_varlen(self) -> bool:
        """True if attention takes bounds."""
        return self.packed == "varlen"


def choose_attention(
    setting: Literal["auto", "varlen", "dense"], facts: AttentionFacts
) -> AttentionChoice:
    """Return the attention of a training; equal on ranks with equal facts.

    Raises:
        StageConfigError: `varlen` is required but cannot run.
    """
    if setting == "dense":
        return AttentionChoice(packed="dense", reason="set in the config")
    problem = _why_not_here(facts)
    if setting == "varlen":
        # A CPU computes the reference, whatever the precision.
        problem = problem if facts.device_type == "cuda" else _why_not_this_model(facts)
        if problem:
            message = f"attention is varlen, but {problem}: set `attention: auto` or `dense`"
            raise StageConfigError(message)
        return AttentionChoice(packed="varlen", reason="set in the config")
    if not (facts.packs or facts.sizes_differ):
        problem = "no row has several samples, and images are of one size"
    if problem:
        return AttentionChoice(packed="dense", reason=problem)
    assert facts.capability is not None
    major, minor = facts.capability
    reason = f"compute capability {major}.{minor}, {facts.precision}"
    return AttentionChoice(packed="varlen", reason=reason)


def _why_not_this_model(facts: AttentionFacts) -> str:
    if facts.implementation != "sdpa":
        return f"model.attention is {facts.implementation}"
    if facts.packs and not facts.takes_borders:
        return f"language models of type {facts.text_type} are not known to accept sample bounds"
    if facts.dropout:
        return (
            f"the model has a dropout of {facts.dropout:g} on scores, which varlen does not support"
        )
    return ""


def _why_not_here(facts: AttentionFacts) -> str:
    if facts.capability is None:
        return "there is no varlen kernel for CPUs"
    # FlashAttention 2's limit (github.com/Dao-AILab/flash-attention): torch's varlen_attn uses it
    if facts.capability < (8, 0):
        major, minor = facts.capability
        return f"the GPU has compute capability {major}.{minor}, but the kernel needs 8.0 (A100)"
    if facts.precision not in {"bf16", "fp16"}:
        return f"precision is {facts.precision}, but the kernel needs bf16 or fp16"
    if max(facts.head_sizes) > _MOST_HEAD_SIZE:
        return (
            f"heads have {max(facts.head_sizes)} numbers, but the kernel supports {_MOST_HEAD_SIZE}"
        )
    return facts.why_no_varlen or _why_not_this_model(facts)


def lengths_are_fixed(infos: Sequence[DatasetInfo], batching_kinds: Collection[str]) -> bool:
    """Check whether all batches of a training have the same shapes.

    cuDNN plans its attention for each batch size and pair of lengths, 23 to 37 ms each, and
    keeps every plan (github.com/modelscope/FunASR/pull/3705): this pays off for repeated
    shapes.
    """
    return not {"packed", "auto"} & set(batching_kinds) and all(
        info.image_kind == "fixed"
        and info.num_images == info.num_samples
        and info.num_tokens == info.num_samples * info.preprocess.get("max_tokens", 0)
        for info in infos
    )


_NAMES = {
    SDPBackend.MATH: "math",
    SDPBackend.FLASH_ATTENTION: "flash",
    SDPBackend.EFFICIENT_ATTENTION: "efficient",
    SDPBackend.CUDNN_ATTENTION: "cudnn",
}
_LENGTH = 128
"""Length of the row in the query to PyTorch; kernels do not depend on it."""
_HOLDS_SCORES = ("math", "eager")


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionUse:
    """Attention call of a tower."""

    tower: str
    sizes: AttentionSizes
    dtype: torch.dtype
    is_causal: bool
    has_mask: bool
    """True for packed rows with a dense mask, which keeps samples apart, or bounds."""
    sizes_differ: bool = False
    """True if its rows are images of varying size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionFound:
    """Kernel that runs, and the one for the other kind of rows."""

    use: AttentionUse
    kernel: str
    """`flash`, `efficient`, `cudnn`, `math`; or `varlen` or `eager`, which PyTorch does not
    select."""
    kernel_otherwise: str
    """Kernel without the mask, or with one if there is none."""
    repeats_keys: bool = False
    """True if it needs shared keys repeated for each head."""


def uses_of(
    model: VisionLanguageModel, batching_kinds: Collection[str], dtype: torch.dtype
) -> list[AttentionUse]:
    """Return the attention calls of a model's towers, with rows of all these kinds.

    Packed rows have samples that must not see each other, and so a dense mask; but a microbatch
    in which each row is filled by one sample has none.
    """
    vision, language = attention_sizes(model)
    may_pack = not {"packed", "auto"}.isdisjoint(batching_kinds)
    of_pictures = AttentionUse(
        tower="vision",
        sizes=vision,
        dtype=dtype,
        is_causal=False,
        has_mask=False,
        sizes_differ=isinstance(model.layout, NativePatches),
    )
    of_rows = AttentionUse(
        tower="language", sizes=language, dtype=dtype, is_causal=True, has_mask=False
    )
    return [of_pictures, of_rows, *([replace(of_rows, has_mask=True)] if may_pack else [])]


def find_kernels(
    use: AttentionUse, device: torch.device, attention_name: str, *, uses_varlen: bool = False
) -> AttentionFound:
    """Query PyTorch's selection; uses a few kilobytes, and runs no kernel.

    Only the implementation `sdpa` uses PyTorch's selection. With `uses_varlen` attention takes
    bounds instead of a mask, and for images of varying size.
    """
    if uses_varlen and (use.has_mask or use.sizes_differ):
        return AttentionFound(use=use, kernel="varlen", kernel_otherwise="varlen")
    if attention_name != "sdpa":
        return AttentionFound(use=use, kernel=attention_name, kernel_otherwise=attention_name)
    kernel, repeats = _best_kernel(use, device)
    otherwise, _ = _best_kernel(replace(use, has_mask=not use.has_mask), device)
    return AttentionFound(use=use, kernel=kernel, kernel_otherwise=otherwise, repeats_keys=repeats)


def _best_kernel(use: AttentionUse, device: torch.device) -> tuple[str, bool]:
    """Return the kernel, and whether shared keys must be repeated for it, if nothing else helps."""
    kernel = _choice(call_of(use, device))
    if kernel in _HOLDS_SCORES:
        repeated = _choice(call_of(use, device, repeats_keys=True))
        if repeated not in _HOLDS_SCORES:
            return repeated, True
    return kernel, False


def _choice(call: dict[str, Any]) -> str:
    """Return the selection of `scaled_dot_product_attention`."""
    number = torch._fused_sdp_choice(**call)  # noqa: SLF001 - there is no public way to ask
    return _NAMES.get(SDPBackend(number), "another")


def call_of(
    use: AttentionUse, device: torch.device, *, repeats_keys: bool = False
) -> dict[str, Any]:
    """Return PyTorch's arguments: shared keys are repeated if transformers' rule requires it.

    `repeats_keys`: always repeat them.
    """
    sizes = use.sizes
    options: dict[str, Any] = {"dtype": use.dtype, "device": device, "requires_grad": True}
    query = torch.empty(1, sizes.num_heads, _LENGTH, sizes.head_dim, **options)
    keys = torch.empty(1, sizes.num_kv_heads, _LENGTH, sizes.head_dim, **options)
    mask = None
    if use.has_mask:
        mask = torch.empty(1, 1, _LENGTH, _LENGTH, dtype=use.dtype, device=device)
    is_shared = sizes.num_kv_heads < sizes.num_heads
    shares = is_shared and not repeats_keys and use_gqa_in_sdpa(mask, keys, keys)
    if is_shared and not shares:
        keys = query
    return {
        "query": query,
        "key": keys,
        "value": keys,
        "attn_mask": mask,
        "is_causal": use.is_causal and mask is None,
        "enable_gqa": shares,
    }


def attention_note(choice: AttentionFound) -> str:
    """Return `language efficient (a dense mask keeps packed samples apart; flash without)`."""
    note = f"{choice.use.tower} {choice.kernel}"
    if choice.use.has_mask and choice.kernel != choice.kernel_otherwise:
        note += f" (packed rows have a dense mask; {choice.kernel_otherwise} without)"
    if choice.repeats_keys:
        note += " (with shared keys repeated for each head, which this card needs)"
    return note


def attention_warning(choice: AttentionFound, *, where: str, max_tokens: int | None) -> str | None:
    """Warn on a GPU about memory if every score is stored.

    `where` is the card; `max_tokens` of a row are None if unknown.
    """
    if choice.kernel not in _HOLDS_SCORES:
        return None
    length = max_tokens or 1000
    num_bytes = choice.use.sizes.num_heads * length**2 * 4  # in fp32
    return (
        f"attention of the {choice.use.tower} model runs the {choice.kernel} kernel on {where} in "
        f"{choice.use.dtype}, which stores every score: a row of {length} tokens takes "
        f"{num_bytes / 1e9:.2f} GB in each layer{_remedy(choice)}"
    )


def _remedy(choice: AttentionFound) -> str:
    if choice.kernel == "eager":
        return "; set `model: {attention: sdpa}`"
    if choice.kernel_otherwise in _HOLDS_SCORES:
        return "; use fewer tokens per row, or more microbatches"
    if choice.use.has_mask:
        return f"; rows without a mask run {choice.kernel_otherwise}: `batching: {{kind: grouped}}`"
    if choice.use.tower == "vision":  # its rows are images, packed or not
        return ""
    return f"; packed rows run {choice.kernel_otherwise}: `batching: {{kind: packed}}`"
