"""Format of a data set on disk: its description, the members of a sample, and tar headers."""

from __future__ import annotations

import ast
import dataclasses
import functools
import io
import json
import os
import shlex
import struct
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import simplejpeg
import xxhash
from PIL import Image

from slurm_jobs.shared.dataset_folder import INFO_NAME
from slurm_jobs.shared.errors import StageError
from slurm_jobs.shared.processors.model_types import ImageKind
from slurm_jobs.shared.regular_files import read_bytes

# Test for files on this machine's own disks or memory, as opposed to network file systems.


_OF_THIS_MACHINE = frozenset({"ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs"})


def is_on_this_machine(path: Path) -> bool:
    """Return True if `path` is certainly on a local file system.

    Network file systems may lose a file while it is read; a memory map of such a file ends the
    process with SIGBUS.
    """
    return _type_of(os.stat(path).st_dev) in _OF_THIS_MACHINE  # noqa: PTH116 - one call a shard


@functools.lru_cache(maxsize=64)
def _type_of(device: int) -> str:
    """Return the file system type of a mounted device; empty if unknown."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text(errors="replace").splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2] == wanted:
            return after.split()[0]
    return ""


# `dataset.json`: description of a finished data set; its presence proves it complete.
#
# ```
# dataset.json  index.arrow  rejects.jsonl  processor/  shards/shard-000000.tar ...
# ```


DATASET_FORMAT = "slurm-jobs-dataset-2"
REJECTS_NAME = "rejects.jsonl"
PACKS_DIR = "packs"
"""Folder of packs that trainings computed; computed again if missing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardInfo:
    """Name, size and checksum of one shard."""

    name: str
    """`shard-000000.tar`."""
    num_bytes: int
    xxh3: str
    """xxh3-64 of the file, in hexadecimal."""
    num_samples: int


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexInfo:
    """Size and checksums of the index."""

    num_bytes: int
    """Size of the file."""
    xxh3: Mapping[str, str]
    """xxh3-64 of the stored values of each column, in hexadecimal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetInfo:
    """Content of `dataset.json`."""

    num_samples: int
    num_shards: int
    num_tokens: int
    """Image tokens included."""
    num_images: int
    """Stored images; for tiled images, all tiles."""
    seed: int
    """Seed of the permutation of all samples."""
    image_kind: ImageKind
    image_height: int | None
    """Height of every stored image; None if `native`."""
    image_width: int | None
    image_mean: tuple[float, ...]
    image_std: tuple[float, ...]
    rescale_factor: float
    """Factor for uint8 pixels, applied before mean and deviation."""
    image_token: str
    image_token_id: int
    pad_token_id: int
    num_image_tokens: int | None
    """Image tokens of one stored image; None where they depend on its size."""
    patch_size: int | None
    """Side of a patch in pixels; a `native` image has a whole number of patches. None for other
    kinds."""
    merge_size: int | None
    """Side, in patches, of the square that becomes one token of a `native` image; else None."""
    temporal_patch_size: int | None
    """Number of times the model repeats a `native` image in time; else None."""
    image_format: str
    """`ImageFormat` of the `preprocess` stage's config."""
    preprocess: Mapping[str, Any]
    """Settings that shaped the samples: limits, prompts, hashes of manifest and processor,
    versions."""
    shards: tuple[ShardInfo, ...]
    index: IndexInfo
    rejects_xxh3: str | None = None
    """xxh3-64 of `rejects.jsonl`, in hexadecimal; None in a `dataset.json` of an older version."""
    processor_sha256: Mapping[str, str] | None = None
    """SHA-256 of each file of `processor/` by name, in hexadecimal; None in a `dataset.json` of an
    older version."""

    @property
    def num_bytes(self) -> int:
        """Size of all shards."""
        return sum(shard.num_bytes for shard in self.shards)

    @property
    def fingerprint(self) -> str:
        """xxh3-128 over all fields but the checksums of rejects and processor, in hexadecimal.

        Equal samples have equal fingerprints. So copies on nodes and checkpoints stay valid if
        only the rejects, or the version that wrote these checksums, differ. (`preprocess`
        covers the processor's files.)
        """
        values = dataclasses.asdict(self)
        del values["rejects_xxh3"], values["processor_sha256"]
        return xxhash.xxh3_128_hexdigest(json.dumps(values, sort_keys=True).encode())


def shard_name(shard: int) -> str:
    """Return the file name of a shard, counted from 0."""
    return f"shard-{shard:06d}.tar"


def dataset_info_to_json(info: DatasetInfo) -> dict[str, Any]:
    """Return the values of `dataset.json`."""
    values = dataclasses.asdict(info)
    return {"format": DATASET_FORMAT, **values, "fingerprint": info.fingerprint}


def read_dataset_info(dataset_dir: Path) -> DatasetInfo:
    """Read a data set's `dataset.json`.

    Raises:
        StageError: it is missing (consolidate did not finish), not readable by this user,
            damaged, edited by hand, or has another format.
    """
    path = dataset_dir / INFO_NAME
    try:
        values = json.loads(read_bytes(path))
    except FileNotFoundError as error:
        message = f"{path}: missing, so the data set is not finished; run consolidate"
        raise StageError(message) from error
    except PermissionError as error:
        message = (
            f"{path}: this user may not read it; its owner gives the right with: "
            f"chmod -R a+rX {shlex.quote(str(dataset_dir))}, and x on the folders above"
        )
        raise StageError(message) from error
    except (ValueError, RecursionError) as error:
        message = f"{path}: damaged, no valid JSON ({error}); run consolidate again"
        raise StageError(message) from error
    version = values.get("format") if isinstance(values, dict) else None
    if version != DATASET_FORMAT:
        message = (
            f"{path}: format {version!r}, expected {DATASET_FORMAT!r}; run preprocess and "
            f"consolidate again"
        )
        raise StageError(message)
    try:
        info = _info_from_json(values)
    except (KeyError, TypeError, ValueError) as error:
        message = f"{path}: damaged ({error!r}); run consolidate again"
        raise StageError(message) from error
    if info.fingerprint != values.get("fingerprint"):
        message = f"{path}: its content does not match its fingerprint; run consolidate again"
        raise StageError(message)
    return info


def _info_from_json(values: Mapping[str, Any]) -> DatasetInfo:
    """Parse the values of `dataset_info_to_json`; a missing or wrong field raises an error."""
    fields = {key: value for key, value in values.items() if key not in ("format", "fingerprint")}
    fields["shards"] = tuple(ShardInfo(**shard) for shard in fields["shards"])
    fields["index"] = IndexInfo(**fields["index"])
    for name in ("image_mean", "image_std"):
        fields[name] = tuple(fields[name])
    for number, shard in enumerate(fields["shards"]):
        # Another path would be staged from, and to, outside the folder.
        if shard.name != shard_name(number):
            message = f"shard {number} is called {shard.name!r}, not {shard_name(number)}"
            raise ValueError(message)
    return DatasetInfo(**fields)


# Tar format of parts and shards: equal bytes for equal content, read in place.
#
# A sample is a run of members `KEY.suffix`. Headers have constant time, owner and mode, so the
# bytes of a sample are a function of its content. A shard is the concatenated bytes of its
# samples and two empty blocks: copying a range moves a sample from part to shard.


BLOCK = 512
END_OF_ARCHIVE = bytes(2 * BLOCK)

_HEADER = struct.Struct("100s 24x 12s")
"""Name and size; the only fields of a header that are read."""


class Member(NamedTuple):  # created for each member, in a third of a dataclass's time
    """One file within a tar."""

    name: str
    start: int
    """Offset of the member's first byte in the buffer."""
    num_bytes: int


def padded(num_bytes: int) -> int:
    """Return the bytes of a member's content, rounded up to whole blocks."""
    return -(-num_bytes // BLOCK) * BLOCK


def member_bytes(name: str, data: bytes) -> bytes:
    """Return header, content and padding of one member."""
    header = tarfile.TarInfo(name)  # mtime, uid and gid are 0, mode is 0644
    header.size = len(data)
    return header.tobuf(tarfile.USTAR_FORMAT) + data + bytes(padded(len(data)) - len(data))


def sample_bytes(key: str, members: Iterable[tuple[str, bytes]]) -> bytes:
    """Return all members of a sample, given as (suffix, content)."""
    return b"".join(member_bytes(f"{key}.{suffix}", data) for suffix, data in members)


def scan_members(buffer: memoryview) -> Iterator[Member]:
    """Yield the members in `buffer`, up to its end or the end of the archive.

    Raises:
        ValueError: the buffer is truncated within a member, or is not a tar.
    """
    position, end = 0, len(buffer)
    while position + BLOCK <= end:
        name, size = _HEADER.unpack_from(buffer, position)
        if not name[0]:
            return
        try:
            num_bytes = int(size.rstrip(b" \0"), 8)
        except ValueError as error:
            message = f"no tar header at byte {position}"
            raise ValueError(message) from error
        start = position + BLOCK
        if num_bytes < 0:  # or the same header would be read again and again
            message = f"a member of {num_bytes} bytes at byte {position}"
            raise ValueError(message)
        if start + num_bytes > end:
            message = f"cut short at byte {end}, within a member of {num_bytes} bytes"
            raise ValueError(message)
        yield Member(name.rstrip(b"\0").decode(), start, num_bytes)
        position = start + padded(num_bytes)


# Members of a sample: their names, and how they are written and read without copying.
#
# `KEY.tokens.npy` int32 [2, num_tokens] (row 0 input_ids, row 1 labels), `KEY.meta.json`, and
# `KEY.image0.webp` (or `.png`, `.jpg`, or `.npy` for raw pixels), `KEY.image1...` in the order of
# the image tokens.


TOKENS_SUFFIX = "tokens.npy"
META_SUFFIX = "meta.json"
IMAGE_PREFIX = "image"
IGNORED_LABEL = -100
"""Label of a token that is not learned; the default of torch's cross entropy."""

_NPY_PRELUDE = 10  # magic, version 1.0, two bytes of header length


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """Sample that was read back. Tokens and raw images are read-only views into the shard."""

    key: str
    input_ids: np.ndarray
    """int32 [num_tokens]."""
    labels: np.ndarray
    """int32 [num_tokens], -100 where nothing is learned."""
    images: tuple[np.ndarray, ...]
    """uint8 [height, width, 3] each."""
    meta: Mapping[str, Any]
    """Facts from preprocessing: `row`, `source`, `original_sizes` and counts. Parsed on demand
    (`StoredMeta`)."""


class StoredMeta(Mapping[str, Any]):
    """Values of a sample's `meta.json`, parsed when the first of them is read.

    Training reads none, and parsing all would cost as much as finding the members.
    """

    __slots__ = ("_members", "_values")

    def __init__(self, members: memoryview) -> None:
        """Store `members` of a tar, which begin with that member; empty if it is missing."""
        self._members = members
        self._values: Mapping[str, Any] | None = None

    def __getitem__(self, name: str) -> Any:
        return self._parsed()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._parsed())

    def __len__(self) -> int:
        return len(self._parsed())

    def __repr__(self) -> str:
        return repr(self._parsed())

    def _parsed(self) -> Mapping[str, Any]:
        if self._values is None:
            member = next(scan_members(self._members), None)
            self._values = {} if member is None else self._parse(member)
        return self._values

    def _parse(self, member: Member) -> Mapping[str, Any]:
        try:
            return json.loads(bytes(self._members[member.start : member.start + member.num_bytes]))
        except (ValueError, RecursionError) as error:
            message = f"{member.name}: no valid JSON ({error})"
            raise ValueError(message) from error


def pack_sample(
    *,
    key: str,
    input_ids: np.ndarray,
    labels: np.ndarray,
    images: list[bytes],
    image_suffix: str,
    meta: Mapping[str, Any],
) -> bytes:
    """Return the bytes of a sample within a tar; equal arguments give equal bytes."""
    stream = io.BytesIO()
    tokens = np.stack([input_ids, labels]).astype("<i4")
    np.lib.format.write_array(stream, tokens, version=(1, 0))
    members = [(TOKENS_SUFFIX, stream.getvalue())]
    members.append((META_SUFFIX, json.dumps(meta, sort_keys=True, ensure_ascii=False).encode()))
    members += [
        (f"{IMAGE_PREFIX}{index}.{image_suffix}", data) for index, data in enumerate(images)
    ]
    return sample_bytes(key, members)


def unpack_sample(buffer: memoryview) -> Sample:
    """Parse the sample whose members fill `buffer`.

    Raises:
        ValueError: the bytes are not a sample.
    """
    tokens: np.ndarray | None = None
    meta: Mapping[str, Any] = {}
    images: list[np.ndarray] = []
    key = ""
    for member in scan_members(buffer):
        key, _, suffix = member.name.partition(".")
        data = buffer[member.start : member.start + member.num_bytes]
        if suffix == TOKENS_SUFFIX:
            tokens = view_npy(data)
        elif suffix == META_SUFFIX:
            meta = StoredMeta(buffer[member.start - BLOCK : member.start + member.num_bytes])
        elif suffix.startswith(IMAGE_PREFIX):  # in the order of pack_sample
            images.append(decode_stored_image(data, suffix))
    if tokens is None:
        message = f"sample {key!r} has no member {TOKENS_SUFFIX}"
        raise ValueError(message)
    return Sample(key=key, input_ids=tokens[0], labels=tokens[1], images=tuple(images), meta=meta)


MAX_STORED_PIXELS = 178_956_970
"""Limit of a stored image, and of what Pillow opens."""


def decode_stored_image(data: memoryview, suffix: str) -> np.ndarray:
    """Return a stored image as uint8 [height, width, 3].

    libjpeg-turbo decodes JPEGs: the same pixels as Pillow, in less time. Shards may come from
    elsewhere (`stream.urls`), so Pillow tries only the formats that are stored.

    Raises:
        UnidentifiedImageError: the data is neither PNG nor WebP.
        ValueError: it states more pixels than are decoded.
    """
    if suffix.endswith(".npy"):
        return view_npy(data)
    if suffix.endswith(".jpg"):
        height, width, *_ = simplejpeg.decode_jpeg_header(data)
        _check_pixels(width, height)
        decoded: np.ndarray = simplejpeg.decode_jpeg(data, "RGB")
        return decoded
    try:
        image = Image.open(io.BytesIO(data), formats=("PNG", "WEBP"))
    except Image.DecompressionBombError as error:
        raise ValueError(str(error)) from error
    _check_pixels(*image.size)
    return np.asarray(image)


def _check_pixels(width: int, height: int) -> None:
    if width * height > MAX_STORED_PIXELS:
        message = f"{width} x {height} pixels; stored images have at most {MAX_STORED_PIXELS:,}"
        raise ValueError(message)


def view_npy(data: memoryview) -> np.ndarray:
    """Return the array of a `.npy` member (version 1.0, C order) as a read-only view.

    Raises:
        ValueError: another kind of `.npy`, or a damaged one.
    """
    if bytes(data[:8]) != b"\x93NUMPY\x01\x00":
        message = "not an .npy file of version 1.0"
        raise ValueError(message)
    offset = _NPY_PRELUDE + int.from_bytes(data[8:10], "little")
    dtype, shape = _parse_npy_header(bytes(data[_NPY_PRELUDE:offset]))
    array = np.frombuffer(data, dtype=dtype, offset=offset).reshape(shape)
    array.flags.writeable = False
    return array


@functools.lru_cache(maxsize=4096)  # headers differ by shape only, and parsing one costs 20 us
def _parse_npy_header(header: bytes) -> tuple[np.dtype[Any], tuple[int, ...]]:
    try:
        values = ast.literal_eval(header.decode("latin1"))
        dtype, shape, is_fortran = (
            np.dtype(values["descr"]),
            values["shape"],
            values["fortran_order"],
        )
    except (ValueError, SyntaxError, TypeError, KeyError, MemoryError, RecursionError) as error:
        # Python's parser raises the last two for headers that are nested too deeply.
        message = f"an .npy file with a damaged header ({error!r})"
        raise ValueError(message) from error
    if is_fortran:
        message = "an .npy file in Fortran order"
        raise ValueError(message)
    return dtype, shape
