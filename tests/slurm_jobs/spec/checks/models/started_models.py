"""Specs of a training that starts from a model's folder."""

import json
from pathlib import Path
from typing import Any


def spec(model: str) -> str:
    return f"""\
name: a
cluster: local
stages:
  t:
    run: train
    config:
      {{device: cpu, strategy: single, num_steps: 1, dataset: .,
       model: {model}}}
"""


def write_config(folder: Path, values: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(values))
