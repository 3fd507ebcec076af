"""Shards opened for reading, from the node's disk or the shared file system."""

from __future__ import annotations

import io
import logging
import mmap
import os
import resource
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Generic, TypeAlias, TypeVar

import numpy as np
import xxhash

from pipeline.data.format import (
    BLOCK,
    Sample,
    ShardInfo,
    StoredMeta,
    is_on_this_machine,
    padded,
    view_npy,
)
from slurm_jobs.shared.errors import StageError
from slurm_jobs.shared.records.heartbeat import beat
from slurm_jobs.shared.regular_files import open_regular

# Opened shard of a data set: memory-mapped, or read in pieces.


class MappedShard:
    """Shard in memory; the kernel loads the pages that are read."""

    def __init__(self, path: Path, expected: ShardInfo) -> None:
        """Map it.

        Raises:
            OSError: it cannot be opened or mapped.
            StageError: its size is wrong.
        """
        self.path = path
        with open_regular(path, buffering=0) as stream:
            status = os.fstat(stream.fileno())
            check_size(path, status.st_size, expected)
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        self._inode = status.st_ino
        self.view = memoryview(mapped)
        self.data = np.frombuffer(mapped, dtype=np.uint8)
        """uint8 [num_bytes]."""
        self.words = self.data[: len(self.data) // 4 * 4].view("<i4")
        """int32 [num_bytes // 4]."""

    def read(self, start: int, num_bytes: int) -> memoryview:
        """Return a view, without a copy; a reference to it keeps the shard mapped."""
        return self.view[start : start + num_bytes]

    def unlink(self) -> None:
        """Delete the file if it is still the mapped one; existing maps stay valid."""
        try:
            if self.path.stat().st_ino == self._inode:
                self.path.unlink()
        except OSError as error:
            log.warning("%s is left there: %s", self.path, error)


class StreamedShard:
    """Shard that is read in pieces."""

    def __init__(self, path: Path, expected: ShardInfo) -> None:
        # Closed by its last reference, which may be after `_Recent` dropped it.
        self._stream: IO[bytes] = open_regular(path, buffering=0)
        check_size(path, os.fstat(self._stream.fileno()).st_size, expected)

    def read(self, start: int, num_bytes: int) -> memoryview:
        """Return a copy.

        Raises:
            OSError: the file ends too early.
        """
        pieces = []
        while num_bytes:
            piece = os.pread(self._stream.fileno(), num_bytes, start)
            if not piece:
                message = "it ends too early"
                raise OSError(message)
            pieces.append(piece)
            start, num_bytes = start + len(piece), num_bytes - len(piece)
        return memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))


def open_shared(folder: Path, expected: ShardInfo) -> MappedShard | StreamedShard:
    """Map the shard where that is safe.

    Raises:
        StageError: it is missing or its size is wrong.
    """
    path = folder / expected.name
    try:
        is_safe = is_on_this_machine(path)
        return MappedShard(path, expected) if is_safe else StreamedShard(path, expected)
    except OSError as error:
        message = f"{path}: the shard cannot be opened: {error}"
        raise StageError(message) from error


def check_size(path: Path, num_bytes: int, expected: ShardInfo) -> None:
    """Check the size of a shard's file.

    Raises:
        StageError: it has another size than expected.
    """
    if num_bytes != expected.num_bytes:
        message = f"{path}: {num_bytes} bytes, expected {expected.num_bytes}; it is damaged"
        raise StageError(message)


# Layout of the arrays of a sample with raw images, computed from its sizes alone.
#
# Tar headers are for other readers. This one knows from the index how many tokens and images a
# sample has, and how large the images are. So it takes the arrays from their offsets directly, in
# a fifth of the time that parsing the headers takes. The first read of a sample verifies the
# offsets.


_NPY_HEADER_BYTES = 128
"""Size of the header of an array with few dimensions, as NumPy pads it."""
_TOKEN = np.dtype("<i4")
_TOKENS_START = BLOCK + _NPY_HEADER_BYTES
"""Tokens are the first member (`pack_sample`)."""
Place: TypeAlias = tuple[int, int, int, int]
"""Offset of a sample (a multiple of 512), its bytes, tokens and images."""
Arrays: TypeAlias = tuple[np.ndarray, np.ndarray, list[np.ndarray], list[tuple[int, int]]]
"""Input ids and labels of a sample, int32 [num_tokens], the bytes of each image, uint8, and its
height and width."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RawLayout:
    """Layout of samples whose images are raw and all of one shape."""

    image_shape: tuple[int, int, int]
    image_size: tuple[int, int]
    image_bytes: int
    image_header: bytes
    """Header of an image's `.npy`."""
    image_stride: int
    """Bytes from one image to the next; the last image ends with the sample."""

    def fits(self, buffer: memoryview, num_tokens: int, num_images: int) -> bool:
        """Check if the members of the sample in `buffer` have the offsets that `unpack` uses."""
        first_image = len(buffer) - num_images * self.image_stride
        if first_image < _TOKENS_START + 8 * num_tokens:
            return False
        try:
            tokens = view_npy(buffer[BLOCK : _TOKENS_START + 8 * num_tokens])
        except ValueError:
            return False
        return (tokens.dtype, tokens.shape) == (_TOKEN, (2, num_tokens)) and all(
            buffer[start + BLOCK : start + BLOCK + _NPY_HEADER_BYTES] == self.image_header
            for start in range(first_image, len(buffer), self.image_stride)
        )

    def arrays(self, data: np.ndarray, words: np.ndarray, place: Place) -> Arrays:
        """Return the arrays of a sample that `fits`; all but the sizes are views.

        `data` is uint8 and `words` the same memory as int32.
        """
        start, num_bytes, num_tokens, num_images = place
        first = (start + _TOKENS_START) // _TOKEN.itemsize
        middle = first + num_tokens
        end = start + num_bytes
        from_image, size = BLOCK + _NPY_HEADER_BYTES, self.image_bytes
        images = [
            data[image + from_image : image + from_image + size]
            for image in range(end - num_images * self.image_stride, end, self.image_stride)
        ]
        sizes = [self.image_size] * num_images
        return words[first:middle], words[middle : middle + num_tokens], images, sizes

    def unpack(self, buffer: memoryview, *, key: str, num_tokens: int, num_images: int) -> Sample:
        """Return what `unpack_sample` returns, for a buffer that `fits`."""
        data = np.frombuffer(buffer, dtype=np.uint8)
        words = data.view(_TOKEN)
        place = 0, len(data), num_tokens, num_images
        input_ids, labels, images, _ = self.arrays(data, words, place)
        meta_start = BLOCK + padded(_NPY_HEADER_BYTES + 8 * num_tokens)
        return Sample(
            key=key,
            input_ids=input_ids,
            labels=labels,
            images=tuple(image.reshape(self.image_shape) for image in images),
            meta=StoredMeta(buffer[meta_start : len(buffer) - num_images * self.image_stride]),
        )


def raw_layout(image_shape: tuple[int, int, int]) -> RawLayout | None:
    """Return the layout for raw images of this shape; None if NumPy writes them differently."""
    stream = io.BytesIO()
    header = {"descr": "|u1", "fortran_order": False, "shape": image_shape}
    np.lib.format.write_array_header_1_0(stream, header)
    if stream.tell() != _NPY_HEADER_BYTES:
        return None
    image_bytes = int(np.prod(image_shape))
    return RawLayout(
        image_shape=image_shape,
        image_size=image_shape[:2],
        image_bytes=image_bytes,
        image_header=stream.getvalue(),
        image_stride=BLOCK + padded(_NPY_HEADER_BYTES + image_bytes),
    )


# Choice of where a sample's bytes are read: the node's local disk, or the shared file system.
#
# A shard is read from the local disk once it is complete there. A local shard is memory-mapped;
# other processes may unlink it but never truncate it. A shard on a network file system is read
# with `pread`: an error there is a `StageError` that names it, where a memory map would end the
# process with SIGBUS. Samples are compared with their checksums unless `dataset` has verified
# them in that place; bytes that come over a network are always compared. A damaged local copy is
# deleted and the sample is read from the shared file system, so that the next staging copies it
# again.


log = logging.getLogger(__name__)

_MOST_FILES = 16_384  # Linux allows a process 65,530 maps of all kinds (vm.max_map_count)
LOCAL, SHARED = 1, 2
"""Places of bytes, as flags."""
_LOOK_AGAIN_S = 0.5
"""Time until a shard that was not on the local disk is looked up there again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadCounts:
    """Cost of reading samples, their checksums included."""

    local_bytes: int = 0
    local_s: float = 0.0
    """Sum over all threads, as for `shared_s`."""
    shared_bytes: int = 0
    shared_s: float = 0.0
    num_damaged_shards: int = 0
    """On the local disk."""


class ShardFiles:
    """Bytes of a data set's shards; may be used from several threads."""

    def __init__(
        self,
        shards: Sequence[ShardInfo],
        shared_dir: Path,
        local_dir: Path | None = None,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Open nothing yet.

        Args:
            shards: Names and sizes.
            shared_dir: Folder of the shards.
            local_dir: Folder of their copies, now or later, on the node's local disk; None for
                none.
            check: Called before each read; may raise to stop reading.
        """
        self.shared_dir = shared_dir
        self._shards, self._local_dir, self._check = shards, local_dir, check
        self._shared = _Recent(lambda shard: open_shared(shared_dir, shards[shard]))
        self._local = _Recent(self._open_local)
        self._missing_until: dict[int, float] = {}
        """Time of the monotonic clock, by shard."""
        self._lock = threading.Lock()
        self._counts = [0, 0, 0, 0, 0]

    @property
    def counts(self) -> ReadCounts:
        """Counts of all reads so far."""
        with self._lock:
            local_bytes, local_ns, shared_bytes, shared_ns, num_damaged = self._counts
        return ReadCounts(
            local_bytes=local_bytes,
            local_s=local_ns / 1e9,
            shared_bytes=shared_bytes,
            shared_s=shared_ns / 1e9,
            num_damaged_shards=num_damaged,
        )

    def read(
        self, shard: int, start: int, num_bytes: int, xxh3: int, compared: int = 0
    ) -> tuple[memoryview, int]:
        """Return these bytes of a shard, which must have this xxh3-64, and their place.

        The place is `LOCAL` or `SHARED`. Mapped bytes from the places in `compared` are not
        compared again; a copy may be damaged independently, and a network in between.

        Raises:
            StageError: the shared shard cannot be read, or the error of `check`.
            ValueError: they do not match their checksum, even on the shared file system, or are
                not in the shard.
        """
        self._check()
        if not 0 <= start <= start + num_bytes <= self._shards[shard].num_bytes:
            message = f"bytes {start} to {start + num_bytes} are not in the shard: damaged index"
            raise ValueError(message)
        start_ns = time.perf_counter_ns()
        mapped = self._find_local(shard)
        if mapped is not None:
            view = mapped.view[start : start + num_bytes]
            if compared & LOCAL or xxhash.xxh3_64_intdigest(view) == xxh3:
                self._count(0, num_bytes, time.perf_counter_ns() - start_ns)
                return view, LOCAL
            self._distrust(shard, mapped)
        view = self._read_shared(shard, start, num_bytes)
        is_known = compared & SHARED and isinstance(view.obj, mmap.mmap)
        if not is_known and xxhash.xxh3_64_intdigest(view) != xxh3:
            message = "the sample's bytes do not match their checksum"
            raise ValueError(message)
        self._count(2, num_bytes, time.perf_counter_ns() - start_ns)
        return view, SHARED

    def whole(self, shard: int) -> tuple[MappedShard, int] | None:
        """Return a shard in memory and its place, `LOCAL` or `SHARED`; None if it is not mapped.

        Raises:
            StageError: as in `read`.
        """
        self._check()
        mapped = self._find_local(shard)
        if mapped is not None:
            return mapped, LOCAL
        opened = self._shared.get(shard)
        return (opened, SHARED) if isinstance(opened, MappedShard) else None

    def count_taken(self, place: int, num_bytes: int) -> None:
        """Count bytes that were read from a whole shard."""
        self._count(0 if place == LOCAL else 2, num_bytes, 0)

    def path(self, shard: int) -> Path:
        """Return the current path of the whole shard, for other readers.

        Raises:
            StageError: it is missing on the shared file system, or has another size.
        """
        expected, is_local = self._shards[shard], self._find_local(shard) is not None
        if is_local and self._local_dir:
            return self._local_dir / expected.name
        path = self.shared_dir / expected.name
        try:
            check_size(path, path.stat().st_size, expected)
        except OSError as error:
            message = f"{path}: the shard cannot be read: {error}"
            raise StageError(message) from error
        return path

    def _count(self, place: int, num_bytes: int, duration_ns: int) -> None:
        beat()  # training may wait for a step whose samples come slowly
        with self._lock:
            self._counts[place] += num_bytes
            self._counts[place + 1] += duration_ns

    def _find_local(self, shard: int) -> MappedShard | None:
        if self._local_dir is None:
            return None
        until_s = self._missing_until.get(shard)
        if until_s is not None and time.monotonic() < until_s:
            return None
        try:
            return self._local.get(shard)
        except FileNotFoundError:
            self._missing_until[shard] = time.monotonic() + _LOOK_AGAIN_S
        except (OSError, StageError) as error:
            self._missing_until[shard] = float("inf")
            name = self._shards[shard].name
            log.warning("%s: %s; it is read from %s", name, error, self.shared_dir)
        return None

    def _open_local(self, shard: int) -> MappedShard:
        assert self._local_dir is not None
        return MappedShard(self._local_dir / self._shards[shard].name, self._shards[shard])

    def _distrust(self, shard: int, mapped: MappedShard) -> None:
        """Stop reading a damaged copy and delete it, unless it was replaced meanwhile."""
        with self._lock:
            if self._missing_until.get(shard) == float("inf"):
                return
            self._missing_until[shard] = float("inf")
            self._counts[4] += 1
        self._local.drop(shard)
        log.warning("%s is damaged on the local disk; it is read from %s", mapped.path,
                    self.shared_dir)  # fmt: skip
        mapped.unlink()

    def _read_shared(self, shard: int, start: int, num_bytes: int) -> memoryview:
        """Read through a new handle, in case the file was replaced on its server."""
        try:
            return self._shared.get(shard).read(start, num_bytes)
        except OSError:
            self._shared.drop(shard)
        path = self.shared_dir / self._shards[shard].name
        try:
            return self._shared.get(shard).read(start, num_bytes)
        except OSError as error:
            message = f"{path}: the shard cannot be read: {error}"
            raise StageError(message) from error


OpenedT = TypeVar("OpenedT")


class _Recent(Generic[OpenedT]):
    """Cache of the opened shards that were used last."""

    def __init__(self, open_shard: Callable[[int], OpenedT]) -> None:
        self._open = open_shard
        self._opened: OrderedDict[int, OpenedT] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, shard: int) -> OpenedT:
        """Return the opened shard; opens it if it is not cached, and raises the error of that."""
        with self._lock:
            if shard in self._opened:
                self._opened.move_to_end(shard)
                return self._opened[shard]
        reader = self._open(shard)  # without the lock: at worst two threads open it
        with self._lock:
            self._opened[shard] = reader
            while len(self._opened) > max_opened():
                self._opened.popitem(last=False)  # samples in use keep their shards mapped
        return reader

    def drop(self, shard: int) -> None:
        """Open the shard again the next time."""
        with self._lock:
            self._opened.pop(shard, None)


def max_opened() -> int:
    """Return the limit of open shards per file system: a quarter of a process's open files.

    Each holds a file, mapped or not. Half is left for samples of maps that were released, and
    for other files of the process.
    """
    num_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_FILES if num_files == resource.RLIM_INFINITY else min(_MOST_FILES, num_files // 4)
