"""Comparison of varlen attention with the dense mask on the first batch of an attempt.

The varlen kernel is chosen where no CPU can test it. Samples that see each other, or a wrong
gradient, would train without an error.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import nn

from pipeline.data.batch import Batch
from pipeline.models.computation.compiling import count_compiled
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.optimizer.local_parts import local_part
from pipeline.train.optimizer.loss_scaling import LossScaling
from pipeline.train.ranks.process_group import Ranks
from pipeline.train.strategies.strategy import ParallelModel, Strategy
from pipeline.train.training_data.batches import loss_of, to_device
from pipeline.train.trials.trial_passes import leaving_no_trace
from slurm_jobs.base.errors import StageConfigError

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
    scaling: LossScaling,
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
    packed = [batch for batch in batches if batch.is_packed]
    batch = packed[0] if packed else batches[0]
    way: dict[str, Any] = {
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
    worst: dict[str, float] = {}
    worst_rank: dict[str, int] = {}
    for rank, of_rank in enumerate(by_rank):
        for what, share in of_rank.items():
            if what not in worst or share >= worst[what]:
                worst[what], worst_rank[what] = share, rank
    numbers = ", ".join(f"{what} by {100 * share:.2g} %" for what, share in worst.items())
    limits = {}
    for name, tower in zip(_TOWERS, parallel.bare.sizes(), strict=True):
        for kind in _EPSILONS:
            limits[f"{kind} of {name}"] = tolerance(rank_device.dtype, kind, tower.num_layers)
    wrong = [what for what, share in worst.items() if share > limits[what]]
    if wrong:
        explained = ", ".join(f"{what} by {100 * limits[what]:.2g} %" for what in wrong)
        first_rank = min(worst_rank[what] for what in wrong)
        message = (
            "varlen attention differs from the dense mask in the first batch "
            f"(rank {first_rank}): {numbers}; rounding in {rank_device.precision} "
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
    scaling: LossScaling,
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
        gradients[name] = []
        for layer in layers:
            of_layer = [w.grad for w in layer.parameters() if w.grad is not None]
            if of_layer:
                gradients[name] = [local_part(gradient).cpu() for gradient in of_layer]
                break
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
    for what, share in differences.items():
        if math.isnan(share):
            differences[what] = math.inf
    return differences


def _norm(tensors: Sequence[torch.Tensor]) -> float:
    return math.hypot(*(float(tensor.float().norm()) for tensor in tensors))
