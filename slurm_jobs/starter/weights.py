"""Looks at the model that is to be fine-tuned: a folder, or a name on the hub."""

from __future__ import annotations

import json
import re
from pathlib import Path

from slurm_jobs.common.errors import InputError
from slurm_jobs.common.model_kinds import SMALL_VLM
from slurm_jobs.starter.data import expanded
from slurm_jobs.starter.model import Model

_ON_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_BILLIONS = re.compile(r"(?<![A-Za-z0-9.])(\d+(?:\.\d+)?)[bB](?![A-Za-z0-9])")
DEFAULT_MODEL = "Qwen/Qwen2.5-VL-3B-Instruct"
"""Of a size that a single card of 16 GB holds with LoRA, and of a family that the tests train."""


def look_at(name: str, *, as_named: str) -> Model:
    """What kind of name it is, and how large the weights are.

    Args:
        name: As the user gave it.
        as_named: The same path, as the spec is to name it.

    Raises:
        InputError: neither a folder with `config.json` nor a name on the hub.
    """
    folder = expanded(Path(name))
    if (folder / "config.json").is_file():
        size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
        return Model(
            name=as_named,
            is_on_hub=False,
            weights_gb=size / 1e9 if size else None,
            is_small_vlm=_model_type(folder / "config.json") == SMALL_VLM,
        )
    if folder.is_dir():
        message = (
            f"{folder} has no config.json: name the folder of a model as `from_pretrained` takes it"
        )
        raise InputError(message)
    if not _ON_HUB.fullmatch(name):
        message = f"{name}: neither a folder nor a name on the hub (OWNER/NAME)"
        raise InputError(message)
    found = _BILLIONS.search(name)
    return Model(name=name, is_on_hub=True, weights_gb=2 * float(found[1]) if found else None)


def _model_type(config: Path) -> str:
    """As the file says; empty where it says nothing."""
    try:
        values = json.loads(config.read_bytes())
    except (OSError, ValueError, RecursionError):
        return ""
    return str(values.get("model_type", "")) if isinstance(values, dict) else ""
