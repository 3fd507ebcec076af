"""Calls of attention in a pass, counted and compared with what a model's sizes say."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from transformers import AutoModelForImageTextToText

from pipeline.models.hugging_face import HuggingFaceVLM
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.attention.kernel_selection import call_of, uses_of
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.training_data.batches import loss_of, to_device
from tests.pipeline.models.conftest import Kind
from tests.pipeline.models.passes import gradients, packed_rows

CPU = torch.device("cpu")
PLACE = RankDevice(device=CPU, precision="fp32", num_compute_threads=1)


class CountsAttention(TorchFunctionMode):
    """Counts calls of attention, and masks that are not additive or not shared by layers."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.masks: set[int] = set()
        self.bool_masks = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is functional.scaled_dot_product_attention:
            self.calls += 1
            mask = kwargs.get("attn_mask")
            if mask is not None:
                self.masks.add(mask.data_ptr())
                self.bool_masks += mask.dtype == torch.bool
        return func(*args, **kwargs)


def original_of(kind: Kind) -> Any:
    return AutoModelForImageTextToText.from_pretrained(kind.model_dir).train()


def build(kind: Kind) -> HuggingFaceVLM:
    model = kind.build().train()
    assert isinstance(model, HuggingFaceVLM)
    return model


def packed_loss(
    kind: Kind, model: VisionLanguageModel
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    rows, length = packed_rows(kind.samples())
    loss = loss_of(model, to_device(kind.batch(model, rows, length), PLACE, model.layout))
    loss.backward()
    found = gradients(model)
    model.zero_grad()
    return loss.detach(), found


class Recorder(TorchFunctionMode):
    """Notes how attention is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: set[tuple] = set()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is functional.scaled_dot_product_attention:
            names = ("query", "key", "value")
            self.calls.add(told_of({**dict(zip(names, args, strict=False)), **kwargs}))
        return func(*args, **kwargs)


def told_of(call: dict) -> tuple:
    query, key = call["query"], call["key"]
    mask = call.get("attn_mask")
    return (
        *(query.shape[1], key.shape[1], query.shape[-1]),
        *(mask is not None, bool(call.get("is_causal")), bool(call.get("enable_gqa"))),
    )


def calls_and_loss(model, batch) -> tuple[set[tuple], torch.Tensor]:
    with Recorder() as recorder:
        loss = loss_of(model, to_device(batch, PLACE, model.layout))
    return recorder.calls, loss


def expected_calls(model, *, has_mask: bool, **how) -> set[tuple]:
    uses = uses_of(model, {"packed" if has_mask else "shuffled"}, torch.float32)
    of_rows = [use for use in uses if use.has_mask == has_mask or use.tower == "vision"]
    return {told_of(call_of(use, CPU, **how)) for use in of_rows}
