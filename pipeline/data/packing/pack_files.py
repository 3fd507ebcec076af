"""Plan files: the packs of an epoch, computed once and memory-mapped by every rank.

    4,096 bytes   magic, JSON (format version, sizes, types, checksums, key), spaces, xxh3 of
                  all that
    items         int32 or int64, little-endian
    bounds        int64, little-endian, from the next multiple of 8 on

The key states the inputs and settings of the packs; opening a file requires the expected key.
The caller defines it: the data set's fingerprint, the strategy, the budget, the seed, the
epoch.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import xxhash

from pipeline.data.packing.budget import Packs
from slurm_jobs.base.errors import DamagedFileError
from slurm_jobs.base.files import atomic_writer

FORMAT_VERSION = 1
"""Raised when the layout, or the packs for equal keys, change."""


_MAGIC = b"slurm-jobs-packs\n"


_HEADER_BYTES = 4096


_DIGEST_BYTES = 16


_CHECKED_BYTES = 1 << 24


def plan_name(key: Mapping[str, Any]) -> str:
    """Return a file name for packs with this key; different keys have different names."""
    return f"packs-{xxhash.xxh3_64_hexdigest(_as_json({'version': FORMAT_VERSION, **key}))}.bin"


def write_packs(path: Path, parts: Iterable[Packs], key: Mapping[str, Any]) -> None:
    """Write packs as they come; the file appears complete or not at all.

    Memory holds one part at a time. Ends of packs are buffered in an unnamed file next to
    `path`, eight bytes per pack.

    Args:
        path: Of the file; an existing one is replaced.
        parts: The packs, in their order (`pack_order`), at least one part.
        key: JSON values that state their inputs and settings.

    Raises:
        ValueError: there are no packs, or the key is longer than 3,500 bytes as JSON.
        OSError: the file cannot be written, for example on a full disk.
    """
    with atomic_writer(path) as stream, tempfile.TemporaryFile(dir=path.parent) as bounds:
        stream.write(bytes(_HEADER_BYTES))
        facts = _write_parts(stream, bounds, parts)
        if not facts["num_packs"]:
            message = f"{path}: there are no packs to write"
            raise ValueError(message)
        stream.write(bytes(-stream.tell() % 8))
        bounds.seek(0)
        shutil.copyfileobj(bounds, stream)
        text = _MAGIC + _as_json({"version": FORMAT_VERSION, "key": key, **facts})
        room = _HEADER_BYTES - _DIGEST_BYTES
        if len(text) > room:
            message = f"the key of a plan file is too long: {len(text)} bytes of {room}"
            raise ValueError(message)
        text = text.ljust(room)
        stream.seek(0)
        stream.write(text + xxhash.xxh3_64_hexdigest(text).encode())


def _write_parts(stream: IO[bytes], bounds: IO[bytes], parts: Iterable[Packs]) -> dict[str, Any]:
    """Append all items to one stream and all bounds to another; return their header fields."""
    items_sum, bounds_sum = xxhash.xxh3_64(), xxhash.xxh3_64()
    num_items = num_packs = 0
    item_kind = ""
    for number, part in enumerate(parts):
        item_kind = item_kind or f"<i{part.items.dtype.itemsize}"
        ends = part.bounds[1 if number else 0 :] + num_items
        _append(stream, items_sum, part.items.astype(item_kind, copy=False))
        _append(bounds, bounds_sum, ends.astype("<i8", copy=False))
        num_items, num_packs = num_items + len(part.items), num_packs + len(part)
    return {
        "num_items": num_items,
        "num_packs": num_packs,
        "item_type": item_kind,
        "items_xxh3": items_sum.hexdigest(),
        "bounds_xxh3": bounds_sum.hexdigest(),
    }


def open_packs(path: Path, key: Mapping[str, Any], *, verify: bool = True) -> Packs:
    """Memory-map packs that `write_packs` wrote.

    Args:
        path: Of the file.
        key: Key that it must have.
        verify: Compare items and bounds with their checksums, which reads all of them. Without
            it only the header and the file's size are checked: for all but one rank of a node.

    Raises:
        DamagedFileError: the file is of another kind, version or key, is truncated or was
            changed.
        OSError: it cannot be read.
    """
    with path.open("rb") as stream:
        facts = _read_header(path, stream.read(_HEADER_BYTES), key)
        size = stream.seek(0, 2)
    kind = np.dtype(facts["item_type"])
    end_of_items = _HEADER_BYTES + facts["num_items"] * kind.itemsize
    start_of_bounds = end_of_items + -end_of_items % 8
    expected = start_of_bounds + 8 * (facts["num_packs"] + 1)
    if size != expected:
        raise _damaged(path, f"it has {size:,} bytes, and its header says {expected:,}")
    content = np.memmap(path, mode="r", dtype=np.uint8)
    items = content[_HEADER_BYTES:end_of_items].view(kind)
    bounds = content[start_of_bounds:].view("<i8")
    if verify:
        for name, values in (("items", items), ("bounds", bounds)):
            checksum, data = xxhash.xxh3_64(), values.data.cast("B")
            for start in range(0, len(data), _CHECKED_BYTES):
                checksum.update(data[start : start + _CHECKED_BYTES])
            if checksum.hexdigest() != facts[f"{name}_xxh3"]:
                raise _damaged(path, f"its {name} do not match their checksum")
    return Packs(bounds=bounds, items=items)


def _read_header(path: Path, header: bytes, key: Mapping[str, Any]) -> dict[str, Any]:
    if not header.startswith(_MAGIC):
        raise _damaged(path, "it does not begin as a plan file does")
    text, digest = header[:-_DIGEST_BYTES], header[-_DIGEST_BYTES:]
    if len(header) < _HEADER_BYTES or xxhash.xxh3_64_hexdigest(text).encode() != digest:
        raise _damaged(path, "its header does not match its checksum")
    facts: dict[str, Any] = json.loads(text[len(_MAGIC) :])
    if facts["version"] != FORMAT_VERSION:
        raise _damaged(path, f"it has version {facts['version']}, and this is {FORMAT_VERSION}")
    expected = json.loads(_as_json(key))
    stored = facts["key"]
    if stored != expected:
        differences = ", ".join(
            f"{name} {stored.get(name)!r} instead of {expected.get(name)!r}"
            for name in sorted(stored.keys() | expected.keys())
            if stored.get(name) != expected.get(name)
        )
        raise _damaged(path, f"its packs were made with {differences}")
    return facts


def _as_json(values: Mapping[str, Any]) -> bytes:
    return json.dumps(values, sort_keys=True, ensure_ascii=True).encode()


def _append(stream: IO[bytes], checksum: Any, values: np.ndarray) -> None:
    data = np.ascontiguousarray(values).data.cast("B")
    checksum.update(data)
    stream.write(data)


def _damaged(path: Path, reason: str) -> DamagedFileError:
    message = f"{path} cannot be used: {reason}. Remove it; packs are then computed again"
    return DamagedFileError(message)
