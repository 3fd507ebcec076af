"""Logits of one sample of a microbatch, by the training's own forward pass, without a trace of it.

The pass is that of the training: the same model as the strategy wraps it, the same autocast, the
same kernels. Layers that are compiled or recomputed run as they are, because both need gradients:
nothing is compiled for these shapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import nn

from pipeline.data.batch import Batch
from pipeline.models.finetuning.packed_linear import PackedLinear
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.device.device_memory import give_back_memory
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.strategies.fsdp_units import forget_passes
from pipeline.train.strategies.strategy import ParallelModel, Strategy
from pipeline.train.training_data.batches import losses_of, to_device
from pipeline.train.trials.trial_passes import leaving_no_trace

_NUM_ENDS = 64
"""Tokens at the beginning and at the end of a sample whose logits are compared: with a vocabulary
of 262,000 they take 67 MB in bf16."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SampleLogits:
    """Computes logits with the model of a training; all ranks make the same passes."""

    strategy: Strategy
    parallel: ParallelModel
    rank_device: RankDevice

    def __call__(self, batch: Batch, start: int, num_tokens: int) -> torch.Tensor:
        """Return [num, vocabulary] on the host: logits at the first and last tokens of a sample.

        SYNC: the host waits for the pass.

        Args:
            batch: Microbatch with the sample.
            start: First token of the sample in the concatenated rows.
            num_tokens: Tokens of the sample.
        """
        bare = self.parallel.bare
        inputs = to_device(batch, self.rank_device, bare.layout)
        places = torch.arange(start, start + num_tokens)
        if num_tokens > 2 * _NUM_ENDS:
            places = torch.cat([places[:_NUM_ENDS], places[-_NUM_ENDS:]])
        places = places.to(self.rank_device.device)
        inputs = replace(
            inputs, supervised=places, targets=torch.zeros_like(places), groups=None, classes={}
        )
        logits: list[torch.Tensor] = []
        handle = bare.output_head().register_forward_hook(
            lambda _head, _hidden, output: logits.append(output.detach())
        )
        try:
            with torch.no_grad(), self.strategy.forward_context():
                losses_of(self.parallel.model, inputs)
        finally:
            handle.remove()
        return torch.cat(logits).cpu()

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """Switch dropout off in the block; leave generators, buffers and modes as they were."""
        bare, device = self.parallel.bare, self.rank_device.device
        modes = [(module, module.training) for module in bare.modules()]
        buffers = list(_buffers_of(bare))
        with leaving_no_trace(device):
            try:
                for module, _ in modes:
                    module.training = False
                # A batch without an image still runs the vision tower, because other ranks do.
                bare.training = True
                yield
            finally:
                for module, mode in modes:
                    module.training = mode
                for module, name, buffer, value in buffers:
                    buffer.copy_(value)
                    setattr(module, name, buffer)
                forget_passes(self.parallel.model)
        del buffers
        if device.type == "cuda":
            give_back_memory(device)

    @contextmanager
    def rounding_noise(self, share: float) -> Iterator[None]:
        """Change the output of every layer of both towers by this share, up and down in turns."""

        def disturb(_layer: nn.Module, _inputs: Any, output: Any) -> Any:
            hidden = output[0] if isinstance(output, tuple) else output
            numbers = torch.arange(hidden.shape[-1], device=hidden.device)
            factors = 1 + share * (1 - 2 * (numbers % 2))
            changed = (hidden.float() * factors).to(hidden.dtype)
            return (changed, *output[1:]) if isinstance(output, tuple) else changed

        layers = chain.from_iterable(self.parallel.bare.towers())
        handles = [layer.register_forward_hook(disturb) for layer in layers]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def _buffers_of(
    model: VisionLanguageModel,
) -> Iterator[tuple[nn.Module, str, torch.Tensor, torch.Tensor]]:
    """Yield each buffer with its module, its name and a copy; not the scales of 4-bit layers."""
    for module in model.modules():
        if isinstance(module, PackedLinear):
            continue
        for name, buffer in module.named_buffers(recurse=False):
            yield module, name, buffer, buffer.clone()
