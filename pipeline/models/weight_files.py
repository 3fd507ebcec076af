"""Whether the files of a model's weights are there and whole, told without reading them.

A download that was broken off, or a copy to a full disk, has the config and some of the weights:
that would be noticed when they are loaded.
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
"""The first that is there counts, as for transformers (modeling_utils.py)."""
_LENGTH = struct.Struct("<Q")
"""The first bytes of a safetensors file: how long its header is."""
_MOST_HEADER_BYTES = 100_000_000
"""As safetensors itself has it."""


def check_weight_files(config: ModelConfig) -> None:
    """Look into the folders that weights come from; a model of the hub is left alone.

    Raises:
        StageConfigError: files are missing, or shorter than they say themselves.
    """
    for folder in (config.path, config.vision.path, config.language.path):
        try:
            problem = None if folder is None else next(_problems(Path(folder)), None)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            problem = f"the index or a header of its weights is damaged ({error!r})"
        if problem is not None:
            message = f"model {folder}: {problem}: copy or download the folder anew"
            raise StageConfigError(message)


def fp16_warning(config: ModelConfig) -> str | None:
    """Say that a model was trained in bf16, whose range fp16 does not have.

    Asks the `config.json` of the folders that weights come from; a model of the hub is left alone.
    """
    folders = (config.path, config.vision.path, config.language.path)
    values = ((folder, read_json(Path(folder) / "config.json")) for folder in folders if folder)
    found = [folder for folder, said in values if said and _names_bf16(said)]
    if not found:
        return None
    return (
        f"precision is fp16, and {' and '.join(found)} was trained in bf16: sums within its layers "
        "may leave the range of fp16 (65,504), and steps in which they do are skipped. If many "
        "are, take a GPU of compute capability 8.0 or above (A100) with `precision: bf16`, or set "
        "`precision: fp32`"
    )


def _names_bf16(values: Mapping[str, Any]) -> bool:
    """Newer releases of transformers write `dtype`, and settings of towers may have their own."""
    parts = (values, values.get("text_config"), values.get("vision_config"))
    dtypes = (part.get(key) for part in parts if part for key in ("dtype", "torch_dtype"))
    return "bfloat16" in dtypes


def _problems(folder: Path) -> Iterator[str]:
    files = _files_of(folder)
    if not files:
        yield "no weights are there (*.safetensors)"
    for file in files:
        if not file.is_file():
            yield f"{file.name} is missing, which the index of its weights names"
        elif file.suffix == ".safetensors" and not _is_whole(file):
            yield f"{file.name} is cut short, or no safetensors file"


def _files_of(folder: Path) -> list[Path]:
    """Those that are loaded: one with all weights, or those that an index names."""
    found = next((folder / name for name in _CANDIDATES if (folder / name).is_file()), None)
    if found is None:  # under names that the config gives
        return sorted((*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")))
    if found.suffix != ".json":
        return [found]
    names = json.loads(found.read_bytes())["weight_map"].values()
    return [folder / each for each in sorted(set(names))]


def _is_whole(file: Path) -> bool:
    """Whether a safetensors file is as long as its header says."""
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
