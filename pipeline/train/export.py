"""Export of the trained model to a loadable folder: written, read back, compared."""

from __future__ import annotations

import functools
import shutil
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import cast

import torch
from safetensors import SafetensorError, safe_open
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

from pipeline.models.finetuning.adapters import merge_adapters, save_adapters
from pipeline.models.finetuning.classifier_heads import save_heads
from pipeline.models.finetuning.packed_linear import dequantize_weights
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.checkpoints.checkpoint_folders import (
    hash_file,
    publish,
    remove_folder,
    remove_leftovers,
)
from pipeline.train.ranks.process_group import Ranks
from slurm_jobs.base.errors import StageError
from slurm_jobs.formats.configs.training_phases import LevelConfig
from slurm_jobs.formats.processors.processor_files import processor_files

_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
_HOST = torch.device("cpu")
_MOST_NAMES = 5
"""Number of weights named per kind of problem in a message."""
_NOT_PROCESSOR = ("config.json", "generation_config.json")


def export_model(
    model: VisionLanguageModel,
    output_dir: Path,
    *,
    processor_dir: Path,
    ranks: Ranks,
    attempt: int,
    adapters_of: str | None = None,
    learned: AbstractSet[str] = frozenset(),
    levels: Sequence[LevelConfig] = (),
) -> Path:
    """Gather the weights and write the folder `model/`, which is returned; a collective.

    Adapters are merged into it. An equal folder that an earlier attempt exported is kept.

    `adapters_of` is the model that the adapters were added to. They are written to `adapters/` for
    `PeftModel.from_pretrained`, with the other `learned` parameters; None if there are none.

    Raises:
        StageError: on rank 0, as in `_write`, or the gathered weights are not the model's.
    """
    # Its annotation is that of the states of optimizers, which have other values.
    weights = cast("dict[str, torch.Tensor]", get_model_state_dict(model, options=_WHOLE))
    if ranks.rank == 0:
        check_names(set(model.state_dict()), set(weights))
        if adapters_of is not None:
            write = functools.partial(
                save_adapters, model, weights=weights, base=adapters_of, learned=learned
            )
            _write(output_dir / "adapters", attempt, write)
        write = functools.partial(_write_model, model, weights, processor_dir, levels)
        _write(output_dir / "model", attempt, write)
    ranks.meet("export", speaks=ranks.rank == 1)  # tens of GB may take longer than a timeout
    return output_dir / "model"


def _write_model(
    model: VisionLanguageModel,
    weights: Mapping[str, torch.Tensor],
    processor_dir: Path,
    levels: Sequence[LevelConfig],
    place: Path,
) -> Mapping[str, torch.Tensor]:
    """Write the model's folder; return its tensors, by their names in the files.

    Adapters are merged into the dequantised 4-bit weights, next to which they were trained, not
    into the original weights.
    """
    copy_processor(processor_dir, place)
    device = next((b.device for b in model.buffers() if b.device.type == "cuda"), _HOST)
    whole = dequantize_weights(model, weights, device)
    merged = model.save_pretrained(place, merge_adapters(model, whole))
    return {**merged, **save_heads(place, levels, weights)}


def _write(folder: Path, attempt: int, write: Callable[[Path], Mapping[str, torch.Tensor]]) -> None:
    """Write a folder next to its final path, read it back, and move it there.

    Raises:
        StageError: the file system failed (a full disk, a quota), or the disk content differs
            from what `write` returned.
    """
    temp_dir = folder.with_name(f".{folder.name}.{attempt}.tmp")
    try:
        remove_leftovers(folder.parent, folder.name)
        temp_dir.mkdir(parents=True)
        check_weights(temp_dir, write(temp_dir))
        if _holds_same_files(folder, temp_dir):
            remove_folder(temp_dir)
            return
        old = folder.with_name(f".{folder.name}.old.tmp")
        if folder.exists():  # different: moved away first, and removed last
            folder.rename(old)
        publish(temp_dir, folder)
        remove_folder(old)
    except (SafetensorError, OSError) as error:
        with suppress(OSError):
            remove_folder(temp_dir)
        message = (
            f"the model cannot be exported to {folder}: {error}. The partial export is removed "
            "and the checkpoints stay: free space if the disk or a quota is full; the next "
            "attempt exports from the last checkpoint"
        )
        raise StageError(message) from error


def check_names(expected: set[str], gathered: set[str]) -> None:
    """Compare the names of the gathered weights with the model's.

    Gathering through wrappers can drop tensors without an error (seen with peft adapters under
    activation checkpointing).

    Raises:
        StageError: naming what is missing or unexpected.
    """
    if expected != gathered:
        message = (
            f"the weights that were gathered from the ranks are not the model's "
            f"({_listed({'missing': expected - gathered, 'unexpected': gathered - expected})})"
        )
        raise StageError(message)


def check_weights(folder: Path, weights: Mapping[str, torch.Tensor]) -> None:
    """Read the weight files of a folder back and compare names and bytes.

    `weights` are the expected contents, under the names on disk.

    Raises:
        StageError: naming the tensors that are missing, unexpected or different.
    """
    is_same: dict[str, bool] = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - a file, not a dict
                is_same[name] = name in weights and _same_bytes(
                    file.get_tensor(name), weights[name]
                )
    problems = {
        "missing": weights.keys() - is_same.keys(),
        "unexpected": is_same.keys() - weights.keys(),
        "different": {name for name in weights if not is_same.get(name, True)},
    }
    if any(problems.values()):
        message = (
            f"{folder} does not match the weights gathered from the ranks ({_listed(problems)})"
        )
        raise StageError(message)


def _listed(problems: Mapping[str, AbstractSet[str]]) -> str:
    """Return the first names of each kind, and how many more there are."""
    texts = []
    for kind, names in problems.items():
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        if names:
            texts.append(f"{kind}: {', '.join(sorted(names)[:_MOST_NAMES])}{more}")
    return "; ".join(texts)


def copy_processor(processor_dir: Path, folder: Path) -> None:
    """Copy tokenizer and image preprocessing next to the weights, as in model folders."""
    for path in processor_files(processor_dir):
        if path.name not in _NOT_PROCESSOR:
            shutil.copyfile(path, folder / path.name)


def _holds_same_files(folder: Path, temp_dir: Path) -> bool:
    """Check whether `folder` has every file of the new export, with the same bytes.

    Additional files of the user stay, unless the processor would read them: a
    `chat_template.jinja` would take precedence over the template of the export.
    """
    try:
        unknown = {p.name for p in processor_files(folder)} - {p.name for p in temp_dir.iterdir()}
        return not unknown and all(
            hash_file(folder / p.name) == hash_file(p) for p in temp_dir.iterdir()
        )
    except FileNotFoundError:
        return False


def _same_bytes(first: torch.Tensor, other: torch.Tensor) -> bool:
    if first.dtype != other.dtype or first.shape != other.shape:
        return False
    flat = (first.contiguous().flatten(), other.cpu().contiguous().flatten())
    return torch.equal(*(tensor.view(torch.uint8) for tensor in flat))
