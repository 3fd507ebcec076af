"""Towers and language models within whole models: those that are taken, and those refused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from pipeline.models.attention_kernels.packed_rows import takes_masks
from pipeline.models.build import load_model, make_unloaded
from pipeline.train.training_data.batches import to_device
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.model_parts import ModelConfig
from slurm_jobs.formats.processors.model_types import LANGUAGE_TYPES, wrong_whole_model
from tests.pipeline.kinds import encode_as_hugging_face
from tests.pipeline.models.conftest import Kind
from tests.pipeline.models.passes import CPU, gradients, loss, packed_rows
from tests.pipeline.models.tiny import ROWS, _messages, write_tiny

TAKEN = [(name, language) for name, types in LANGUAGE_TYPES.items() for language in types]


@pytest.fixture(params=TAKEN, ids=" in ".join)
def kind(request: pytest.FixtureRequest, make_kind: Callable[[str], Kind], tmp_path: Path) -> Kind:
    name, language = request.param
    folder = write_tiny(name, tmp_path / "model", language=language)
    return dataclasses.replace(make_kind(name), model_dir=folder)


def test_logits_with_each_language_model_are_those_of_transformers(kind: Kind) -> None:
    model = kind.build().eval()
    source = kind.dataset_dir.parents[1] / "source"
    for sample, row in zip(kind.samples(), ROWS, strict=True):
        inputs = to_device(kind.batch(model, [[sample]]), CPU, model.layout)
        theirs = encode_as_hugging_face(kind.name, _messages(*row), source, return_tensors="pt")
        with torch.no_grad():
            hidden, _ = model.hidden_states(inputs.input_ids, inputs.vision, inputs.position_ids)
            expected = model.hf(**theirs).logits
        torch.testing.assert_close(model.output_head()(hidden), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("uses_varlen", [False, True])
def test_packed_samples_do_not_see_each_other(kind: Kind, uses_varlen: bool) -> None:
    model, samples = kind.build(), kind.samples()
    model.uses_varlen = uses_varlen
    assert takes_masks(model.text_config)
    loss(model, kind.batch(model, [[sample] for sample in samples])).backward()
    expected = gradients(model)
    model.zero_grad()
    loss(model, kind.batch(model, *packed_rows(samples))).backward()
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(gradient, expected[name], atol=3e-4, rtol=3e-3)


@pytest.mark.parametrize("language", ["gpt_oss", "qwen3_moe"])
def test_a_language_model_of_experts_is_refused(
    make_kind: Callable[[str], Kind], tmp_path: Path, language: str
) -> None:
    kind = make_kind("internvl")
    values = json.loads((kind.model_dir / "config.json").read_text())
    values["text_config"]["model_type"] = language
    (tmp_path / "config.json").write_text(json.dumps(values))
    words = f"its language model is of type '{language}', which cannot be trained within"
    with pytest.raises(StageConfigError, match=words):
        load_model(tmp_path, kind.facts)


@pytest.mark.parametrize(
    ("part", "changes", "words"),
    [
        ("", {"vision_feature_layer": -2}, "vision_feature_layer is -2, .* trained with -1"),
        ("", {"vision_feature_select_strategy": "full"}, "is 'full', .* trained with 'default'"),
        ("vision_config", {"use_mask_token": True}, "use_mask_token is True"),
        ("vision_config", {"image_size": [28, 14]}, r"width in vision_config\.image_size is 14"),
        ("vision_config", {"patch_size": [7, 14]}, r"width in vision_config\.patch_size is 14"),
    ],
)
def test_an_internvl_whose_features_are_no_square_of_its_tile_is_refused(
    make_kind: Callable[[str], Kind],
    tmp_path: Path,
    part: str,
    changes: dict[str, object],
    words: str,
) -> None:
    kind = make_kind("internvl")
    values = json.loads((kind.model_dir / "config.json").read_text())
    (values[part] if part else values).update(changes)
    (tmp_path / "config.json").write_text(json.dumps(values))
    config = ModelConfig(type="hugging_face", path=str(tmp_path))
    with pytest.raises(StageConfigError, match=words):
        make_unloaded(config, kind.facts, torch.device("meta"))


def test_pixtrals_vision_tower_within_a_llava_is_refused(
    make_kind: Callable[[str], Kind], tmp_path: Path
) -> None:
    kind = make_kind("llava_siglip")
    values = json.loads((kind.model_dir / "config.json").read_text())
    values["vision_config"]["model_type"] = "pixtral"
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(StageConfigError, match=r"its vision tower is that of Pixtral, which"):
        load_model(tmp_path, kind.facts)


def test_the_form_of_internvls_own_code_is_refused_with_the_remedy(
    make_kind: Callable[[str], Kind], tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "internvl_chat"}))
    with pytest.raises(StageConfigError, match=r"'internvl_chat', .* whose name ends in -HF"):
        load_model(tmp_path, make_kind("internvl").facts)


def test_a_language_model_that_config_json_leaves_out_is_not_judged() -> None:
    assert wrong_whole_model({"model_type": "internvl"}) is None
    assert wrong_whole_model({"model_type": "internvl", "text_config": {}}) is None
    assert wrong_whole_model({"model_type": "llava", "text_config": {"model_type": "a"}}) is None
