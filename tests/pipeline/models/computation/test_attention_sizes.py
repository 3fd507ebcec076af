"""Sizes of a model's attention, which say what PyTorch is asked."""

from __future__ import annotations

import pytest
import torch

from pipeline.models.computation.attention_sizes import AttentionSizes, attention_sizes
from pipeline.train.attention.kernel_selection import uses_of
from tests.pipeline.models.attention_calls import calls_and_loss, expected_calls


@pytest.mark.parametrize("packed", [False, True])
def test_pytorch_is_asked_what_the_model_asks_of_it(kind, packed):
    model, samples = kind.build(), kind.samples()
    rows = [samples] if packed else [[sample] for sample in samples]
    calls, _ = calls_and_loss(model, kind.batch(model, rows))
    has_mask = packed or bool(model.block_layers)
    expected = expected_calls(model, has_mask=has_mask)
    assert expected <= calls
    assert (expected == calls) == (kind.name != "gemma4")  # whose layers have heads of two sizes


def test_kernels_are_chosen_with_and_without_a_mask_if_rows_may_be_packed(make_kind):
    model = make_kind("qwen2_vl").build()
    masks = [use.has_mask for use in uses_of(model, {"auto", "shuffled"}, torch.float32)]
    assert masks == [False, False, True]  # the vision tower's is the first
    full_rows = [use.has_mask for use in uses_of(model, {"packed"}, torch.float32)]
    assert full_rows == [False, False, True]
    assert attention_sizes(model)[1] == AttentionSizes(num_heads=4, num_kv_heads=2, head_dim=8)
