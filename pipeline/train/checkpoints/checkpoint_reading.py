"""Checkpoints of torch.distributed, read without running anything that is written in them.

PyTorch unpickles a checkpoint's `.metadata`, and everything in it that is not a tensor. A pickle
calls functions and sets attributes of classes, so its author could run any code, or change `Path`
for the whole process. Here each object of the pickle becomes a `_PickledObject`, which does nothing
and belongs to this one reading. The description is then built from the numbers and texts in them.
Other values are read by PyTorch's `weights_only`.
"""

from __future__ import annotations

import functools
import io
import pickle
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, NoReturn, cast

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
_PART_NAME = re.compile(r"__\d+_\d+\.distcp")


class _PickledObject:
    """Holds what a pickle says of an object of some class, and stands for that object.

    Each class or function that a pickle names is represented by a subclass, see `find_class`.
    """

    path = ""
    """Name of the class or function, with its module."""
    args: tuple[Any, ...] = ()
    state: Any = None

    def __new__(cls, *args: Any) -> _PickledObject:  # noqa: PYI034 - `Self` is not in Python 3.10
        pickled = super().__new__(cls)
        pickled.args = args
        return pickled

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Unpickler(pickle._Unpickler):  # noqa: SLF001 - the one in C reserves memory for any number
    """Knows no class and no function: each name stands for an own subclass of `_PickledObject`.

    It is the one in Python, which takes 9.2 s for a description of 16 MB where the one in C takes
    2.1 s. The one in C reserves memory for any number under which a pickle keeps an object, and
    comparing these numbers first would take a loop over all opcodes in Python, too.
    """

    def __init__(self, content: bytes) -> None:
        super().__init__(io.BytesIO(content))
        self._classes: dict[str, type[_PickledObject]] = {}

    def load_bytearray8(self) -> NoReturn:
        """Refuse a `bytearray`, for which Python reserves any stated number of bytes."""
        message = "it has a bytearray, where a checkpoint of a training has something else"
        raise ValueError(message)

    dispatch: ClassVar[dict[int, Any]] = {
        **pickle._Unpickler.dispatch,  # noqa: SLF001 - as above
        pickle.BYTEARRAY8[0]: load_bytearray8,
    }

    def find_class(self, module: str, name: str) -> type[_PickledObject]:
        path = f"{module}.{name}"
        if path not in self._classes:
            self._classes[path] = type("_Named", (_PickledObject,), {"path": path})
        return self._classes[path]


class _MetadataBuilder:
    """Builds torch's `Metadata` from the pickled objects that describe it."""

    def __init__(self, folder: Path) -> None:
        self._is_file = functools.cache(lambda name: _is_file(folder / name))
        self._built: dict[int, Any] = {}
        """By id of the pickled object: a pickle may use one many times."""

    def build(self, root: Any) -> Metadata:
        fields = _fields_of(root, _PREFIX + "Metadata")
        values = {}
        for name, pickled in _expect(fields["state_dict_metadata"], dict).items():
            values[_expect(name, str)] = self._once(pickled, _build_value)
        places = {}
        for pickled_index, pickled_place in _expect(fields["storage_data"], dict).items():
            index = self._once(pickled_index, _build_index)
            place = self._once(pickled_place, self._build_place)
            is_tensor = isinstance(values.get(index.fqn), TensorStorageMetadata)
            if not is_tensor and place.length > MAX_VALUE_BYTES:
                message = f"value {index.fqn} has {place.length} bytes, and is not a tensor"
                raise ValueError(message)
            places[index] = place
        version = fields.get("version")
        if version is not None:
            _expect(version, str)
        return Metadata(state_dict_metadata=values, storage_data=places, version=version)

    def _once(self, pickled: Any, build: Callable[[Any], Any]) -> Any:
        if id(pickled) not in self._built:
            self._built[id(pickled)] = build(pickled)
        return self._built[id(pickled)]

    def _build_place(self, pickled: Any) -> _StorageInfo:
        fields = _fields_of(pickled, "torch.distributed.checkpoint.filesystem._StorageInfo")
        if fields.get("transform_descriptors"):
            message = "its files are compressed"
            raise ValueError(message)
        name = _expect(fields["relative_path"], str)
        if not _PART_NAME.fullmatch(name) or not self._is_file(name):
            message = f"it names the file {name!r:.60}, which is not one of the checkpoint's files"
            raise ValueError(message)
        return _StorageInfo(name, _build_count(fields["offset"]), _build_count(fields["length"]))


def _build_value(pickled: Any) -> STORAGE_TYPES:
    """Return the description of a tensor, or of a value that is not a tensor."""
    if _path_of(pickled) == _PREFIX + "BytesStorageMetadata":
        return BytesStorageMetadata()
    fields = _fields_of(pickled, _PREFIX + "TensorStorageMetadata")
    chunks = []
    for pickled_chunk in _expect(fields["chunks"], list):
        chunk = _fields_of(pickled_chunk, _PREFIX + "ChunkStorageMetadata")
        offsets, sizes = _build_size(chunk["offsets"]), _build_size(chunk["sizes"])
        chunks.append(ChunkStorageMetadata(offsets=offsets, sizes=sizes))
    properties = fields["properties"]
    if _path_of(properties) != _PREFIX + "TensorProperties":
        _refuse_object(properties)
    # Unlike the others it pickles a tuple, by its own `__getstate__`; the dtype is the first in it.
    pickled_dtype = _expect(properties.state, tuple)[0]
    dtype = _build_dtype(pickled_dtype)
    return TensorStorageMetadata(
        properties=TensorProperties(dtype=dtype), size=_build_size(fields["size"]), chunks=chunks
    )


def _build_index(pickled: Any) -> MetadataIndex:
    fields = _fields_of(pickled, _PREFIX + "MetadataIndex")
    offset, index = fields.get("offset"), fields.get("index")
    return MetadataIndex(
        fqn=_expect(fields["fqn"], str),
        offset=None if offset is None else _build_size(offset),
        index=None if index is None else _build_count(index),
    )


def _build_size(pickled: Any) -> torch.Size:
    if _path_of(pickled) != "torch.Size":
        _refuse_object(pickled)
    (sizes,) = pickled.args
    return torch.Size([_build_count(size) for size in _expect(sizes, tuple)])


def _build_dtype(pickled: Any) -> torch.dtype:
    """Return the dtype that the pickle names like a class, as `torch.float32`."""
    dtype = None
    if _is_class(pickled):
        module, _, name = pickled.path.rpartition(".")
        if module == "torch":
            dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        _refuse_object(pickled)
    return dtype


def _build_count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        _refuse_object(value)
    return value


def _fields_of(pickled: Any, path: str) -> dict[Any, Any]:
    """Return the fields of an object of the class `path`; refuse other objects."""
    if _path_of(pickled) != path:
        _refuse_object(pickled)
    return cast("dict[Any, Any]", _expect(pickled.state, dict))


def _path_of(value: Any) -> str | None:
    return value.path if isinstance(value, _PickledObject) else None


def _is_class(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, _PickledObject)


def _expect(value: Any, kind: type) -> Any:
    """Return a value of exactly this type; refuse others."""
    if type(value) is not kind:
        _refuse_object(value)
    return value


def _refuse_object(value: Any) -> NoReturn:
    path = value.path if _is_class(value) else _path_of(value)
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
            metadata = _MetadataBuilder(path.parent).build(_Unpickler(content).load())
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
