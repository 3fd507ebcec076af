"""Checkpoints of torch.distributed, read without running anything that is written in them.

PyTorch unpickles a checkpoint's `.metadata`, and everything in it that is not a tensor. A pickle
calls functions and sets attributes of classes, so its author could run any code, or change `Path`
for the whole process. Here a name in the description stands for an inert object that belongs to
this one reading; the description is then built from the numbers and texts that these objects hold.
Other values are read by PyTorch's `weights_only`.
"""

from __future__ import annotations

import functools
import io
import pickle
import re
import stat
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._nested_dict import set_element
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    STORAGE_TYPES,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import ReadItem

from pipeline.train.checkpoints.old_numpy_state import OLD_NUMPY_NAMES
from slurm_jobs.base.errors import StageConfigError

METADATA_NAME = ".metadata"
MAX_METADATA_BYTES = 1 << 30
"""A thousand tensors in a thousand parts each take 150 MB."""
MAX_VALUE_BYTES = 1 << 26
"""Limit of one value that is not a tensor; the largest of ours are generator states of 7 kB."""

_PREFIX = "torch.distributed.checkpoint.metadata."
_TENSOR, _BYTES = _PREFIX + "TensorStorageMetadata", _PREFIX + "BytesStorageMetadata"
_PART_NAME = re.compile(r"__\d+_\d+\.distcp")


class _Inert:
    """Arguments and state that a pickle has for an object, which is not built."""

    path = ""
    """Name of the class or function."""
    args: tuple[Any, ...] = ()
    state: Any = None

    def __new__(cls, *args: Any) -> _Inert:  # noqa: PYI034 - `Self` is not in Python 3.10
        made = super().__new__(cls)
        made.args = args
        return made

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle._Unpickler):  # noqa: SLF001 - the one in C reserves memory for any number
    """Knows no class and no function: each name is an inert class of this unpickler.

    It is the one in Python, which takes 9.2 s for a description of 16 MB where the one in C takes
    2.1 s. The one in C reserves memory for any number under which a pickle keeps an object, and
    comparing these numbers first would take a loop over all opcodes in Python, too.
    """

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content))
        self._classes: dict[str, type[_Inert]] = {}

    def load_bytearray8(self) -> NoReturn:
        """Refuse a `bytearray`, for which Python reserves any stated number of bytes."""
        message = "it has a bytearray, where a checkpoint of a training has something else"
        raise ValueError(message)

    dispatch: ClassVar[dict[int, Any]] = {
        **pickle._Unpickler.dispatch,  # noqa: SLF001 - as above
        pickle.BYTEARRAY8[0]: load_bytearray8,
    }

    def find_class(self, module: str, name: str) -> type[_Inert]:
        path = f"{module}.{name}"
        if path not in self._classes:
            self._classes[path] = type("_Named", (_Inert,), {"path": path})
        return self._classes[path]


class _Description:
    """Values of torch's `Metadata`, from the inert objects of its pickle."""

    def __init__(self, folder: Path) -> None:
        self._is_file = functools.cache(lambda name: _is_file(folder / name))
        self._built: dict[int, Any] = {}
        """By id of the inert object: a pickle may use one many times."""

    def build(self, root: Any) -> Metadata:
        values = _state(root, _PREFIX + "Metadata")
        stored = {
            _typed(name, str): self._once(value, _stored)
            for name, value in _typed(values["state_dict_metadata"], dict).items()
        }
        places = {}
        for key, value in _typed(values["storage_data"], dict).items():
            index = self._once(key, _index)
            places[index] = place = self._once(value, self._place)
            is_tensor = isinstance(stored.get(index.fqn), TensorStorageMetadata)
            if not is_tensor and place.length > MAX_VALUE_BYTES:
                message = f"value {index.fqn} has {place.length} bytes, and is not a tensor"
                raise ValueError(message)
        version = values.get("version")
        return Metadata(
            state_dict_metadata=stored,
            storage_data=places,
            version=None if version is None else _typed(version, str),
        )

    def _once(self, value: Any, build: Any) -> Any:
        if id(value) not in self._built:
            self._built[id(value)] = build(value)
        return self._built[id(value)]

    def _place(self, value: Any) -> _StorageInfo:
        values = _state(value, "torch.distributed.checkpoint.filesystem._StorageInfo")
        if values.get("transform_descriptors"):
            message = "its files are compressed"
            raise ValueError(message)
        name = _typed(values["relative_path"], str)
        if not _PART_NAME.fullmatch(name) or not self._is_file(name):
            message = f"it names the file {name!r:.60}, which is not one of the checkpoint's files"
            raise ValueError(message)
        return _StorageInfo(name, _count(values["offset"]), _count(values["length"]))


def _stored(value: Any) -> STORAGE_TYPES:
    if _path(value) == _BYTES:
        return BytesStorageMetadata()
    values = _state(value, _TENSOR)
    chunks = []
    for chunk in _typed(values["chunks"], list):
        of_chunk = _state(chunk, _PREFIX + "ChunkStorageMetadata")
        offsets, sizes = _size(of_chunk["offsets"]), _size(of_chunk["sizes"])
        chunks.append(ChunkStorageMetadata(offsets=offsets, sizes=sizes))
    properties = values["properties"]
    if _path(properties) != _PREFIX + "TensorProperties":
        _unexpected(properties)
    dtype = _dtype(_typed(properties.state, tuple)[0])
    return TensorStorageMetadata(
        properties=TensorProperties(dtype=dtype), size=_size(values["size"]), chunks=chunks
    )


def _index(value: Any) -> MetadataIndex:
    values = _state(value, _PREFIX + "MetadataIndex")
    offset, index = values.get("offset"), values.get("index")
    return MetadataIndex(
        fqn=_typed(values["fqn"], str),
        offset=None if offset is None else _size(offset),
        index=None if index is None else _count(index),
    )


def _path(value: Any) -> str | None:
    return value.path if isinstance(value, _Inert) else None


def _state(value: Any, path: str) -> Any:
    if _path(value) != path:
        _unexpected(value)
    return _typed(value.state, dict)


def _size(value: Any) -> torch.Size:
    if _path(value) != "torch.Size":
        _unexpected(value)
    (sizes,) = value.args
    return torch.Size([_count(size) for size in _typed(sizes, tuple)])


def _dtype(value: Any) -> torch.dtype:
    is_name = isinstance(value, type) and issubclass(value, _Inert)
    module, _, name = str(value.path).rpartition(".") if is_name else ("", "", "")
    dtype = getattr(torch, name, None) if module == "torch" else None
    return dtype if isinstance(dtype, torch.dtype) else _unexpected(value)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        _unexpected(value)
    return value


def _typed(value: Any, kind: type) -> Any:
    return value if type(value) is kind else _unexpected(value)


def _unexpected(value: Any) -> NoReturn:
    if isinstance(value, type) and issubclass(value, _Inert):
        value = value()
    path = _path(value)
    name = type(value).__name__ if path is None else str(path)
    message = f"it has {name:.60}, where a checkpoint of a training has something else"
    raise ValueError(message)


def _is_file(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except FileNotFoundError:
        return False


class PlainReader(dcp.FileSystemReader):
    """Reads a description that holds numbers and texts alone."""

    _metadata: Metadata | None = None

    def read_metadata(self, *_args: Any, **_kwargs: Any) -> Metadata:
        """Read the description of the saved state, once.

        Raises:
            StageConfigError: it contains something else.
            OSError: the file cannot be read.
        """
        if self._metadata is not None:
            return self._metadata
        path = Path(self.path) / METADATA_NAME
        if path.stat().st_size > MAX_METADATA_BYTES or not _is_file(path):
            _refuse(path, f"it is not a file of at most {MAX_METADATA_BYTES:,} bytes")
        content = path.read_bytes()
        try:
            metadata = _Description(path.parent).build(_Unpickler(content).load())
        except OSError:
            raise
        except Exception as error:  # noqa: BLE001 - a forged pickle raises whatever it likes
            _refuse(path, f"{error!r:.200}")
        metadata.storage_meta = StorageMeta(load_id=self.load_id)
        self._metadata = metadata
        return metadata


class PlainPlanner(DefaultLoadPlanner):
    """Loads values that are not tensors with `weights_only`: numbers, words, generator states."""

    def load_bytes(self, read_item: ReadItem, value: io.BytesIO) -> None:
        """Load one such value.

        Raises:
            StageConfigError: it is of another type.
        """
        name = read_item.dest_index.fqn
        try:
            with torch.serialization.safe_globals(OLD_NUMPY_NAMES):
                plain = torch.load(value, weights_only=True)
        except Exception as error:  # noqa: BLE001 - a forged pickle raises whatever it likes
            reason = str(error.__context__ or error).partition("\n")[0]  # torch's error is advice
            _refuse(f"value {name} of the checkpoint", f"{reason:.200}")
        set_element(self.original_state_dict, self.mappings[name], plain)


def _refuse(what: Path | str, why: object) -> NoReturn:
    message = (
        f"{what} is not read: {why}; it was not written by this training: continue from one of "
        "your own checkpoints"
    )
    raise StageConfigError(message)
