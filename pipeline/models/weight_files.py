"""Check that the files of a model's weights are present and complete, without reading them.

An interrupted download, or a copy to a full disk, leaves the config and some of the weights;
loading them would detect it only later.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.files import read_json
from slurm_jobs.common.stage_config.model import ModelConfig

_CANDIDATES = (
    *("model.safetensors", "model.safetensors.index.json"),
    *("pytorch_model.bin", "pytorch_model.bin.index.json"),
)
"""The first existing name is used, as in transformers (modeling_utils.py)."""
_LENGTH = struct.Struct("<Q")
"""First bytes of a safetensors file: the length of its header."""
_MOST_HEADER_BYTES = 100_000_000
"""Limit of safetensors."""


def check_weight_files(config: ModelConfig) -> None:
    """Check the folders of weights; a model of the hub is skipped.

    Raises:
        StageConfigError: files are missing, or shorter than their headers state.
    """
    for folder in (config.path, config.vision.path, config.language.path):
        try:
            problem = None if folder is None else next(_problems(Path(folder)), None)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            problem = f"the index or a header of its weights is damaged ({error!r})"
        if problem is not None:
            message = f"model {folder}: {problem}: copy or download the folder again"
            raise StageConfigError(message)


def fp16_warning(config: ModelConfig) -> str | None:
    """Warn that a model was trained in bf16, whose range exceeds that of fp16.

    Reads the `config.json` of the weights' folders; a model of the hub is skipped.
    """
    folders = (config.path, config.vision.path, config.language.path)
    values = ((folder, read_json(Path(folder) / "config.json")) for folder in folders if folder)
    found = [folder for folder, said in values if said and _names_bf16(said)]
    if not found:
        return None
    return (
        f"precision is fp16, but {' and '.join(found)} was trained in bf16: sums within its "
        "layers may exceed the range of fp16 (65,504), and steps in which they do are skipped. "
        "If many are, use a GPU of compute capability 8.0 or above (A100) with `precision: "
        "bf16`, or set `precision: fp32`"
    )


def _names_bf16(values: Mapping[str, Any]) -> bool:
    """Check for bf16; newer releases of transformers write `dtype`, and towers may differ."""
    parts = (values, values.get("text_config"), values.get("vision_config"))
    dtypes = (part.get(key) for part in parts if part for key in ("dtype", "torch_dtype"))
    return "bfloat16" in dtypes


def _problems(folder: Path) -> Iterator[str]:
    files = _files_of(folder)
    if not files:
        yield "no weights are there (*.safetensors)"
    for file in files:
        if not file.is_file():
            yield f"{file.name} is missing, but the index of its weights names it"
        elif file.suffix == ".safetensors" and not _is_whole(file):
            yield f"{file.name} is truncated, or not a safetensors file"


def _files_of(folder: Path) -> list[Path]:
    """Return the files to load: one with all weights, or those of an index."""
    found = next((folder / name for name in _CANDIDATES if (folder / name).is_file()), None)
    if found is None:  # under names from the config
        return sorted((*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")))
    if found.suffix != ".json":
        return [found]
    names = json.loads(found.read_bytes())["weight_map"].values()
    return [folder / each for each in sorted(set(names))]


def _is_whole(file: Path) -> bool:
    """Check whether a safetensors file is as long as its header states."""
    with file.open("rb") as stream:
        start = stream.read(_LENGTH.size)
        if len(start) < _LENGTH.size:
            return False
        (num_bytes,) = _LENGTH.unpack(start)
        if num_bytes > _MOST_HEADER_BYTES:
            return False
        try:
            header = json.loads(stream.read(num_bytes))
        except ValueError:
            return False
    ends = [each["data_offsets"][1] for name, each in header.items() if name != "__metadata__"]
    return file.stat().st_size == _LENGTH.size + num_bytes + max(ends, default=0)
