"""What is saved beside weights, and what of them decays."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForImageTextToText, GenerationConfig

from pipeline.models.build import load_model
from pipeline.models.vision_language import arrange_prompts, plain_arguments
from pipeline.train.optimizer import parameter_groups
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
    expected = {**SETTINGS, "eos_token_id": [kind.facts.eos_token_id, 1, 2]}
    assert {name: saved.get(name) for name in SETTINGS} == expected


@pytest.mark.parametrize(
    ("own", "saved"),
    [(None, "end"), ("end", "end"), (5, ["end", 5]), ([5, "end", 7], ["end", 5, 7])],
    ids=str,
)
def test_who_loads_an_export_gets_answers_that_end_where_those_of_the_evaluation_do(
    make_kind: Callable[[str], Kind], tmp_path: Path, own: Any, saved: Any
) -> None:
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
