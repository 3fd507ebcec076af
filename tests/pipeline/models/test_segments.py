"""Attention within segments gives what transformers' own gives, in fewer calls."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from transformers import AutoModelForImageTextToText, MistralConfig, Qwen2Config

from pipeline.models.attention_kernels import shared_keys, varlen
from pipeline.models.attention_kernels.packed_rows import Packing, attention_arguments, dense_mask
from pipeline.models.attention_kernels.pictures import picture_segments
from pipeline.models.attention_kernels.varlen import reference_attention
from pipeline.models.computation.attention_sizes import AttentionSizes, attention_sizes
from pipeline.models.computation.compiling import compile_layers
from pipeline.models.computation.recompute import recompute_layers
from pipeline.models.hugging_face import HuggingFaceVLM, features_of
from pipeline.models.layouts.tower_arguments import plain_arguments
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.attention.kernel_selection import call_of, uses_of
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.training_data.batches import loss_of, to_device
from slurm_jobs.formats.configs.training_parts import CompileConfig
from tests.pipeline.models.conftest import Kind
from tests.pipeline.models.test_hugging_face import gradients, packed_rows

CPU = torch.device("cpu")
PLACE = RankDevice(device=CPU, precision="fp32", num_compute_threads=1)
QWEN = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
GRIDS = torch.tensor([[1, 8, 6], [1, 4, 10], [1, 8, 6], [1, 2, 4]])
"""Patches; windows of the tiny Qwen2.5-VL are 4 x 4 patches, with smaller ones at borders."""


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


def pictures(tower: Any) -> dict[str, Any]:
    size = tower.patch_embed.proj.weight[0].numel()
    draw = torch.Generator().manual_seed(4)
    pixels = torch.randn(int(GRIDS.prod(1).sum()), size, generator=draw)
    return {"pixel_values": pixels, "image_grid_thw": tuple(map(tuple, GRIDS.tolist()))}


def features_and_gradients(
    features: Iterator[torch.Tensor], tower: torch.nn.Module
) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    found = list(features)
    sum(
        ((n + 1) * value.square().sum() for n, value in enumerate(found)), torch.zeros(())
    ).backward()
    return [value.detach() for value in found], gradients(tower)


@pytest.mark.parametrize("uses_varlen", [False, True])
@pytest.mark.parametrize("name", QWEN)
def test_features_and_gradients_of_pictures_are_those_of_transformers_loop(
    make_kind, name, uses_varlen
):
    kind = make_kind(name)
    original, model = original_of(kind), build(kind)
    model.uses_varlen = uses_varlen
    vision = pictures(model.vision_tower)
    plain = plain_arguments(vision, CPU)
    theirs = features_of(original.model.get_image_features(**plain, return_dict=True))
    expected, expected_gradients = features_and_gradients(theirs, original.model.visual)
    found, found_gradients = features_and_gradients(
        features_of(model.image_features(vision)), model.vision_tower
    )
    # Of one call for several segments each is computed as alone: the same bits.
    exact = {"atol": 0.0, "rtol": 0.0}
    close = {"atol": 1e-5, "rtol": 1e-4} if uses_varlen else exact
    torch.testing.assert_close(found, expected, **close)
    assert found_gradients.keys() == expected_gradients.keys()
    for part, gradient in expected_gradients.items():
        scale = float(gradient.abs().max())
        torch.testing.assert_close(
            found_gradients[part] / scale, gradient / scale, atol=1e-5, rtol=1e-4
        )


CALLS = {
    # Two layers of four pictures of three sizes.
    "qwen2_vl": (2 * 4, 2 * 3),
    # One of 12 windows of two sizes, one of pictures.
    "qwen2_5_vl": (12 + 4, 2 + 3),
    "qwen3_vl": (2 * 4, 2 * 3),
}
"""By transformers, and here."""


@pytest.mark.parametrize("name", QWEN)
def test_attention_is_called_once_for_each_length_and_layer(make_kind, name):
    kind = make_kind(name)
    original, model = original_of(kind), build(kind)
    vision = pictures(model.vision_tower)
    with CountsAttention() as before, torch.no_grad():
        original.model.get_image_features(**plain_arguments(vision, CPU), return_dict=True)
    with CountsAttention() as after, torch.no_grad():
        model.image_features(vision)
    assert (before.calls, after.calls) == CALLS[name]


@pytest.mark.parametrize(
    ("lengths", "runs", "is_moved"),
    [
        ([4, 4, 4], ((3, 4),), False),
        ([4], ((1, 4),), False),
        ([6, 6, 2], ((2, 6), (1, 2)), False),
        ([6, 2, 6], ((1, 2), (2, 6)), True),
        ([2, 3, 2, 3, 3], ((2, 2), (3, 3)), True),
    ],
)
def test_segments_of_one_length_come_together_and_go_back(lengths, runs, is_moved):
    bounds = torch.tensor([0, *itertools.accumulate(lengths)], dtype=torch.int32)
    found = picture_segments(bounds, lambda tensor: tensor)
    assert (found.runs, found.order is not None) == (runs, is_moved)
    if found.order is not None:
        places = torch.arange(int(bounds[-1]))
        assert torch.equal(places[found.order][found.inverse], places)


def packed_loss(
    kind: Kind, model: VisionLanguageModel
) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    rows, length = packed_rows(kind.samples())
    loss = loss_of(model, to_device(kind.batch(model, rows, length), PLACE, model.layout))
    loss.backward()
    found = gradients(model)
    model.zero_grad()
    return loss.detach(), found


def test_packed_rows_with_one_additive_mask_learn_what_transformers_does(kind, monkeypatch):
    model = build(kind)
    with CountsAttention() as ours:
        loss, found = packed_loss(kind, model)
    monkeypatch.setattr(
        "pipeline.models.attention_kernels.packed_rows.takes_masks", lambda _config: False
    )
    with CountsAttention() as theirs:
        expected_loss, expected = packed_loss(kind, model)
    assert (len(ours.masks), ours.bool_masks) == (1, 0)
    assert theirs.bool_masks == model.sizes()[1].num_layers
    assert torch.equal(loss, expected_loss)
    assert all(torch.equal(found[name], value) for name, value in expected.items())


HOW = {
    "plain": lambda _model: None,
    "recomputed": recompute_layers,
    "traced": lambda model: compile_layers(model, CompileConfig(backend="eager"), CPU),
    "compiled": lambda model: compile_layers(model, CompileConfig(backend="aot_eager"), CPU),
}


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
PACKING = Packing(bounds=BOUNDS, longest=16, dtype=torch.float32)
IDS = torch.zeros(2, 16, dtype=torch.int64)


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


def test_mask_is_aligned_for_kernels_whatever_the_length():
    bounds = torch.tensor([0, 3, 13, 26], dtype=torch.int32)
    mask = dense_mask(bounds, torch.bfloat16, 2, 13)
    assert mask.shape == (2, 1, 13, 13)
    assert all(stride % 8 == 0 for stride in mask.stride()[:-1])
    assert mask[0, 0, 4].tolist() == [-np.inf] * 3 + [0.0] * 2 + [-np.inf] * 8


@pytest.mark.parametrize(
    ("config", "seen"),
    [
        (MistralConfig(sliding_window=4), {None: 4}),
        (MistralConfig(sliding_window=None), {None: 16}),
        (
            Qwen2Config(
                num_hidden_layers=2, use_sliding_window=True, sliding_window=4, max_window_layers=1
            ),
            {"full_attention": 16, "sliding_attention": 4},
        ),
        (Qwen2Config(sliding_window=4), {None: 16}),
    ],
)
def test_layers_with_a_sliding_window_have_a_mask_of_their_own(config, seen):
    found = attention_arguments(PACKING, config, IDS, uses_varlen=False)["attention_mask"]
    by_layer = found if isinstance(found, dict) else {None: found}
    most = {kind: int((mask[1, 0] == 0).sum(-1).max()) for kind, mask in by_layer.items()}
    assert most == seen


def test_an_unknown_language_model_gets_no_mask_from_here():
    config = Qwen2Config()
    config.model_type = "another"
    for uses_varlen in (False, True):
        found = attention_arguments(PACKING, config, IDS, uses_varlen=uses_varlen)
        assert found == {"attention_mask": None}


@pytest.mark.parametrize(("window", "is_ours"), [(None, True), (4, False)])
def test_rows_of_one_sample_have_a_mask_only_if_layers_have_a_window(window, is_ours):
    config = MistralConfig(sliding_window=window, attn_implementation="sdpa")
    rows = dataclasses.replace(PACKING, bounds=None)
    mask = attention_arguments(rows, config, IDS, uses_varlen=False)["attention_mask"]
    assert (mask is not None and mask.shape == (0,) * 4) == is_ours


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


@pytest.mark.parametrize("packed", [False, True])
def test_pytorch_is_asked_what_the_model_asks_of_it(kind, packed):
    model, samples = kind.build(), kind.samples()
    rows = [samples] if packed else [[sample] for sample in samples]
    calls, _ = calls_and_loss(model, kind.batch(model, rows))
    assert calls == expected_calls(model, has_mask=packed)


def test_repeated_shared_keys_need_no_sharing_and_give_the_same_loss(kind):
    model = kind.build()
    batch = kind.batch(model, [[sample] for sample in kind.samples()])
    calls, expected = calls_and_loss(model, batch)
    shared_keys.repeat_shared_keys(on=True)
    try:
        repeated_calls, loss = calls_and_loss(model, batch)
    finally:
        shared_keys.repeat_shared_keys(on=False)
    assert repeated_calls == expected_calls(model, has_mask=False, repeats_keys=True)
    assert any(gqa for *_, gqa in calls)
    assert not any(gqa for *_, gqa in repeated_calls)
    torch.testing.assert_close(loss, expected)
    assert calls_and_loss(model, batch)[0] == calls


def test_kernels_are_chosen_with_and_without_a_mask_if_rows_may_be_packed(make_kind):
    model = make_kind("qwen2_vl").build()
    masks = [use.has_mask for use in uses_of(model, {"auto", "shuffled"}, torch.float32)]
    assert masks == [False, False, True]  # the vision tower's is the first
    full_rows = [use.has_mask for use in uses_of(model, {"packed"}, torch.float32)]
    assert full_rows == [False, False, True]
    assert attention_sizes(model)[1] == AttentionSizes(num_heads=4, num_kv_heads=2, head_dim=8)
