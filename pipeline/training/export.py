"""The trained model as a folder that loads again: written whole, read back, compared."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

from pipeline.models import SmallVLM
from pipeline.models.small_vlm import WEIGHTS_NAME
from pipeline.preprocess.processors import processor_files
from pipeline.training.checkpoint_files import (
    hash_file,
    publish,
    remove_folder,
    remove_leftovers,
)
from pipeline.training.ranks import Ranks
from slurm_jobs.common.errors import StageError

_NOT_PROCESSOR = ("config.json", "generation_config.json")


def export_model(
    model: SmallVLM, folder: Path, *, processor_dir: Path, ranks: Ranks, attempt: int
) -> None:
    """Gather the weights of all ranks and write `folder`; a collective.

    An equal folder that an earlier attempt exported stays as it is.

    Raises:
        StageError: what was written is not what was gathered.
    """
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    expected_names = set(model.state_dict())
    weights = get_model_state_dict(model, options=options)
    if ranks.rank == 0:
        temp_dir = folder.with_name(f".{folder.name}.{attempt}.tmp")
        remove_leftovers(folder.parent, folder.name)
        temp_dir.mkdir(parents=True)
        model.save_pretrained(temp_dir, weights)
        copy_processor(processor_dir, temp_dir)
        check_weights(temp_dir / WEIGHTS_NAME, weights, expected_names)
        _put_in_place(temp_dir, folder)
    ranks.barrier()


def check_weights(
    path: Path, weights: Mapping[str, torch.Tensor], expected_names: set[str]
) -> None:
    """Read a weight file back and compare names and bytes.

    Saving through wrappers has been seen to drop tensors without an error
    (pytorch/peft adapters under activation checkpointing), hence the names.

    Raises:
        StageError: naming the tensors that are missing, unexpected or different.
    """
    found = load_file(path)
    problems = {
        "missing": sorted(expected_names - found.keys()),
        "unexpected": sorted(found.keys() - expected_names),
        "different": [
            name
            for name in sorted(found.keys() & weights.keys())
            if not _same_bytes(found[name], weights[name])
        ],
    }
    if any(problems.values()):
        listed = "; ".join(
            f"{kind}: {', '.join(names)}" for kind, names in problems.items() if names
        )
        message = f"{path} is not what was gathered from the ranks ({listed})"
        raise StageError(message)


def copy_processor(processor_dir: Path, folder: Path) -> None:
    """Copy tokenizer and image preprocessing beside the weights, as model folders have them."""
    for path in processor_files(processor_dir):
        if path.name not in _NOT_PROCESSOR:
            shutil.copyfile(path, folder / path.name)


def _put_in_place(temp_dir: Path, folder: Path) -> None:
    """Give the export its name; an older, different one is moved away first and removed last."""
    if _holds_same_files(folder, temp_dir):
        remove_folder(temp_dir)
        return
    old = folder.with_name(f".{folder.name}.old.tmp")
    if folder.exists():
        folder.rename(old)
    publish(temp_dir, folder)
    remove_folder(old)


def _holds_same_files(folder: Path, temp_dir: Path) -> bool:
    """Whether `folder` has every file of the new export, with the same bytes, and loads alike.

    What the user put beside them stays, unless it is a file that the processor is read from:
    a `chat_template.jinja` would come before the template of the export.
    """
    try:
        unknown = {p.name for p in processor_files(folder)} - {p.name for p in temp_dir.iterdir()}
        return not unknown and all(
            hash_file(folder / p.name) == hash_file(p) for p in temp_dir.iterdir()
        )
    except FileNotFoundError:
        return False


def _same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    flat = (one.contiguous().flatten(), other.cpu().contiguous().flatten())
    return torch.equal(*(tensor.view(torch.uint8) for tensor in flat))
