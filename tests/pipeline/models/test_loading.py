"""Folders of models from strangers: a pickle in the place of weights is refused and not run."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest
import torch

from pipeline.models.finetuning.classifier_heads import HEADS_WEIGHTS, LEVELS_NAME, load_heads
from pipeline.models.loading.pretrained import load_whole, read_hugging_face_config
from pipeline.models.small_vlm import WEIGHTS_NAME, SmallVLM
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.model_parts import ModelConfig
from tests.pipeline.models.test_towers import build
from tests.pipeline.models.tiny import write_tiny
from tests.pipeline.models.tiny_towers import write_qwen2


class Runs:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.folder),)


def forge(path: Path, made: Path, form: str) -> None:
    if form == "pickle":
        path.write_bytes(pickle.dumps({"w": Runs(made)}, protocol=2))
    else:
        torch.save({"w": Runs(made)}, path, _use_new_zipfile_serialization=form == "archive")


@pytest.mark.parametrize("form", ["archive", "legacy", "pickle"])
@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
def test_a_pickle_in_the_place_of_weights_is_not_run(tmp_path, name, form):
    folder, made = write_qwen2(tmp_path / "model", tied=True), tmp_path / "made"
    (folder / "model.safetensors").unlink()
    forge(folder / name, made, form)
    with pytest.raises(StageConfigError, match="cannot be loaded"):
        build(None, folder)
    assert not made.exists()


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
def test_a_pickle_in_a_whole_models_folder_is_not_run(tmp_path, name):
    from transformers import AutoModelForImageTextToText

    folder, made = write_tiny("llava", tmp_path / "model"), tmp_path / "made"
    (folder / "model.safetensors").unlink()
    forge(folder / name, made, "archive")
    with pytest.raises(StageConfigError, match="cannot be loaded"):
        load_whole(AutoModelForImageTextToText, str(folder), remedy="", local_files_only=True)
    assert not made.exists()


def test_a_pickle_in_the_place_of_the_small_models_weights_is_not_run(tmp_path):
    folder, made = tmp_path / "model", tmp_path / "made"
    folder.mkdir()
    build(None, None).save_pretrained(folder)
    forge(folder / WEIGHTS_NAME, made, "archive")
    with pytest.raises(StageConfigError, match="model"):
        SmallVLM.from_pretrained(folder)
    assert not made.exists()


def test_a_pickle_in_the_place_of_heads_is_not_run(tmp_path):
    made = tmp_path / "made"
    level = '[{"name": "a", "key": "a", "head": "classes", "classes": ["x", "y"]}]'
    (tmp_path / LEVELS_NAME).write_text(level)
    forge(tmp_path / HEADS_WEIGHTS, made, "archive")
    with pytest.raises(StageConfigError, match="its heads cannot be read"):
        load_heads(build(None, None), tmp_path)
    assert not made.exists()


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
@pytest.mark.parametrize("part", [None, "text_config"])
def test_kernels_that_a_config_names_are_not_loaded(tmp_path, key, part):
    folder = write_tiny("llava", tmp_path / "model")
    values = json.loads((folder / "config.json").read_text())
    (values if part is None else values[part])[key] = "a-stranger/kernels"
    (folder / "config.json").write_text(json.dumps(values))
    config = ModelConfig(type="hugging_face", path=str(folder))
    with pytest.raises(StageConfigError, match="takes its attention from a-stranger/kernels"):
        read_hugging_face_config(config)


def test_kernels_that_a_towers_config_names_are_not_loaded(tmp_path):
    folder = write_qwen2(tmp_path / "model", tied=True)
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, "_attn_implementation": "a/b"}))
    with pytest.raises(StageConfigError, match="takes its attention from a/b"):
        build(None, folder)
