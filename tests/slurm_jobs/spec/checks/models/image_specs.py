"""Specs of trainings on images of several kinds."""

import json
from pathlib import Path

import pytest

SPEC = """\
name: a
cluster: local
stages:
  p:
    run: preprocess
    config: {manifest: rows.csv, processor: PROCESSOR}
  c: {run: consolidate, after: p}
  t:
    run: train
    after: c
    config:
      device: cpu
      strategy: single
      num_steps: 1
      model: MODEL
"""
TRAINED = ("qwen3_vl", "smolvlm", "llava", "siglip_vision_model", "qwen2")
CLASSES = {
    "qwen3_vl": "Qwen2VLImageProcessorFast",
    "smolvlm": "SmolVLMImageProcessor",
    "llava": "CLIPImageProcessor",
    "siglip_vision_model": "SiglipImageProcessor",
}


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder of each kind, called after its model_type, with its processor."""
    (tmp_path / "rows.csv").write_text("image_path,text\na.png,red\n")
    for kind in (*TRAINED, "unknown"):
        folder = tmp_path / kind
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"model_type": kind}))
        (folder / "tokenizer.json").write_text("{}")
        (folder / "chat_template.jinja").touch()
        images = {"image_processor_type": CLASSES.get(kind, "NewImageProcessor")}
        if kind == "siglip_vision_model":
            (folder / "preprocessor_config.json").write_text(json.dumps(images))
        elif kind != "qwen2":
            (folder / "processor_config.json").write_text(json.dumps({"image_processor": images}))
    return tmp_path


def spec(processor: str, model: str) -> str:
    return SPEC.replace("PROCESSOR", processor).replace("MODEL", model)
