"""Greedy answers in batches, alike in each order and precision."""

from __future__ import annotations

import pytest
import torch

from pipeline.models.build import load_model
from pipeline.models.generation import pad_left
from tests.pipeline.kinds import KINDS
from tests.pipeline.models.passes import prompt_of
from tests.pipeline.models.small import PAD, make_prompts


@pytest.mark.parametrize("name", KINDS)
def test_batched_answers_equal_those_one_by_one(make_kind, name):
    kind = make_kind(name)
    model = kind.build().eval()
    prompts = [prompt_of(kind, sample) for sample in kind.samples()]
    together = model.generate(prompts, max_new_tokens=6)
    assert together == [model.generate([p], max_new_tokens=6)[0] for p in prompts]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", KINDS)
def test_model_in_half_precision_answers_and_has_its_buffers_as_they_were(make_kind, name, dtype):
    kind = make_kind(name)
    whole = load_model(kind.model_dir, kind.facts)
    model = load_model(kind.model_dir, kind.facts, dtype=dtype).eval()
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    buffers = dict(model.named_buffers())
    for path, buffer in whole.named_buffers():  # positions are computed with them
        if "audio_tower" in path:  # unused
            continue
        assert buffer.dtype == buffers[path].dtype
        assert torch.equal(buffer, buffers[path])
    prompts = [prompt_of(kind, sample) for sample in kind.samples()]
    assert len(model.generate(prompts, max_new_tokens=2)) == len(prompts)


def test_prompts_are_padded_on_the_left():
    ids, mask = pad_left(make_prompts([[5, 6], [7]]), PAD, torch.device("cpu"))
    assert ids.tolist() == [[5, 6], [PAD, 7]]
    assert mask.tolist() == [[1, 1], [0, 1]]
