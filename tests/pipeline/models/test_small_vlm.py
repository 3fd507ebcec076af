"""The small VLM: what the loss is, what it says, and how it is saved."""

from __future__ import annotations

import json

import pytest
import torch
from torch.nn import functional

from pipeline.models.build import load_model
from pipeline.models.small_vlm import MODEL_TYPE, WEIGHTS_NAME, SmallVLM, read_model_config
from slurm_jobs.base.errors import StageConfigError
from tests.pipeline.models.forged import forge
from tests.pipeline.models.small import (
    IMAGE,
    PAD,
    embeds_of,
    loss_of,
    make_facts,
    make_images,
    make_prompts,
)
from tests.pipeline.models.towers import build


def test_loss_is_the_sum_over_supervised_next_tokens(model):
    ids = torch.tensor([[*[IMAGE] * 4, 7, 8, 9]])
    labels = torch.tensor([[-100] * 5 + [8, 9]])
    images = make_images(1)
    loss = loss_of(model, ids, images, labels)
    embeds = embeds_of(model, ids, images)
    logits = model.language(inputs_embeds=embeds, use_cache=False).logits[0]
    by_hand = functional.cross_entropy(logits[4:6], torch.tensor([8, 9]), reduction="sum")
    torch.testing.assert_close(loss, by_hand)


def test_padding_on_the_right_changes_nothing(model):
    ids = torch.tensor([[*[IMAGE] * 4, 7, 8]])
    labels = torch.tensor([[-100] * 5 + [8]])
    padded = functional.pad(ids, (0, 3), value=PAD)
    padded_labels = functional.pad(labels, (0, 3), value=-100)
    images = make_images(1)
    loss = loss_of(model, ids, images, labels)
    torch.testing.assert_close(loss_of(model, padded, images, padded_labels), loss)


def test_batched_generation_equals_one_by_one(model):
    model.eval()
    prompts = make_prompts(
        [[7, *[IMAGE] * 4, 8], [*[IMAGE] * 4, 9], [7, 8, 9, 10, *[IMAGE] * 4, 11], [12]]
    )
    together = model.generate(prompts, max_new_tokens=6)
    assert together == [model.generate([prompt], max_new_tokens=6)[0] for prompt in prompts]


def test_cached_generation_equals_recomputing_everything(model):
    model.eval()
    (prompt,) = make_prompts([[7, *[IMAGE] * 4, 8]])
    images = model.layout.arrange(prompt.images, torch.float32)
    expected = []
    for _ in range(5):
        embeds = embeds_of(model, torch.tensor([prompt.input_ids + expected]), images)
        logits = model.language(inputs_embeds=embeds, use_cache=False).logits
        expected.append(int(logits[0, -1].argmax()))
    assert model.generate([prompt], max_new_tokens=5) == [expected]


def test_generation_stops_at_the_end_token(model):
    model.eval()
    first = model.generate(make_prompts([[7]]), max_new_tokens=1)[0][0]
    model.language.config.eos_token_id = first
    assert model.generate(make_prompts([[7], [7]]), max_new_tokens=50) == [[], []]


def test_folder_of_another_model_is_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llava"}))
    with pytest.raises(StageConfigError, match="model_type is 'llava'"):
        SmallVLM.from_pretrained(tmp_path)


def test_weights_that_do_not_fit_the_config_are_refused(model, tmp_path):
    model.save_pretrained(tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    values["language"]["num_hidden_layers"] = 1
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(StageConfigError, match="does not fit"):
        load_model(tmp_path, make_facts())


def test_a_pickle_in_the_place_of_the_small_models_weights_is_not_run(tmp_path):
    folder, made = tmp_path / "model", tmp_path / "made"
    folder.mkdir()
    build(None, None).save_pretrained(folder)
    forge(folder / WEIGHTS_NAME, made, "archive")
    with pytest.raises(StageConfigError, match="model"):
        SmallVLM.from_pretrained(folder)
    assert not made.exists()


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ("", r"no readable config\.json"),
        ("[]", "holds no mapping"),
        ('{"model_type": "bert"}', "model_type is 'bert'"),
        (f'{{"model_type": "{MODEL_TYPE}"}}', r"damaged \(KeyError\('vision'\)\)"),
    ],
)
def test_a_config_that_describes_no_small_model_is_refused(tmp_path, config, reason):
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(StageConfigError, match=f"{tmp_path}: .*{reason}"):
        read_model_config(tmp_path)
