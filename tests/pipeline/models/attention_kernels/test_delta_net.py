"""Samples of a packed row do not share the states of gated delta nets."""

from __future__ import annotations

import copy
import dataclasses
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from pipeline.data.batch import Batch
from pipeline.data.disk_format.sample_members import Sample
from pipeline.models.attention_kernels.delta_net import is_delta_net, keep_states_apart
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.training_data.batches import ModelInputs, to_device
from tests.pipeline.models.conftest import Kind
from tests.pipeline.models.passes import CPU, gradients, loss

LENGTHS = (70, 3, 130, 1)
"""More and fewer tokens than a chunk of 64, and than the convolution reads."""


@pytest.fixture(params=["qwen3_5", "qwen3_5_moe"])
def kind(request, make_kind) -> Kind:
    return make_kind(request.param)


@pytest.fixture(params=["dense", "varlen"])
def model(request, kind) -> VisionLanguageModel:
    model = kind.build().eval()
    model.uses_varlen = request.param == "varlen"
    return model


@pytest.fixture
def net(kind) -> Any:
    return next(module for module in kind.build().modules() if is_delta_net(module))


def logits_of(model: VisionLanguageModel, batch: Batch) -> list[torch.Tensor]:
    """Float [tokens, vocabulary] of each segment of the rows."""
    inputs = to_device(batch, CPU, model.layout)
    with torch.no_grad():
        hidden, _ = hidden_states(model, inputs)
        logits = model.output_head()(hidden).flatten(0, 1)
    return [logits[start:end] for start, end in pairwise(batch.segment_bounds.tolist())]


def hidden_states(
    model: VisionLanguageModel, inputs: ModelInputs
) -> tuple[torch.Tensor, torch.Tensor]:
    return model.hidden_states(
        inputs.input_ids, inputs.vision, inputs.position_ids, inputs.packing, inputs.image_places
    )


def with_other_text(sample: Sample, image_token_id: int) -> Sample:
    """A sample with other words, of the same length."""
    is_text = sample.input_ids != image_token_id
    others = sample.input_ids[::-1] % 200 + 5
    return dataclasses.replace(
        sample, input_ids=np.where(is_text, others, sample.input_ids).astype(np.int32)
    )


def test_packed_logits_are_those_of_each_sample_alone(kind, model):
    samples = kind.samples()
    packed = logits_of(model, kind.batch(model, [samples], length=500))
    for sample, logits in zip(samples, packed, strict=False):  # the last segment is padding
        (alone,) = logits_of(model, kind.batch(model, [[sample]]))
        torch.testing.assert_close(logits, alone, atol=1e-4, rtol=1e-4)


def test_packed_gradients_are_the_sum_of_those_of_each_sample_alone(kind, model):
    model.train()
    for sample in kind.samples():
        loss(model, kind.batch(model, [[sample]])).backward()
    alone = gradients(model)
    model.zero_grad()
    loss(model, kind.batch(model, [kind.samples()], length=500)).backward()
    packed = gradients(model)
    assert packed.keys() == alone.keys()
    for name, gradient in alone.items():
        torch.testing.assert_close(packed[name], gradient, atol=3e-4, rtol=3e-3)


def test_another_neighbour_changes_no_bit_of_a_sample(kind, model):
    first, second, third, fourth = kind.samples()
    other = with_other_text(second, kind.facts.info.image_token_id)
    before = logits_of(model, kind.batch(model, [[first, second, third, fourth]]))
    after = logits_of(model, kind.batch(model, [[first, other, third, fourth]]))
    assert not torch.equal(before[1], after[1])
    for number in (0, 2, 3):
        assert torch.equal(before[number], after[number])


def test_samples_would_see_each_other_without_their_lengths(kind, monkeypatch):
    # The control of the tests above: transformers' own layer ignores the mask.
    model, samples = kind.build().eval(), kind.samples()
    sound = logits_of(model, kind.batch(model, [samples]))
    forward = model.language_model.forward

    def leaking(**call: Any) -> Any:
        assert call.pop("sample_lengths") == tuple(len(sample.input_ids) for sample in samples)
        return forward(**call)

    monkeypatch.setattr(model.language_model, "forward", leaking)
    leaked = logits_of(model, kind.batch(model, [samples]))
    torch.testing.assert_close(leaked[0], sound[0], atol=1e-4, rtol=1e-4)
    for number in (1, 2, 3):
        assert (leaked[number] - sound[number]).abs().max() > 1e-2


def test_packed_rows_without_the_bounds_of_samples_are_refused(kind, model):
    inputs = to_device(kind.batch(model, [kind.samples()]), CPU, model.layout)
    with pytest.raises(ValueError, match="would share the states of gated delta nets"):
        model.hidden_states(inputs.input_ids, inputs.vision, inputs.position_ids)


def random_tokens(net: Any, num_rows: int = 1) -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    shape = (num_rows, sum(LENGTHS) // num_rows, net.hidden_size)
    return torch.randn(shape, generator=draw, requires_grad=True)


def test_a_layer_computes_each_sample_from_an_empty_state(net):
    hidden = random_tokens(net)
    packed = net(hidden_states=hidden, sample_lengths=LENGTHS).split(LENGTHS, dim=1)
    for tokens, found in zip(hidden.split(LENGTHS, dim=1), packed, strict=True):
        torch.testing.assert_close(found, net(hidden_states=tokens), atol=1e-6, rtol=1e-5)


def test_a_sample_gives_its_neighbours_no_gradient(net):
    hidden = random_tokens(net)
    outputs = net(hidden_states=hidden, sample_lengths=LENGTHS).split(LENGTHS, dim=1)
    (gradient,) = torch.autograd.grad(outputs[2].square().sum(), hidden)
    before, within, after = gradient.split([73, 130, 1], dim=1)
    assert within.any()
    assert not before.any()
    assert not after.any()


def test_several_rows_are_read_as_one(net):
    hidden = random_tokens(net, num_rows=2)
    lengths = (70, 3, 29, 101, 1)
    rows = net(hidden_states=hidden, sample_lengths=lengths)
    row = net(hidden_states=hidden.view(1, -1, net.hidden_size), sample_lengths=lengths)
    assert rows.shape == hidden.shape
    assert torch.equal(rows.view_as(row), row)


def test_a_copy_of_a_layer_uses_its_own_weights(net):
    hidden = random_tokens(net)
    copied = copy.deepcopy(net)
    with torch.no_grad():
        copied.out_proj.weight.zero_()
    assert not copied(hidden_states=hidden, sample_lengths=LENGTHS).any()
    assert net(hidden_states=hidden, sample_lengths=LENGTHS).any()


def test_linear_attention_of_another_kind_is_refused(kind):
    language = kind.build().language_model
    language.layers[0].linear_attn = nn.Identity()
    with pytest.raises(ValueError, match="linear attention in a form that is not known"):
        keep_states_apart(language)
