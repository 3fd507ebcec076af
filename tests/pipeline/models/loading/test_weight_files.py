"""Folders of models: weight files that are whole, cut short, missing or something else."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import save_file

from pipeline.models.loading.weight_files import check_weight_files, fp16_warning
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.model_parts import LanguageConfig, ModelConfig

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
