"""Files of a model's weights: whether they are complete, and trained in bf16."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.base.files import read_json
from slurm_jobs.base.regular_files import open_regular, read_bytes
from slurm_jobs.formats.configs.model_parts import ModelConfig

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
    """Check that the files of weights are present and complete; a model of the hub is skipped.

    An interrupted download, or a copy to a full disk, leaves the config and some of the weights;
    loading them would detect it only later.

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
    bf16_folders = []
    for folder in (config.path, config.vision.path, config.language.path):
        values = (read_json(Path(folder) / "config.json") if folder else None) or {}
        # Newer releases of transformers write `dtype`, and towers may differ.
        dtypes = set()
        for part in (values, values.get("text_config"), values.get("vision_config")):
            if part:
                dtypes |= {part.get("dtype"), part.get("torch_dtype")}
        if folder and "bfloat16" in dtypes:
            bf16_folders.append(folder)
    if not bf16_folders:
        return None
    return (
        f"precision is fp16, but {' and '.join(bf16_folders)} was trained in bf16: sums within its "
        "layers may exceed the range of fp16 (65,504), and steps in which they do are skipped. "
        "If many are, use a GPU of compute capability 8.0 or above (A100) with `precision: "
        "bf16`, or set `precision: fp32`"
    )


def _problems(folder: Path) -> Iterator[str]:
    weights = next((folder / name for name in _CANDIDATES if (folder / name).is_file()), None)
    if weights is None:  # under names from the config
        files = sorted((*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin")))
    elif weights.suffix == ".json":
        names = set(json.loads(read_bytes(weights))["weight_map"].values())
        files = [folder / name for name in sorted(names)]
    else:
        files = [weights]
    if not files:
        yield "no weights are there (*.safetensors)"
    for file in files:
        if not file.is_file():
            yield f"{file.name} is missing, but the index of its weights names it"
        elif file.suffix == ".safetensors" and not _is_whole(file):
            yield f"{file.name} is truncated, or not a safetensors file"


def _is_whole(file: Path) -> bool:
    """Check whether a safetensors file is as long as its header states."""
    with open_regular(file) as stream:
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
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    return file.stat().st_size == _LENGTH.size + num_bytes + max(ends, default=0)
