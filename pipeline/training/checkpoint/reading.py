"""Reads a checkpoint of torch.distributed without running code from it.

PyTorch unpickles a checkpoint's `.metadata`, and everything in it that is not a tensor, without
restrictions: the author of the folder could run any code. Here only the types that checkpoints
of trainings contain are built; any other name is refused.
"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._nested_dict import set_element
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta
from torch.distributed.checkpoint.planner import ReadItem

from slurm_jobs.common.errors import StageConfigError

METADATA_NAME = ".metadata"
_METADATA = "torch.distributed.checkpoint.metadata"
_TYPES = {
    *((_METADATA, f"{name}StorageMetadata") for name in ("Tensor", "Bytes", "Chunk")),
    *((_METADATA, name) for name in ("Metadata", "MetadataIndex", "StorageMeta")),
    *((_METADATA, name) for name in ("TensorProperties", "_MEM_FORMAT_ENCODING")),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),
    ("torch", "Size"),
    ("pathlib", "PosixPath"),
    ("pathlib", "Path"),
    ("collections", "OrderedDict"),
}
"""Names in the metadata of torch 2.13 and 2.14, in addition to dtypes."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        is_dtype = module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        if (module, name) not in _TYPES and not is_dtype:
            message = f"it names {module}.{name}, which no checkpoint of a training has"
            raise pickle.UnpicklingError(message)
        return super().find_class(module, name)


class PlainReader(dcp.FileSystemReader):
    """Builds only plain values."""

    def read_metadata(self, *_args: Any, **_kwargs: Any) -> Metadata:
        """Read the description of the saved state.

        Raises:
            StageConfigError: it contains something else.
        """
        path = Path(self.path) / METADATA_NAME
        with path.open("rb") as stream:
            try:
                metadata = _Unpickler(stream).load()
            except (pickle.UnpicklingError, AttributeError, TypeError) as error:
                _refuse(path, error)
        if not isinstance(metadata, Metadata):
            _refuse(path, f"it is a {type(metadata).__name__}")
        if metadata.storage_meta is None:
            metadata.storage_meta = StorageMeta()
        metadata.storage_meta.load_id = self.load_id
        return metadata


class PlainPlanner(DefaultLoadPlanner):
    """Loads values that are not tensors with `weights_only`: numbers, words, generator states."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Load one such value.

        Raises:
            StageConfigError: it is of another type.
        """
        try:
            with torch.serialization.safe_globals(_numpy_types()):
                plain = torch.load(value, weights_only=True)
        except pickle.UnpicklingError as error:
            _refuse(
                f"value {read_item.dest_index.fqn} of the checkpoint", str(error).splitlines()[0]
            )
        place = self.mappings[read_item.dest_index.fqn]
        set_element(self.original_state_dict, place, plain)


def _numpy_types() -> list[Any]:
    """Return the types in the state of NumPy's generator: an array of whole numbers."""
    return [
        np._core.multiarray._reconstruct,  # noqa: SLF001 - the name that its pickles have
        np.ndarray,
        np.dtype,
        type(np.dtype(np.uint32)),
    ]


def _refuse(what: Path | str, why: object) -> NoReturn:
    message = (
        f"{what} is not read: {why}; it was not written by this training: continue from one of "
        "your own checkpoints"
    )
    raise StageConfigError(message)
