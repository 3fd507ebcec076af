"""Samples that share a row never see each other: packed and unpacked agree."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from pipeline.data.batch import Batch, collate
from pipeline.data.batches.buffer_pool import BufferPool
from pipeline.data.disk_format.sample_members import Sample
from pipeline.data.gathered import ImageRule
from pipeline.models.build import build_model
from pipeline.models.small_vlm import SmallVLM
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.training_data import batches
from tests.pipeline.models.test_small_vlm import CONFIG, IMAGE, PAD, make_facts

SHAPE = (32, 32, 3)
RULE = ImageRule(size=SHAPE[:2])
CPU = RankDevice(device=torch.device("cpu"), precision="fp32", num_compute_threads=1)


@pytest.fixture
def model() -> SmallVLM:
    return build_model(CONFIG, make_facts(), seed=3)


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
