"""Folders of models: whole weight files, reach of positions, and what is saved beside weights."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from transformers import (
    AutoModelForImageTextToText,
    GenerationConfig,
    GPT2Config,
    LlamaConfig,
    Qwen2Config,
)

from pipeline.models.build import load_model
from pipeline.models.generation import arrange_prompts
from pipeline.models.layouts.tower_arguments import plain_arguments
from pipeline.models.loading.weight_files import check_weight_files, fp16_warning
from pipeline.models.position_limits import longest_sample, max_positions, positions_problem
from pipeline.train.optimizer.optimizers import parameter_groups
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.model_parts import LanguageConfig, ModelConfig
from tests.pipeline.infos import make_info
from tests.pipeline.models.test_hugging_face import prompt_of
from tests.pipeline.models.tiny import tiny_config

NAMES = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@pytest.fixture
def folder(tmp_path):
    """In two files, as large models are."""
    for number, name in enumerate(NAMES):
        save_file({f"w{number}": torch.ones(100)}, tmp_path / name, metadata={"format": "pt"})
    index = {"weight_map": {f"w{number}": name for number, name in enumerate(NAMES)}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    return tmp_path


def model_of(folder) -> ModelConfig:
    return ModelConfig(type="hugging_face", path=str(folder))


def test_whole_files_are_taken_in_one_piece_and_in_several(folder, tmp_path_factory):
    check_weight_files(model_of(folder))
    alone = tmp_path_factory.mktemp("alone")
    save_file({"w": torch.ones(3)}, alone / "model.safetensors")
    check_weight_files(ModelConfig(language=LanguageConfig(path=str(alone))))
    check_weight_files(ModelConfig(type="hugging_face", name="a/b"))


def test_a_file_that_the_index_names_must_be_there(folder):
    (folder / NAMES[1]).unlink()
    with pytest.raises(StageConfigError, match=f"{NAMES[1]} is missing"):
        check_weight_files(model_of(folder))


@pytest.mark.parametrize("num_bytes", [0, 5, 60, 100])
def test_a_file_that_was_cut_short_is_named(folder, num_bytes):
    with (folder / NAMES[0]).open("rb+") as stream:
        stream.truncate(num_bytes)
    with pytest.raises(StageConfigError, match=f"{NAMES[0]} is truncated"):
        check_weight_files(model_of(folder))


def test_a_page_of_an_error_in_the_place_of_weights_is_named(folder):
    (folder / NAMES[0]).write_text("<html>404, no such file in this repository</html>")
    with pytest.raises(StageConfigError, match="or not a safetensors file"):
        check_weight_files(model_of(folder))


def test_a_folder_without_weights_is_named(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(StageConfigError, match="no weights are there"):
        check_weight_files(model_of(tmp_path))


@pytest.mark.parametrize("name", ["model.safetensors.index.json", "pytorch_model.bin.index.json"])
def test_an_index_next_to_a_file_with_all_weights_is_ignored(tmp_path, name):
    save_file({"w": torch.ones(3)}, tmp_path / "model.safetensors")
    (tmp_path / name).write_text(json.dumps({"weight_map": {"w": "gone.bin"}}))
    check_weight_files(model_of(tmp_path))


@pytest.mark.parametrize("text", ['{"weight_map": {"w0": "mod', "{}", "[]", '{"weight_map": 3}'])
def test_a_damaged_index_is_refused_with_the_folder(folder, text):
    (folder / "model.safetensors.index.json").write_text(text)
    with pytest.raises(StageConfigError, match="the index or a header of its weights is damaged"):
        check_weight_files(model_of(folder))


@pytest.mark.parametrize(
    ("values", "warns"),
    [
        ({"torch_dtype": "bfloat16"}, True),
        ({"dtype": "bfloat16"}, True),
        ({"text_config": {"dtype": "bfloat16"}}, True),
        ({"dtype": "float32", "vision_config": {"torch_dtype": "float16"}}, False),
        ({}, False),
    ],
)
def test_the_fp16_warning_names_a_model_that_was_trained_in_bf16(tmp_path, values, warns):
    (tmp_path / "config.json").write_text(json.dumps(values))
    warning = fp16_warning(model_of(tmp_path))
    assert (warning is not None) == warns
    assert fp16_warning(ModelConfig()) is None
    if warning:
        assert f"precision is fp16, but {tmp_path} was trained in bf16" in warning


@pytest.mark.parametrize(
    ("rope", "expected"),
    [
        (None, 32_768),
        ({"rope_type": "default", "rope_theta": 1e6}, 32_768),
        ({"rope_type": "linear", "factor": 2.0}, 65_536),
        ({"rope_type": "dynamic", "factor": 2.0}, 65_536),
        (
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768},
            131_072,
        ),
        (  # Llama 3.1: config.json gives the whole reach itself
            {
                "rope_type": "llama3",
                "factor": 2.0,
                "original_max_position_embeddings": 8_192,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
            },
            32_768,
        ),
    ],
)
def test_a_scaled_rotary_embedding_reaches_factor_times_as_far(rope, expected):
    config = Qwen2Config(max_position_embeddings=32_768, rope_parameters=rope)
    assert max_positions(config) == expected


def test_a_learned_table_of_positions_is_the_limit():
    assert max_positions(GPT2Config(n_positions=77)) == 77
    assert max_positions(LlamaConfig(max_position_embeddings=2_048)) == 2_048
    assert max_positions(SimpleNamespace()) is None


@pytest.mark.parametrize("kind", ["llava", "smolvlm", "qwen2_vl", "qwen3_vl"])
def test_the_limit_of_a_whole_model_is_its_language_models(kind):
    assert max_positions(tiny_config(kind).get_text_config()) == 4_096


class Columns:
    """Some columns of an index."""

    def __init__(self, **columns: list[int]) -> None:
        self.columns = {name: np.array(values) for name, values in columns.items()}

    def whole(self, name: str) -> np.ndarray:
        return self.columns[name]


def test_every_token_of_a_fixed_image_has_a_position():
    index = Columns(num_tokens=[8, 32, 11, 9])
    assert longest_sample(index, make_info(), 10) == (32, 2)
    assert longest_sample(Columns(num_tokens=[]), make_info(), 10) == (0, 0)


def test_tokens_of_a_native_image_share_positions():
    """Rows and columns are numbered: 10,000 tokens of a square image take 100 positions."""
    info = make_info(image_kind="native", patch_size=14, merge_size=2)
    index = Columns(
        num_tokens=[10_020, 500, 9_999],
        num_images=[1, 0, 1],
        num_pixels=[10_000 * 28 * 28, 0, 0],  # an older data set did not count pixels
    )
    assert longest_sample(index, info, 200) == (500, 1)


def test_a_sample_that_just_fits_is_no_problem():
    facts = {"limit": 10, "num_over": 0, "num_samples": 3, "source": "raise it"}
    assert positions_problem(longest=10, **facts) is None
    problem = positions_problem(longest=11, **facts | {"num_over": 1})
    assert problem is not None
    assert "11 tokens, but the language model has 10 positions (1 of 3 samples" in problem


SETTINGS = {
    "eos_token_id": [1, 2],
    "repetition_penalty": 1.05,
    "do_sample": False,
    "temperature": 0.1,  # has no meaning without sampling: transformers refuses to save it
}


def test_settings_of_generation_go_with_the_model(make_kind, tmp_path):
    kind = make_kind("qwen2_vl")
    shutil.copytree(kind.model_dir, tmp_path / "model")
    (tmp_path / "model/generation_config.json").write_text(json.dumps(SETTINGS))
    load_model(tmp_path / "model", kind.facts).save_pretrained(tmp_path / "saved")
    saved = json.loads((tmp_path / "saved/generation_config.json").read_text())
    expected = {**SETTINGS, "eos_token_id": [kind.facts.eos_token_id, 1, 2]}
    assert {name: saved.get(name) for name in SETTINGS} == expected


@pytest.mark.parametrize(
    ("own", "saved"),
    [(None, "end"), ("end", "end"), (5, ["end", 5]), ([5, "end", 7], ["end", 5, 7])],
    ids=str,
)
def test_answers_of_a_loaded_export_end_like_those_of_the_evaluation(
    make_kind, tmp_path, own, saved
):
    kind = make_kind("qwen2_5_vl")
    plain: Any = load_model(kind.model_dir, kind.facts).eval()
    samples = kind.samples()
    asked = [prompt_of(kind, sample) for sample in samples]
    said = plain.generate(asked, max_new_tokens=6)[0]
    end = next(token for token in said[1:] if token != said[0])

    def of(tokens: Any) -> Any:
        return (
            [of(t) for t in tokens]
            if isinstance(tokens, list)
            else {"end": end}.get(tokens, tokens)
        )

    facts = replace(kind.facts, eos_token_id=end)
    shutil.copytree(kind.model_dir, tmp_path / "model")
    settings = {"_from_model_config": True, "pad_token_id": 274, "eos_token_id": of(own)}
    (tmp_path / "model/generation_config.json").write_text(json.dumps(settings))
    model: Any = load_model(tmp_path / "model", facts).eval()
    answer = model.generate(asked[:1], max_new_tokens=6)[0]
    model.save_pretrained(tmp_path / "saved")
    found = json.loads((tmp_path / "saved/generation_config.json").read_text())
    assert (found["eos_token_id"], found["pad_token_id"]) == (of(saved), 274)
    assert "_from_model_config" not in found
    loaded = AutoModelForImageTextToText.from_pretrained(tmp_path / "saved", dtype=torch.float32)
    pictures = plain_arguments(
        arrange_prompts(asked[:1], model.layout, torch.device("cpu"), torch.float32),
        torch.device("cpu"),
    )
    ids = torch.tensor([asked[0].input_ids])
    marks = (ids == model.hf.config.image_token_id).int()
    told = loaded.generate(
        input_ids=ids, mm_token_type_ids=marks, max_new_tokens=6, do_sample=False, **pictures
    )
    assert told[0, ids.shape[1] :].tolist() == [*answer, end]


@pytest.mark.parametrize(
    "own",
    [
        {"repetition_penalty": 1.5},
        {"no_repeat_ngram_size": 1},
        {"num_beams": 3},
        {"suppress_tokens": "the first of the answer"},
    ],
    ids=lambda own: next(iter(own)),
)
def test_settings_of_generation_change_no_answer_of_an_evaluation(make_kind, tmp_path, own):
    kind = make_kind("qwen2_5_vl")
    prompts = [prompt_of(kind, sample) for sample in kind.samples()]
    plain = load_model(kind.model_dir, kind.facts).eval()
    plain.hf.generation_config = GenerationConfig()
    answers = plain.generate(prompts, max_new_tokens=12)
    settings = {name: [answers[0][0]] if isinstance(v, str) else v for name, v in own.items()}
    shutil.copytree(kind.model_dir, tmp_path / "model")
    (tmp_path / "model/generation_config.json").write_text(json.dumps(settings))
    model = load_model(tmp_path / "model", kind.facts).eval()
    assert model.generate(prompts, max_new_tokens=12) == answers
    assert model.hf.generation_config.to_dict().items() >= settings.items()  # for the export


def test_learned_positions_of_no_family_decay(kind):
    model: Any = kind.build()
    decayed, plain = (group["params"] for group in parameter_groups(model, 0.1))
    tables = [m.weight for m in model.modules() if isinstance(m, nn.Embedding)]
    words = model.hf.get_input_embeddings().weight
    positions = {id(table) for table in tables if table is not words and table.requires_grad}
    assert positions <= {id(parameter) for parameter in plain}
    assert id(words) in {id(parameter) for parameter in decayed}
