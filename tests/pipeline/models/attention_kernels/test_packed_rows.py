"""Samples that share a row never see each other: packed and unpacked agree."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import torch
from transformers import MistralConfig, Qwen2Config

from pipeline.data.batch import Batch, collate
from pipeline.data.batches.buffer_pool import BufferPool
from pipeline.data.disk_format.sample_members import Sample
from pipeline.data.gathered import ImageRule
from pipeline.models.attention_kernels.packed_rows import Packing, attention_arguments, dense_mask
from pipeline.models.small_vlm import SmallVLM
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.training_data import batches
from tests.pipeline.kinds import CAUSAL
from tests.pipeline.models.attention_calls import CountsAttention, build, packed_loss
from tests.pipeline.models.small import IMAGE, PAD

SHAPE = (32, 32, 3)
RULE = ImageRule(size=SHAPE[:2])
CPU = RankDevice(device=torch.device("cpu"), precision="fp32", num_compute_threads=1)


def make_samples(num_images: tuple[int, ...] = (1, 0, 2, 1, 1)) -> list[Sample]:
    """Samples of different lengths, with so many images each."""
    draw = np.random.default_rng(5)
    samples = []
    for number, images in enumerate(num_images):
        text = draw.integers(5, 40, size=4 + 3 * number)
        ids = np.concatenate([[3], [IMAGE] * (4 * images), text]).astype(np.int32)
        labels = np.where(np.arange(len(ids)) > len(ids) - 4, ids, -100).astype(np.int32)
        pixels = tuple(draw.integers(0, 256, size=SHAPE, dtype=np.uint8) for _ in range(images))
        samples.append(
            Sample(key=str(number), input_ids=ids, labels=labels, images=pixels, meta={})
        )
    return samples


def make_batch(rows: list[list[Sample]], length: int | None = None) -> Batch:
    pool = BufferPool(pin_memory=False)
    ids = {"image_token_id": IMAGE, "pad_token_id": PAD}
    return collate(rows, rule=RULE, **ids, epoch=0, buffers=pool, length=length)


def hidden_states(model: SmallVLM, batch: Batch) -> torch.Tensor:
    """Float [num_rows * length, hidden] as the model sees the batch."""
    inputs = batches.to_device(batch, CPU, model.layout)
    hidden, _ = model.hidden_states(inputs.input_ids, inputs.vision, inputs.position_ids)
    return hidden.flatten(0, 1)


def loss_of(model: SmallVLM, batch: Batch) -> torch.Tensor:
    return batches.loss_of(model, batches.to_device(batch, CPU, model.layout))


def test_packed_and_unpacked_logits_agree(model):
    samples = make_samples()
    packed = make_batch([[samples[0], samples[1], samples[2]], [samples[4], samples[3]]], length=60)
    found = model.language.lm_head(hidden_states(model, packed))
    bounds = packed.segment_bounds.tolist()
    segments = [
        found[start:end]
        for start, end in itertools.pairwise(bounds)
        if packed.input_ids.flatten()[start] != PAD
    ]
    order = [0, 1, 2, 4, 3]
    for number, segment in zip(order, segments, strict=True):
        alone = make_batch([[samples[number]]])
        expected = model.language.lm_head(hidden_states(model, alone))
        torch.testing.assert_close(segment, expected, atol=2e-5, rtol=1e-4)


def test_logits_would_differ_if_samples_saw_each_other(model):
    # The control of the test above: without positions that begin anew the row is one text.
    samples = make_samples()
    packed = make_batch([[samples[0], samples[1]]])
    inputs = batches.to_device(packed, CPU, model.layout)
    embeds, _ = model.embed(inputs.input_ids, inputs.vision)
    leaking = model.language.model(inputs_embeds=embeds, use_cache=False).last_hidden_state[0]
    start = len(samples[0].input_ids)
    alone = hidden_states(model, make_batch([[samples[1]]]))
    assert (leaking[start:] - alone).abs().max() > 1e-2


def test_packed_and_unpacked_losses_and_gradients_agree(model):
    samples = make_samples()
    gradients = []
    losses = []
    for rows in ([[s] for s in samples], [samples[:3], samples[3:]], [samples[::-1]]):
        model.zero_grad()
        loss = loss_of(model, make_batch(rows))
        loss.backward()
        losses.append(loss.detach())
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters()})
    for loss, gradient in zip(losses[1:], gradients[1:], strict=True):
        torch.testing.assert_close(loss, losses[0], atol=1e-3, rtol=1e-5)
        for name, value in gradients[0].items():
            torch.testing.assert_close(gradient[name], value, atol=2e-4, rtol=2e-3)


def test_a_change_in_one_sample_changes_no_other_of_its_row(model):
    samples = make_samples()
    other = Sample(
        key="1",
        input_ids=(samples[1].input_ids % 30 + 6).astype(np.int32),
        labels=samples[1].labels,
        images=(),
        meta={},
    )
    before = hidden_states(model, make_batch([samples[:3]]))
    after = hidden_states(model, make_batch([[samples[0], other, samples[2]]]))
    first, second = len(samples[0].input_ids), len(samples[1].input_ids)
    assert torch.equal(before[:first], after[:first])
    torch.testing.assert_close(before[first + second :], after[first + second :])
    assert not torch.allclose(before[first : first + second], after[first : first + second])


@pytest.mark.parametrize("kind", CAUSAL, indirect=True)
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
    assert theirs.bool_masks == sum(hasattr(layer, "self_attn") for layer in model.towers()[1])
    assert torch.equal(loss, expected_loss)
    assert all(torch.equal(found[name], value) for name, value in expected.items())


BOUNDS = torch.tensor([0, 5, 6, 13, 16, 32], dtype=torch.int32)
"""Of two rows of 16; the last segment is a whole row."""
PACKING = Packing(bounds=BOUNDS, lengths=(5, 1, 7, 3, 16), dtype=torch.float32)
IDS = torch.zeros(2, 16, dtype=torch.int64)


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
