"""What the host reads of the device in a pass."""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator

import pytest
import torch
import transformers
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from pipeline.models.attention_kernels.packed_rows import Packing
from pipeline.models.build import build_model
from pipeline.models.computation import recompute
from pipeline.models.hugging_face import HuggingFaceVLM
from pipeline.models.layouts.tower_arguments import plain_arguments
from pipeline.train.training_data.batches import ModelInputs, loss_of
from tests.pipeline.models.conftest import Kind
from tests.pipeline.models.host_reads import DEVICE, HostReads, inputs_of
from tests.pipeline.models.small import CONFIG, IMAGE, make_facts, make_images

names_functions = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="Python 3.10 does not say whose method a frame runs"
)
QWEN = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_5")


@pytest.fixture
def recomputed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Kind], HuggingFaceVLM]:
    """Maker of models whose layers are computed again, where most is read."""
    # torch compares devices, and the one by another name is hidden from its first look.
    unchecked = functools.partial(checkpoint, determinism_check="none")
    monkeypatch.setattr(recompute, "checkpoint", unchecked)

    def make(kind: Kind) -> HuggingFaceVLM:
        model = kind.build().train()
        recompute.recompute_layers(model)
        assert isinstance(model, HuggingFaceVLM)
        return model

    return make


def on_device(model: HuggingFaceVLM, inputs: ModelInputs) -> Iterator[torch.Tensor]:
    given = [getattr(inputs, field.name) for field in dataclasses.fields(inputs)]
    yield from (v for v in tree_leaves([dict(inputs.vision), given]) if torch.is_tensor(v))
    if inputs.packing.bounds is not None:
        yield inputs.packing.bounds
    yield from model.parameters()
    yield from model.buffers()


def reads_of(model: HuggingFaceVLM, inputs: ModelInputs) -> HostReads:
    model.zero_grad()
    with HostReads(on_device(model, inputs)) as reads:
        reads.backward(loss_of(model, inputs))
    return reads


@names_functions
def test_host_reads_no_value_of_the_device_in_a_pass(kind, recomputed):
    version = tuple(map(int, transformers.__version__.split(".")[:2]))
    if kind.name in {"idefics3", "smolvlm"} and version < (5, 23):
        pytest.skip("transformers before 5.23 reads back the places of patches in these families")
    model = recomputed(kind)
    for how in ({"pictures": True}, {"pictures": True, "packed": False}, {"pictures": False}):
        reads = reads_of(model, inputs_of(kind, model, **how))
        assert not reads.number, reads.by_place
        # What stays on the host never meets what is on the device.
        assert not reads.mixed


@names_functions
@pytest.mark.parametrize("num_pictures", [0, 2])
def test_host_reads_no_value_of_the_device_for_the_small_model(num_pictures):
    model = build_model(CONFIG, make_facts(), seed=0).train()
    ids = torch.full((2, 12), 5)
    ids[:, : 2 * num_pictures] = IMAGE
    places = torch.arange(6).repeat(2).expand(2, -1).contiguous()
    images = make_images(num_pictures) if num_pictures else {}
    bounds = torch.arange(0, 25, 6, dtype=torch.int32)
    image_places = (ids.flatten() == IMAGE).nonzero().flatten()
    given = [
        ids,
        image_places,
        places,
        bounds,
        *images.values(),
        *model.parameters(),
        *model.buffers(),
    ]
    with HostReads(given) as reads:
        targets = ids[0, :3]
        losses = model(
            input_ids=ids,
            supervised=targets,
            targets=targets,
            vision=images,
            position_ids=places,
            packing=Packing(bounds=bounds, lengths=(6,) * 4, dtype=torch.float32),
            image_places=image_places if num_pictures else None,
        )
        reads.backward(losses.sum())
    assert reads.number == 0, reads.by_place
    assert not reads.mixed


@names_functions
@pytest.mark.parametrize("name", QWEN)
def test_each_vision_layer_would_read_lengths_if_sizes_were_on_the_device(
    make_kind, name, recomputed, monkeypatch
):
    # The control of the test above.
    kind = make_kind(name)
    model = recomputed(kind)
    monkeypatch.setattr(
        "pipeline.models.hugging_face.tower_arguments",
        lambda vision, _follow, _tower, **_how: plain_arguments(vision, DEVICE),
    )
    reads = reads_of(model, inputs_of(kind, model, pictures=True))
    in_layers = sum(n for place, n in reads.by_place.items() if "_attend_pictures" in place)
    # In both passes.
    assert in_layers == 2 * model.sizes()[0].num_layers


@names_functions
def test_image_token_places_are_read_from_the_device_if_the_batch_has_none(kind, recomputed):
    # The control of the test that nothing is read.
    model = recomputed(kind)
    inputs = inputs_of(kind, model, pictures=True)
    expected = reads_of(model, inputs).number + 1
    reads = reads_of(model, dataclasses.replace(inputs, image_places=None))
    assert reads.number == expected, reads.by_place


def test_image_tokens_without_features_are_refused_on_the_host(kind):
    model = kind.build()
    inputs = inputs_of(kind, model, pictures=True)
    fewer = dataclasses.replace(inputs, image_places=inputs.image_places[1:])
    num = len(inputs.image_places)
    with pytest.raises(ValueError, match=f"{num - 1} image tokens do not fit {num} features"):
        loss_of(model, fewer)
