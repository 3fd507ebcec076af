"""Models that do not fit a data set, and the tokenizer and image processor beside weights."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import torch

from pipeline.models.build import build_model, load_model, make_unloaded
from pipeline.models.data_facts import DataFacts, load_tokenizer, read_facts
from pipeline.models.data_fit import check_images
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.model_parts import ModelConfig, VisionConfig
from tests.pipeline.kinds import write_kind
from tests.pipeline.models.conftest import Kind
from tests.pipeline.models.small import CONFIG, make_facts
from tests.pipeline.models.tiny_towers import (
    CHATML_TOKENS,
    write_image_processor,
    write_qwen2,
    write_siglip,
    write_tokenizer,
)
from tests.pipeline.models.towers import from_folders


def test_model_and_data_set_that_do_not_fit_are_refused_with_what_differs(make_kind):
    tiled, native = make_kind("smolvlm"), make_kind("qwen2_vl")
    with pytest.raises(StageConfigError, match=r"images are native, .* smolvlm needs tiled ones"):
        load_model(tiled.model_dir, native.facts)
    other = make_kind("qwen3_vl")
    config = ModelConfig(type="hugging_face", path=str(native.model_dir))
    with pytest.raises(StageConfigError, match="patch size in pixels: model 14, data set 16"):
        build_model(config, other.facts, seed=0)


def test_model_that_does_not_fit_the_data_names_both_numbers():
    with pytest.raises(StageConfigError, match="picture: model 4, data set 16"):
        build_model(CONFIG, make_facts(num_image_tokens=16), seed=0)
    with pytest.raises(StageConfigError, match="patch_size is 16"):
        build_model(CONFIG, make_facts(image_size=40), seed=0)


def test_model_of_a_folder_must_see_and_end_as_the_data_set_says(model, tmp_path):
    model.save_pretrained(tmp_path)
    config = ModelConfig(path=str(tmp_path))
    build_model(config, make_facts(image_mean=(0.5 + 1e-9,) * 3), seed=0)
    with pytest.raises(StageConfigError, match=r"image mean: model \(0\.5, .* data set \(0\.4"):
        build_model(config, make_facts(image_mean=(0.4,) * 3), seed=0)
    with pytest.raises(StageConfigError, match="end token: model 1, data set 2"):
        build_model(config, make_facts(eos_token_id=2), seed=0)


def test_images_that_differ_in_size_from_the_encoders_are_refused_early(folders):
    config = from_folders(folders["siglip"], None)
    words = (
        r"siglip needs images of 32 x 32 pixels \(its learned position table has 2 x 2 "
        r"entries\), but the data set's are 64 x 64: preprocess with the image processor"
    )
    facts = make_facts(image_size=64, num_image_tokens=16)
    with pytest.raises(StageConfigError, match=words):
        check_images(config, facts.info)
    with pytest.raises(StageConfigError, match=words):
        build_model(config, facts, seed=0)


META = torch.device("meta")
OTHER_NUMBERS = r"its tokenizer and the data set's \(.*\) number 2 tokens differently \('"


def whole_folder(kind: Kind, folder: Path) -> ModelConfig:
    """A model with its processor beside it, as folders on hubs are."""
    shutil.copytree(kind.model_dir, folder)
    write_kind(kind.name, folder)
    return ModelConfig(type="hugging_face", path=str(folder))


def swap(folder: Path, one: str, other: str) -> None:
    """Give two tokens of a tokenizer each other's numbers."""
    file = folder / "tokenizer.json"
    text = file.read_text()
    vocab = json.loads(text)["model"]["vocab"]
    values = json.loads(text)
    values["model"]["vocab"] |= {one: vocab[other], other: vocab[one]}
    file.write_text(json.dumps(values))


def edit(file: Path, **changes: Any) -> None:
    values = json.loads(file.read_text())
    inner = values.get("image_processor", values)
    inner |= changes
    file.write_text(json.dumps(values))


def refused_by_all(config: ModelConfig, facts: DataFacts, words: str) -> None:
    """By ranks that read weights, and by those that do not."""
    with pytest.raises(StageConfigError, match=words) as read:
        build_model(config, facts, seed=0)
    with pytest.raises(StageConfigError) as unread:
        make_unloaded(config, facts, META)
    assert str(read.value) == str(unread.value)


def test_a_model_with_the_processor_of_the_data_set_is_accepted(kind, tmp_path):
    config = whole_folder(kind, tmp_path / "model")
    build_model(config, kind.facts, seed=0)
    make_unloaded(config, kind.facts, META)


@pytest.mark.parametrize("name", ["qwen3_vl", "smolvlm", "llava", "internvl"])
def test_tokenizer_of_the_same_size_with_other_numbers_is_refused(make_kind, name, tmp_path):
    kind = make_kind(name)
    config = whole_folder(kind, tmp_path / "model")
    swap(tmp_path / "model", "a", "b")
    assert len(load_tokenizer(tmp_path / "model")) == kind.facts.vocab_size
    refused_by_all(config, kind.facts, OTHER_NUMBERS)


def test_the_tokenizer_next_to_an_exported_small_model_is_compared(tmp_path):
    def read(name: str, tokens: tuple[str, ...] = CHATML_TOKENS) -> DataFacts:
        tokenizer = load_tokenizer(write_tokenizer(tmp_path / name, tokens=tokens))
        return replace(read_facts(make_facts().info, tokenizer), eos_token_id=1)

    facts = read("same")
    (tmp_path / "model").mkdir()
    build_model(CONFIG, facts, seed=0).save_pretrained(tmp_path / "model")
    config = ModelConfig(path=str(write_tokenizer(tmp_path / "model")))
    build_model(config, facts, seed=0)
    swap(tmp_path / "same", "a", "b")
    other = read_facts(facts.info, load_tokenizer(tmp_path / "same"))
    refused_by_all(config, replace(other, eos_token_id=1), OTHER_NUMBERS)


def test_a_reserved_token_may_be_renamed_but_a_word_may_not(tmp_path):
    model = write_qwen2(tmp_path / "model", tied=True, vocab_size=300)
    folder = write_tokenizer(model, tokens=(*CHATML_TOKENS, "<|reserved|>"))
    write_tokenizer(tmp_path / "named", tokens=(*CHATML_TOKENS, "<image>", "<|one more|>"))
    facts = read_facts(make_facts().info, load_tokenizer(tmp_path / "named"))
    build_model(from_folders(None, folder), facts, seed=0)
    file = tmp_path / "named/tokenizer.json"
    values = json.loads(file.read_text())
    number = values["model"]["vocab"].pop("a")
    values["model"]["vocab"]["anew"] = number
    file.write_text(json.dumps(values))
    facts = read_facts(make_facts().info, load_tokenizer(tmp_path / "named"))
    words = (
        rf"number 1 tokens differently \({number} is 'a' and 'anew'\), so the .*`processor\.text`"
    )
    refused_by_all(from_folders(None, folder), facts, words)


@pytest.mark.parametrize("name", ["qwen3_vl", "llava_next", "internvl"])
def test_other_mean_or_deviation_than_the_models_own_is_refused(make_kind, name, tmp_path):
    kind = make_kind(name)
    config = whole_folder(kind, tmp_path / "model")
    info = replace(kind.facts.info, image_mean=(0.2,) * 3)
    own = r"image mean: model \(0\.[45].*, data set \(0\.2, 0\.2, 0\.2\), for pixels"
    refused_by_all(config, replace(kind.facts, info=info), rf"processor_config\.json: .*{own}")
    info = replace(kind.facts.info, image_std=(0.2,) * 3)
    refused_by_all(config, replace(kind.facts, info=info), r"image deviation: model")
    info = replace(kind.facts.info, rescale_factor=1 / 127.5)
    refused_by_all(config, replace(kind.facts, info=info), r"image mean: .*; image deviation: ")


def test_a_processor_without_normalization_differs_from_one_with_it(make_kind, tmp_path):
    kind = make_kind("qwen3_vl")
    config = whole_folder(kind, tmp_path / "model")
    edit(tmp_path / "model/processor_config.json", do_normalize=False)
    refused_by_all(config, kind.facts, r"image mean: model \(0\.0, .*deviation: model \(1\.0, ")


def test_what_a_folder_leaves_to_its_image_processors_class_is_compared(make_kind, tmp_path):
    kind = make_kind("qwen2_vl")
    config = whole_folder(kind, tmp_path / "model")
    (tmp_path / "model/processor_config.json").unlink()
    says = {"image_processor_type": "Qwen2VLImageProcessorFast"}
    (tmp_path / "model/preprocessor_config.json").write_text(json.dumps(says))
    build_model(config, kind.facts, seed=0)
    info = replace(kind.facts.info, image_std=(0.5,) * 3)
    refused_by_all(
        config, replace(kind.facts, info=info), r"preprocessor_config\.json: .*0\.26863, "
    )


def test_encoders_and_small_models_must_match_the_pixels_of_the_data_set(tmp_path):
    folder = write_image_processor(write_siglip(tmp_path / "siglip"))
    encoder = replace(CONFIG, vision=VisionConfig(path=str(folder)))
    build_model(encoder, make_facts(), seed=0).save_pretrained(folder := tmp_path)
    whole = ModelConfig(path=str(write_image_processor(folder)))
    build_model(whole, make_facts(), seed=0)
    refused_by_all(encoder, make_facts(image_std=(0.4,) * 3), r"`processor\.images`\); or, if its")
    edit(folder / "preprocessor_config.json", image_std=[0.4] * 3)
    refused_by_all(whole, make_facts(), r"image deviation: model \(0\.4, 0\.4, 0\.4\), data set")


def test_processor_of_an_unknown_class_without_mean_is_not_compared(tmp_path):
    folder = write_siglip(tmp_path / "siglip")
    says = {"image_processor_type": "OwnImageProcessor", "image_mean": [0.1] * 3}
    (folder / "preprocessor_config.json").write_text(json.dumps(says))
    build_model(from_folders(folder, None), make_facts(), seed=0)


def test_model_of_the_hubs_cache_is_compared(make_kind, tmp_path, monkeypatch):
    kind = make_kind("qwen3_vl")
    cached = tmp_path / "models--some--model"
    whole_folder(kind, cached / "snapshots/abc")
    swap(cached / "snapshots/abc", "a", "b")
    (cached / "refs").mkdir()
    (cached / "refs/main").write_text("abc")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    config = ModelConfig(type="hugging_face", name="some/model")
    refused_by_all(config, kind.facts, OTHER_NUMBERS)
