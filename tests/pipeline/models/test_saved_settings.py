"""What is saved beside weights, and what of them decays."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from pipeline.models import load_model
from pipeline.training.optimizer import parameter_groups
from tests.pipeline.models.conftest import Kind

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


def test_learned_positions_of_no_family_decay(kind: Kind) -> None:
    model: Any = kind.build()
    decayed, plain = (group["params"] for group in parameter_groups(model, 0.1))
    tables = [m.weight for m in model.modules() if isinstance(m, nn.Embedding)]
    words = model.hf.get_input_embeddings().weight
    positions = {id(table) for table in tables if table is not words and table.requires_grad}
    assert positions <= {id(parameter) for parameter in plain}
    assert id(words) in {id(parameter) for parameter in decayed}
