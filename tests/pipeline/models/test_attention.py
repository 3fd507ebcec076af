"""The preflight asks PyTorch about the attention that models really call."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from pipeline.models import adapters
from pipeline.models.compute import AttentionSizes, attention_sizes
from pipeline.train.attention import call_of, uses_of
from pipeline.train.batches import loss_of, to_device
from pipeline.train.device import Workplace

CPU = torch.device("cpu")


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
    workplace = Workplace(device=CPU, precision="fp32", num_compute_threads=1)
    with Recorder() as recorder:
        loss = loss_of(model, to_device(batch, workplace, model.layout))
    return recorder.calls, loss


def asked_for(model, *, has_mask: bool, **how) -> set[tuple]:
    uses = uses_of(model, {"packed" if has_mask else "shuffled"}, torch.float32)
    of_rows = [use for use in uses if use.has_mask == has_mask or use.tower == "vision"]
    return {told_of(call_of(use, CPU, **how)) for use in of_rows}


@pytest.mark.parametrize("packed", [False, True])
def test_pytorch_is_asked_what_the_model_asks_of_it(kind, packed):
    model, samples = kind.build(), kind.samples()
    rows = [samples] if packed else [[sample] for sample in samples]
    calls, _ = calls_and_loss(model, kind.batch(model, rows))
    assert calls == asked_for(model, has_mask=packed)


def test_with_shared_keys_repeated_the_model_asks_for_no_sharing_and_gives_the_same(kind):
    model = kind.build()
    batch = kind.batch(model, [[sample] for sample in kind.samples()])
    calls, expected = calls_and_loss(model, batch)
    adapters.repeat_shared_keys(on=True)
    try:
        repeated_calls, loss = calls_and_loss(model, batch)
    finally:
        adapters.repeat_shared_keys(on=False)
    assert repeated_calls == asked_for(model, has_mask=False, repeats_keys=True)
    assert any(gqa for *_, gqa in calls)
    assert not any(gqa for *_, gqa in repeated_calls)
    torch.testing.assert_close(loss, expected)
    assert calls_and_loss(model, batch)[0] == calls


def test_rows_that_may_become_packed_are_asked_for_with_and_without_a_mask(make_kind):
    model = make_kind("qwen2_vl").build()
    masks = [use.has_mask for use in uses_of(model, {"auto", "shuffled"}, torch.float32)]
    assert masks == [False, False, True]  # the vision tower's is the first
    full_rows = [use.has_mask for use in uses_of(model, {"packed"}, torch.float32)]
    assert full_rows == [False, False, True]
    assert attention_sizes(model)[1] == AttentionSizes(num_heads=4, num_kv_heads=2, head_dim=8)
