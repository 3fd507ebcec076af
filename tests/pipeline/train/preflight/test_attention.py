"""What PyTorch answers is told with its consequence."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from pipeline.models.compute import AttentionSizes
from pipeline.train import attention
from pipeline.train.attention import (
    AttentionFound,
    AttentionUse,
    attention_note,
    attention_warning,
    find_kernels,
)

CPU = torch.device("cpu")
V100 = "Tesla V100-SXM2-16GB (compute capability 7.0)"
USE = AttentionUse(
    tower="language",
    sizes=AttentionSizes(num_heads=16, num_kv_heads=2, head_dim=128),
    dtype=torch.float16,
    is_causal=True,
    has_mask=False,
)


def test_what_is_chosen_on_a_cpu_is_pytorchs_own_choice():
    use = dataclasses.replace(USE, dtype=torch.float32)
    assert find_kernels(use, CPU, "sdpa").kernel == "flash"
    with sdpa_kernel(SDPBackend.MATH):
        assert find_kernels(use, CPU, "sdpa").kernel == "math"


def choice_of_a_v100(call: dict) -> str:
    """As aten/src/ATen/native/transformers/cuda/sdp_utils.cpp of PyTorch 2.13 chooses for sm_70."""
    return "math" if call["enable_gqa"] else "efficient"


def test_keys_are_repeated_where_that_alone_keeps_scores_out_of_memory(monkeypatch):
    monkeypatch.setattr(attention, "_choice", choice_of_a_v100)
    here = find_kernels(USE, CPU, "sdpa")
    assert (here.kernel, here.repeats_keys) == ("efficient", True)
    assert attention_note(here) == (
        "language efficient (with shared keys repeated for each head, which this card needs)"
    )
    assert attention_warning(here, where=V100, max_tokens=4096) is None
    masked = find_kernels(dataclasses.replace(USE, has_mask=True), CPU, "sdpa")
    assert (masked.kernel, masked.repeats_keys) == ("efficient", False)


@pytest.mark.parametrize("kernel", ["flash", "math"])
def test_keys_stay_shared_where_that_does_as_well(kernel, monkeypatch):
    monkeypatch.setattr(attention, "_choice", lambda _call: kernel)
    assert not find_kernels(USE, CPU, "sdpa").repeats_keys


def test_a_model_that_does_not_ask_pytorch_is_said_to_be_what_it_is():
    found = find_kernels(USE, CPU, "eager")
    assert attention_note(found) == "language eager"
    warning = attention_warning(found, where=V100, max_tokens=1000)
    assert "set `model: {attention: sdpa}`" in warning


def found(kernel: str, otherwise: str, **changes) -> AttentionFound:
    use = dataclasses.replace(USE, **changes)
    return AttentionFound(use=use, kernel=kernel, kernel_otherwise=otherwise)


@pytest.mark.parametrize("kernel", ["flash", "cudnn", "efficient"])
def test_kernels_that_hold_no_scores_are_no_reason_to_warn(kernel):
    assert attention_warning(found(kernel, kernel), where=V100, max_tokens=4096) is None


def test_scores_that_are_held_are_counted_and_rows_that_need_not_are_named():
    warning = attention_warning(found("math", "efficient"), where=V100, max_tokens=4096)
    assert warning == (
        f"attention of the language model runs the math kernel on {V100} in torch.float16, which "
        "stores every score: a row of 4096 tokens takes 1.07 GB in each layer; packed rows run "
        "efficient: `batching: {kind: packed}`"
    )


def test_packed_rows_whose_scores_are_held_are_told_of_rows_that_need_not():
    warning = attention_warning(found("math", "flash", has_mask=True), where="x", max_tokens=None)
    assert warning.endswith("without a mask run flash: `batching: {kind: grouped}`")
    nothing = attention_warning(found("math", "math"), where="x", max_tokens=None)
    assert nothing.endswith("use fewer tokens per row, or more microbatches")


def test_a_mask_that_leaves_flash_out_is_said():
    assert attention_note(found("efficient", "flash", has_mask=True)) == (
        "language efficient (packed rows have a dense mask; flash without)"
    )
    assert attention_note(found("flash", "efficient")) == "language flash"
