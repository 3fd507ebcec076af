"""Attention by the bounds of segments: that of the dense mask."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch.nn import functional

from pipeline.models.attention_kernels import varlen
from pipeline.models.attention_kernels.packed_rows import dense_mask
from pipeline.models.attention_kernels.varlen import reference_attention
from pipeline.models.computation.compiling import compile_layers
from pipeline.models.computation.recompute import recompute_layers
from pipeline.train.training_data.batches import loss_of, to_device
from slurm_jobs.formats.configs.training_parts import CompileConfig
from tests.pipeline.kinds import CAUSAL
from tests.pipeline.models.attention_calls import PLACE, CountsAttention, build, packed_loss
from tests.pipeline.models.conftest import Kind
from tests.pipeline.models.passes import packed_rows

CPU = torch.device("cpu")
HOW = {
    "plain": lambda _model: None,
    "recomputed": recompute_layers,
    "traced": lambda model: compile_layers(model, CompileConfig(backend="eager"), CPU),
    "compiled": lambda model: compile_layers(model, CompileConfig(backend="aot_eager"), CPU),
}


@pytest.mark.parametrize("kind", CAUSAL, indirect=True)
@pytest.mark.parametrize("how", ["plain", "recomputed"])
def test_varlen_gives_losses_and_gradients_of_the_dense_mask(kind, how):
    check_varlen(kind, how)


@pytest.mark.parametrize(
    ("name", "how"),
    [("llava", "traced"), pytest.param("qwen2_5_vl", "compiled", marks=pytest.mark.slow)],
)
def test_varlen_is_compiled_with_its_layer(make_kind, name, how):
    check_varlen(make_kind(name), how)


def check_varlen(kind: Kind, how: str) -> None:
    expected_loss, expected = packed_loss(kind, build(kind))
    model = build(kind)
    model.uses_varlen = True
    HOW[how](model)
    with CountsAttention() as counts:
        loss, found = packed_loss(kind, model)
    assert not counts.masks
    torch.testing.assert_close(loss, expected_loss, atol=1e-3, rtol=1e-5)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=3e-4, rtol=3e-3)


def test_borders_that_are_wrong_give_another_loss(make_kind):
    # The control of the tests above.
    kind = make_kind("llava")
    model = build(kind)
    model.uses_varlen = True
    rows, length = packed_rows(kind.samples())
    batch = kind.batch(model, rows, length)
    right = loss_of(model, to_device(batch, PLACE, model.layout))
    whole_rows = torch.tensor([0, length, 2 * length], dtype=torch.int32)
    leaking = dataclasses.replace(batch, segment_bounds=whole_rows)
    wrong = loss_of(model, to_device(leaking, PLACE, model.layout))
    assert abs(right - wrong) > 1e-2


BOUNDS = torch.tensor([0, 5, 6, 13, 16, 32], dtype=torch.int32)
"""Of two rows of 16; the last segment is a whole row."""


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize(("num_heads", "num_kv_heads", "size"), [(4, 2, 8), (3, 3, 5), (6, 1, 10)])
def test_reference_is_attention_under_the_dense_mask(num_heads, num_kv_heads, size, window):
    draw = torch.Generator().manual_seed(2)
    shapes = [(32, heads, size) for heads in (num_heads, num_kv_heads, num_kv_heads)]
    q, k, v = (
        torch.randn(s, generator=draw, dtype=torch.float64, requires_grad=True) for s in shapes
    )
    before = -1 if window is None else window - 1
    found = reference_attention(q, k, v, BOUNDS, size**-0.5, before, 0)
    mask = dense_mask(BOUNDS, torch.float64, 2, 16, window)
    rows = (each.unflatten(0, (2, 16)).transpose(1, 2) for each in (q, k, v))
    expected = functional.scaled_dot_product_attention(*rows, attn_mask=mask, enable_gqa=True)
    expected = expected.transpose(1, 2).flatten(0, 1)
    torch.testing.assert_close(found, expected)
    given = torch.randn(found.shape, generator=draw, dtype=torch.float64)
    ours = torch.autograd.grad(found, (q, k, v), given)
    theirs = torch.autograd.grad(expected, (q, k, v), given)
    torch.testing.assert_close(ours, theirs)


def test_reference_is_a_well_formed_operation():
    shapes = [(16, heads, 4) for heads in (4, 2, 2)]
    q, k, v = (torch.randn(s, requires_grad=True) for s in shapes)
    torch.library.opcheck(reference_attention, (q, k, v, BOUNDS[:5], 0.5, -1, 0))


def test_the_kernel_gets_what_autocast_computes_in():
    """Layers of 4 bits give fp32 for fp32; the kernel on a GPU takes bf16 and fp16 alone."""
    bounds = torch.tensor([0, 3, 5], dtype=torch.int32)
    given = [torch.randn(5, 2, 8) for _ in range(3)]
    borders = {"bounds": bounds, "longest": 3, "scale": None, "window": (-1, 0)}
    assert varlen.attend_varlen(*given, **borders).dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        found = varlen.attend_varlen(*given, **borders)
    assert found.dtype == torch.bfloat16
    expected = reference_attention(*given, bounds, 8**-0.5, -1, 0)
    torch.testing.assert_close(found.float(), expected, rtol=0.03, atol=0.03)


def test_attention_by_borders_is_counted_without_weights():
    """`python -m benchmarks.attention` does so."""
    given = [torch.empty(5, 2, 8, device="meta") for _ in range(3)]
    bounds = torch.empty(3, dtype=torch.int32, device="meta")
    borders = {"bounds": bounds, "longest": 3, "scale": None, "window": (-1, 0)}
    assert varlen.attend_varlen(*given, **borders).shape == (5, 2, 8)
