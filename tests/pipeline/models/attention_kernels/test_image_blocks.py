"""Images whose tokens see each other in both directions, within their sample alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from transformers.models.gemma3.modeling_gemma3 import (
    create_masks_for_vision_model,
    get_block_sequence_ids_for_mask,
)

from pipeline.data.disk_format.sample_members import Sample
from pipeline.models.attention_kernels.image_blocks import ImageBlocks, number_images
from pipeline.models.attention_kernels.packed_rows import attention_arguments, packing_of_positions
from pipeline.models.build import make_unloaded
from pipeline.train.training_data.batches import ModelInputs, to_device
from slurm_jobs.base.errors import StageConfigError
from tests.pipeline.kinds import SEE_AHEAD
from tests.pipeline.models.conftest import Kind
from tests.pipeline.models.passes import CPU, gradients, loss, packed_rows
from tests.pipeline.models.tiny import tiny_config

IMAGE = 9


def logits_of(model: Any, inputs: ModelInputs, **changes: Any) -> torch.Tensor:
    """Float [num_rows * length, num_tokens]."""
    call = {
        "position_ids": inputs.position_ids,
        "packing": inputs.packing,
        "image_places": inputs.image_places,
    } | changes
    with torch.no_grad():
        hidden, _ = model.hidden_states(inputs.input_ids, inputs.vision, **call)
        return model.output_head()(hidden).flatten(0, 1)


def inputs_of(kind: Kind, model: Any, rows: list[list[Sample]]) -> ModelInputs:
    return to_device(kind.batch(model, rows), CPU, model.layout)


def test_images_of_a_row_are_numbered_in_their_order():
    ids = torch.tensor([[9, 9, 5, 9, 5, 5], [5, 5, 9, 9, 9, 5]])
    places = (ids == IMAGE).flatten().nonzero().flatten()
    numbers = number_images(places, *ids.shape)
    assert numbers.tolist() == [[0, 0, -1, 1, -1, -1], [-1, -1, 0, 0, 0, -1]]


def masks_of_transformers(config: Any, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """Bool [length, length] by kind of layer, of one sample.

    Not of packed rows: transformers 5.23 looks up images by the position in the sample there, so
    that text of the second sample sees later tokens in sliding layers.
    """
    marks = (ids == IMAGE).int()[None]
    masks = create_masks_for_vision_model(
        config=config,
        inputs_embeds=torch.zeros(1, len(ids), 4),
        attention_mask=None,
        past_key_values=None,
        position_ids=torch.arange(len(ids))[None],
        block_sequence_ids=get_block_sequence_ids_for_mask(marks),
    )
    return {kind: mask[0, 0] for kind, mask in masks.items()}


@pytest.mark.parametrize("window", [3, 6, 100])
def test_mask_of_packed_images_has_those_of_transformers_for_each(window):
    # Images longer and shorter than the windows; in a sample's first place, and next to a bound.
    ids = torch.tensor([[1, 9, 9, 9, 9, 9, 2, 1, 2, 9, 9, 2], [9, 9, 1, 9, 9, 9, 9, 9, 9, 9, 1, 1]])
    positions = torch.tensor([[*range(7), *range(5)], [*range(12)]])
    config = tiny_config("gemma3").text_config
    config.sliding_window, config._attn_implementation = window, "sdpa"
    places = (ids == IMAGE).flatten().nonzero().flatten()
    images = ImageBlocks(
        numbers=number_images(places, *ids.shape), layers=frozenset(config.layer_types)
    )
    packing = packing_of_positions(positions, ids, torch.float32)
    assert packing.bounds.tolist() == [0, 7, 12, 24]
    found = attention_arguments(packing, config, ids, uses_varlen=False, images=images)
    first = masks_of_transformers(config, ids[0, :7])
    second = masks_of_transformers(config, ids[0, 7:])
    whole_row = masks_of_transformers(config, ids[1])
    for kind, mask in found["attention_mask"].items():
        assert torch.equal(mask[0, 0] == 0, torch.block_diag(first[kind], second[kind]).bool())
        assert torch.equal(mask[1, 0] == 0, whole_row[kind])


@pytest.mark.parametrize("name", SEE_AHEAD)
def test_logits_of_packed_samples_are_those_of_each_alone(make_kind, name):
    kind = make_kind(name)
    model, samples = kind.build().eval(), kind.samples()
    inputs = inputs_of(kind, model, [samples])
    packed = logits_of(model, inputs)
    found = packed.split([len(sample.input_ids) for sample in samples])
    for sample, logits in zip(samples, found, strict=True):
        alone = logits_of(model, inputs_of(kind, model, [[sample]]))
        torch.testing.assert_close(logits, alone, atol=1e-5, rtol=1e-4)
    by_positions = logits_of(model, inputs, packing=None)
    torch.testing.assert_close(by_positions, packed, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("name", SEE_AHEAD)
def test_a_changed_neighbour_changes_no_logits_of_a_sample(make_kind, name):
    kind = make_kind(name)
    model, samples = kind.build().eval(), kind.samples()
    first, second, third = samples[3], samples[0], samples[1]  # all with images
    other = replace(
        second,
        input_ids=np.where(second.input_ids == 20, 21, second.input_ids + 0),
        images=tuple(255 - image for image in second.images),
    )
    before = logits_of(model, inputs_of(kind, model, [[first, second, third]]))
    after = logits_of(model, inputs_of(kind, model, [[first, other, third]]))
    start, end = len(first.input_ids), len(first.input_ids) + len(second.input_ids)
    assert torch.equal(before[:start], after[:start])
    assert torch.equal(before[end:], after[end:])
    assert not torch.allclose(before[start:end], after[start:end])


@pytest.mark.parametrize("name", SEE_AHEAD)
def test_packed_rows_learn_what_transformers_learns_from_each_sample(make_kind, name):
    kind = make_kind(name)
    model: Any = kind.build()
    rows, length = packed_rows(kind.samples())
    ours = loss(model, kind.batch(model, rows, length))
    ours.backward()
    found = gradients(model)
    model.zero_grad()
    theirs = torch.zeros(())
    for sample in kind.samples():
        inputs = inputs_of(kind, model, [[sample]])
        marks = (inputs.input_ids == model.hf.config.image_token_id).int()
        logits = model.hf(
            input_ids=inputs.input_ids, **{model.family.image_marks: marks}, **inputs.vision
        ).logits
        learned = logits.flatten(0, 1)[inputs.supervised]
        theirs = theirs + functional.cross_entropy(learned, inputs.targets, reduction="sum")
    theirs.backward()
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-5)
    expected = gradients(model)
    assert found.keys() == expected.keys()
    for weight, gradient in expected.items():
        torch.testing.assert_close(found[weight], gradient, atol=3e-4, rtol=3e-3)


@pytest.mark.parametrize("name", SEE_AHEAD)
def test_tokens_of_an_image_see_later_ones_of_it(make_kind, name):
    # The control of the tests above, which causal images would pass, too.
    kind = make_kind(name)
    model: Any = kind.build().eval()
    inputs = inputs_of(kind, model, [[kind.samples()[0]]])
    whole = logits_of(model, inputs)
    model.block_layers = frozenset()
    causal = logits_of(model, inputs)
    first = int(inputs.image_places[0])
    assert torch.equal(whole[:first], causal[:first])
    assert (whole[first:] - causal[first:]).abs().max() > 1e-2


@pytest.mark.parametrize(
    ("name", "setting", "words"),
    [
        ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention is true"),
        ("gemma4", {"use_bidirectional_attention": "all"}, "attention is 'all' in config.json"),
        ("gemma4", {"enable_moe_block": True}, "enable_moe_block is true .* experts cannot be"),
    ],
)
def test_a_model_that_cannot_be_trained_is_refused_by_name(
    make_kind, tmp_path, name, setting, words
):
    kind = make_kind(name)
    config = tiny_config(name)
    sizes = {"num_experts": 2, "top_k_experts": 1, "moe_intermediate_size": 8}
    for key, value in (sizes | setting).items():
        if hasattr(config.text_config, key):
            setattr(config.text_config, key, value)
    config.save_pretrained(tmp_path)
    with pytest.raises(StageConfigError, match=words):
        make_unloaded(replace(kind.config, path=str(tmp_path)), kind.facts, torch.device("meta"))
