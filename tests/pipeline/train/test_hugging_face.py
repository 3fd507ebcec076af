"""The whole stage with models of transformers: two ranks, packed rows, a resume, an evaluation."""

from __future__ import annotations

import json
import sys

import pytest
import torch
from safetensors.torch import save_file
from transformers import AutoModelForImageTextToText, dynamic_module_utils

from pipeline.train import evaluate
from tests.pipeline.models.tiny import write_dataset, write_tiny
from tests.pipeline.train.tiny_runs import rows_of, tiny_config

SLOW_KINDS = (
    *("llava_siglip", "llava_next", "llava_onevision", "smolvlm", "internvl", "qwen3_vl"),
    *("qwen3_5", "qwen3_5_moe", "gemma3", "gemma4", "glm4v", "paddleocr_vl", "mistral3"),
)
KINDS = ("qwen2_5_vl", *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOW_KINDS))


@pytest.fixture(scope="module", params=KINDS)
def made(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    return write_dataset(request.param, folder), write_tiny(request.param, folder / "model")


def test_two_ranks_learn_all_samples_and_say_them(made, make_train_run):
    evaluate = {"manifest": rows_of(made), "max_new_tokens": 20}
    sharding = {"unit_min_params": 0}
    run = make_train_run(**tiny_config(made, num_steps=60, evaluate=evaluate, sharding=sharding))
    result = run.run()
    assert result["exact_match"] == 1.0
    assert result["attention"] == "sdpa"
    generations = (run.output_dir / "generations.jsonl").read_text().splitlines()
    assert len(generations) == 4
    names = {path.name for path in (run.output_dir / "model").iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    config = json.loads((run.output_dir / "model/config.json").read_text())
    assert config["model_type"] == json.loads((made[1] / "config.json").read_text())["model_type"]


OWN_CONFIG = """
from transformers import Qwen2_5_VLConfig

class OwnConfig(Qwen2_5_VLConfig):
    pass
"""
OWN_MODEL = """
from transformers import Qwen2_5_VLForConditionalGeneration
from .configuration_own import OwnConfig

class OwnModel(Qwen2_5_VLForConditionalGeneration):
    config_class = OwnConfig
"""


def write_own_code(model_dir):
    """Code beside the weights, of a type that transformers has classes of its own for.

    Names of weights are as this code has them: only for its own classes transformers translates.
    """
    own = AutoModelForImageTextToText.from_pretrained(model_dir, dtype=torch.float32)
    weights = {name: weight.clone() for name, weight in own.state_dict().items()}
    save_file(weights, model_dir / "model.safetensors", metadata={"format": "pt"})
    (model_dir / "configuration_own.py").write_text(OWN_CONFIG)
    (model_dir / "modeling_own.py").write_text(OWN_MODEL)
    config = json.loads((model_dir / "config.json").read_text())
    config["auto_map"] = {
        "AutoConfig": "configuration_own.OwnConfig",
        "AutoModelForImageTextToText": "modeling_own.OwnModel",
    }
    (model_dir / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("trusts", "name"), [(True, "OwnModel"), (False, "Qwen2_5_VLForConditionalGeneration")]
)
def test_the_code_that_was_trained_is_the_code_that_is_evaluated(
    make_train_run, tmp_path, monkeypatch, trusts, name
):
    monkeypatch.setattr(dynamic_module_utils, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    made = write_dataset("qwen2_5_vl", tmp_path), write_tiny("qwen2_5_vl", tmp_path / "model")
    write_own_code(made[1])
    asked, really = [], evaluate.load_model

    def load(*args, **options):
        asked.append(really(*args, **options))
        return asked[-1]

    monkeypatch.setattr(evaluate, "load_model", load)
    rows = {"manifest": rows_of(made), "max_new_tokens": 2}
    run = make_train_run(**tiny_config(made, num_steps=1, evaluate=rows))
    run.config["model"]["trust_remote_code"] = trusts
    assert run.run_here()["evaluation"]["num_samples"] == 4
    assert [type(model.hf).__name__ for model in asked] == [name]
