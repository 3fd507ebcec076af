"""What is saved beside weights, and what of them decays."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import nn
from transformers import GenerationConfig

from pipeline.models import load_model
from pipeline.training.optimizer import parameter_groups
from tests.pipeline.models.conftest import Kind
from tests.pipeline.models.test_hugging_face import prompt_of

SETTINGS = {
    "eos_token_id": [1, 2],
    "repetition_penalty": 1.05,
    "do_sample": False,
    "temperature": 0.1,  # has no meaning without sampling: transformers refuses to save it
}


def test_settings_of_generation_go_with_the_model(
    make_kind: Callable[[str], Kind], tmp_path: Path
) -> None:
    kind = make_kind("qwen2_vl")
    shutil.copytree(kind.model_dir, tmp_path / "model")
    (tmp_path / "model/generation_config.json").write_text(json.dumps(SETTINGS))
    load_model(tmp_path / "model", kind.facts).save_pretrained(tmp_path / "saved")
    saved = json.loads((tmp_path / "saved/generation_config.json").read_text())
    assert {name: saved.get(name) for name in SETTINGS} == SETTINGS


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
def test_settings_of_generation_change_no_answer_of_an_evaluation(
    make_kind: Callable[[str], Kind], tmp_path: Path, own: dict[str, Any]
) -> None:
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


def test_learned_positions_of_no_family_decay(kind: Kind) -> None:
    model: Any = kind.build()
    decayed, plain = (group["params"] for group in parameter_groups(model, 0.1))
    tables = [m.weight for m in model.modules() if isinstance(m, nn.Embedding)]
    words = model.hf.get_input_embeddings().weight
    positions = {id(table) for table in tables if table is not words and table.requires_grad}
    assert positions <= {id(parameter) for parameter in plain}
    assert id(words) in {id(parameter) for parameter in decayed}
