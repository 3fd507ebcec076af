"""Which kernel PyTorch chooses for a model's attention, and what is said of it."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from pipeline.train.attention import kernel_selection
from pipeline.train.attention.kernel_selection import (
    attention_note,
    attention_warning,
    find_kernels,
    lengths_are_fixed,
)
from tests.pipeline.train.attention.kernels import USE, found

CPU = torch.device("cpu")
V100 = "Tesla V100-SXM2-16GB (compute capability 7.0)"


def test_what_is_chosen_on_a_cpu_is_pytorchs_own_choice():
    use = dataclasses.replace(USE, dtype=torch.float32)
    assert find_kernels(use, CPU, "sdpa").kernel == "flash"
    with sdpa_kernel(SDPBackend.MATH):
        assert find_kernels(use, CPU, "sdpa").kernel == "math"


def choice_of_a_v100(call: dict) -> str:
    """As aten/src/ATen/native/transformers/cuda/sdp_utils.cpp of PyTorch 2.13 chooses for sm_70."""
    return "math" if call["enable_gqa"] else "efficient"


def test_keys_are_repeated_where_that_alone_keeps_scores_out_of_memory(monkeypatch):
    monkeypatch.setattr(kernel_selection, "_choice", choice_of_a_v100)
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
    monkeypatch.setattr(kernel_selection, "_choice", lambda _call: kernel)
    assert not find_kernels(USE, CPU, "sdpa").repeats_keys


def test_a_model_that_does_not_ask_pytorch_is_reported_as_such():
    found = find_kernels(USE, CPU, "eager")
    assert attention_note(found) == "language eager"
    warning = attention_warning(found, where=V100, max_tokens=1000)
    assert "set `model: {attention: sdpa}`" in warning


@pytest.mark.parametrize(
    ("attention", "max_tokens", "warning"),
    [
        *((found(kernel, kernel), 4096, None) for kernel in ("flash", "cudnn", "efficient")),
        (
            found("math", "efficient"),
            4096,
            (
                f"attention of the language model runs the math kernel on {V100} in torch.float16, "
                "which stores every score: a row of 4096 tokens takes 1.07 GB in each layer; "
                "packed rows run efficient: `batching: {kind: packed}`"
            ),
        ),
        (
            found("math", "flash", has_mask=True),
            None,
            "without a mask run flash: `batching: {kind: grouped}`",
        ),
        (found("math", "math"), None, "use fewer tokens per row, or more microbatches"),
    ],
)
def test_scores_that_are_held_are_counted_and_rows_that_need_not_are_named(
    attention, max_tokens, warning
):
    said = attention_warning(attention, where=V100, max_tokens=max_tokens)
    assert said is None if warning is None else said.endswith(warning)


def test_a_mask_that_leaves_flash_out_is_reported():
    assert attention_note(found("efficient", "flash", has_mask=True)) == (
        "language efficient (packed rows have a dense mask; flash without)"
    )
    assert attention_note(found("flash", "efficient")) == "language flash"


@pytest.mark.parametrize(
    ("changes", "kinds", "is_fixed"),
    [
        ({}, {"shuffled"}, True),
        ({}, {"shuffled", "auto"}, False),
        ({}, {"packed"}, False),
        ({"num_tokens": 799}, {"shuffled"}, False),
        ({"num_images": 9}, {"grouped"}, False),
        ({"image_kind": "native"}, {"shuffled"}, False),
    ],
)
def test_lengths_are_fixed_where_all_samples_fill_the_limit(changes, kinds, is_fixed):
    values = {"image_kind": "fixed", "num_samples": 8, "num_images": 8, "num_tokens": 800}
    info = SimpleNamespace(**(values | changes), preprocess={"max_tokens": 100})
    assert lengths_are_fixed([info], kinds) == is_fixed
