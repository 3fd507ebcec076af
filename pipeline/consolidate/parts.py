"""Parts of a preprocess stage: sample counts, and a check that the parts belong together.

Memory holds a few numbers per part, however many samples it has. The rows with the locations of
samples stay in its file; `rows` fetches the ones needed.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import resource
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import numpy as np
import xxhash

from pipeline.data.format import END_OF_ARCHIVE, ShardInfo
from pipeline.data.index import INDEX_ROW, format_key
from pipeline.preprocess.part import SAMPLE_ROW, PartIndex, PartPaths, damaged_rows, read_part_index
from pipeline.preprocess.rejects import RejectLimit, add_reasons
from slurm_jobs.shared.errors import StageError
from slurm_jobs.shared.files import dump_json, write_json_atomic
from slurm_jobs.shared.manifests.text_rows import TextRow
from slurm_jobs.shared.records import ParentStage, again_command
from slurm_jobs.shared.regular_files import read_bytes

_MAX_NAMED = 10
_NUM_THREADS = 16
"""Threads that read small files: on a shared file system each read is a wait, not work."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """Output of a preprocess stage."""

    parent: ParentStage
    """Stage that made them."""
    paths: tuple[PartPaths, ...]
    first_sample: np.ndarray
    """int64 [num_parts + 1]: part p has samples first_sample[p] to first_sample[p + 1], counted in
    the order of keys over all parts."""
    num_bytes: int
    """Bytes of all samples."""
    settings: Mapping[str, Any]
    model_inputs: Mapping[str, Any]
    processor_dir: Path
    num_rejected: int
    rejects_by_reason: Mapping[str, int]
    reject_limit: RejectLimit
    """Limits of `preprocess`; the strictest, if its slices had different ones."""
    text_only: bool
    """Config of `preprocess`; false if that of any slice is."""
    first_text_row: TextRow | None
    """First row without a picture, if no sample of any part has one."""
    identity: str
    """xxh3-128 over the records of all parts: equal for equal parts."""

    @property
    def num_samples(self) -> int:
        """Samples of all parts."""
        return int(self.first_sample[-1])

    @property
    def again(self) -> str:
        """Command that makes all of them again."""
        return again_command(self.parent.run_dir, self.parent.stage)

    def too_long_lengths(self) -> list[int]:
        """Return the lengths in tokens of all rows that were left out as too long."""
        lines = (line for part in self.paths for line in part.rejects.read_bytes().splitlines())
        counts = (json.loads(line).get("num_tokens") for line in lines)
        return [num_tokens for num_tokens in counts if num_tokens is not None]

    def locate(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the part of each sample, and its row there; `numbers` count over all parts."""
        part = np.searchsorted(self.first_sample, numbers, side="right") - 1
        return part, numbers - self.first_sample[part]


def gather_parts(parent: ParentStage) -> Parts:
    """Read the record of every part of a preprocess stage.

    Raises:
        StageError: a part is missing, damaged, or made with other settings.
    """
    paths = tuple(
        PartPaths(output_dir=parent.output_dir, slice_index=index)
        for index in range(parent.num_slices)
    )
    folder = paths[0].index.parent
    present = set(os.listdir(folder)) if folder.is_dir() else set()  # noqa: PTH208 - names are enough
    missing = [path.index.name for path in paths if path.index.name not in present]
    if missing:
        rest = len(missing) - _MAX_NAMED
        more = f" and {rest} more" if rest > 0 else ""
        message = (
            f"{folder}: {len(missing)} of {len(paths)} parts are missing: "
            f"{', '.join(missing[:_MAX_NAMED])}{more}; resume the run to preprocess them"
        )
        raise StageError(message)
    with ThreadPoolExecutor(_NUM_THREADS, thread_name_prefix="part") as pool:
        indexes = list(pool.map(_read_index, paths))
    _check_same_data(parent, paths, indexes)
    counts = [(i.num_samples, i.samples_xxh3, i.xxh3) for i in indexes]
    words = dump_json([indexes[0].settings, indexes[0].model_inputs, counts])
    return Parts(
        parent=parent,
        paths=paths,
        first_sample=np.cumsum([0, *(index.num_samples for index in indexes)], dtype=np.int64),
        num_bytes=sum(index.num_bytes - len(END_OF_ARCHIVE) for index in indexes),
        settings=indexes[0].settings,
        model_inputs=indexes[0].model_inputs,
        processor_dir=Path(indexes[0].processor_dir),
        num_rejected=sum(index.num_rejected for index in indexes),
        rejects_by_reason=add_reasons(index.rejects_by_reason for index in indexes),
        reject_limit=RejectLimit(
            max_reject_share=min(index.max_reject_share for index in indexes),
            num_rows=indexes[-1].end_row,
            max_too_long_share=min(index.max_too_long_share for index in indexes),
        ),
        text_only=all(index.text_only for index in indexes),
        first_text_row=_first_text_row(indexes),
        identity=xxhash.xxh3_128_hexdigest(words.encode()),
    )


def _first_text_row(indexes: Sequence[PartIndex]) -> TextRow | None:
    """Return the first example; None if a part has a sample with a picture."""
    with_samples = [index for index in indexes if index.num_samples]
    rows = [index.first_text_row for index in with_samples if index.first_text_row is not None]
    if not rows or len(rows) < len(with_samples):
        return None
    return TextRow(place=rows[0]["place"], keys=tuple(rows[0]["keys"]))


def _read_index(path: PartPaths) -> PartIndex:
    """Read the index of a part, and check the sizes of its other files."""
    try:
        index = read_part_index(path.index)
        sizes = [p.stat().st_size for p in (path.tar, path.samples, path.rejects)]
    except (OSError, ValueError, TypeError) as error:
        message = f"{path.index}: {error}; preprocess slice {path.slice_index} again"
        raise StageError(message) from error
    num_rows = index.num_samples + index.num_rejected
    for file, unit, actual, expected in (
        (path.tar, "bytes", sizes[0], index.num_bytes),
        (path.samples, "bytes", sizes[1], index.samples_num_bytes),
        (path.rejects, "bytes", sizes[2], index.rejects_num_bytes),
        (path.index, "samples and rejects", num_rows, index.end_row - index.first_row),
    ):
        if actual != expected:
            message = (
                f"{file}: {actual} {unit}, expected {expected}; preprocess slice "
                f"{path.slice_index} again"
            )
            raise StageError(message)
    return index


def _check_same_data(
    parent: ParentStage, paths: Sequence[PartPaths], indexes: Sequence[PartIndex]
) -> None:
    first, next_row = indexes[0], 0
    for path, index in zip(paths, indexes, strict=True):
        found = (index.settings, index.model_inputs, index.num_slices, index.first_row)
        if found != (first.settings, first.model_inputs, len(paths), next_row):
            missing = object()
            differing = [
                name
                for name in sorted({*first.settings, *index.settings})
                if index.settings.get(name, missing) != first.settings.get(name, missing)
            ]
            message = (
                f"{path.index}: made with other settings than {paths[0].index.name} "
                f"({', '.join(differing) or 'slices or processor'} differ); the manifest or the "
                "config changed between array tasks, so preprocess all slices again by "
                f"`{again_command(parent.run_dir, parent.stage)}`"
            )
            raise StageError(message)
        next_row = index.end_row


# Pieces: the output of one array task of `consolidate` for the task that finishes the data set.
#
# `pieces/piece-00003-of-00016.npy` holds the index rows of the task's shards, and
# `piece-00003-of-00016.json`, written last, names the shards and their dealing. A dealing is
# everything that determines the position and the bytes of each sample: pieces of another one, or
# of another number of tasks, are not used.


PIECES_DIR = "pieces"
_FORMAT = "slurm-jobs-piece-1"
_BLOCK_ROWS = 1 << 18
"""Rows that are read at a time: 14 MiB."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PiecePaths:
    """Paths of the files of a piece."""

    output_dir: Path
    """Output folder of the stage `consolidate`."""
    slice_index: int
    num_slices: int

    @property
    def _stem(self) -> str:
        return f"piece-{self.slice_index:05d}-of-{self.num_slices:05d}"

    @property
    def rows(self) -> Path:
        """Index rows: an array of `INDEX_ROW`."""
        return self.output_dir / PIECES_DIR / f"{self._stem}.npy"

    @property
    def info(self) -> Path:
        """Content of the piece; proof that its shards are complete."""
        return self.output_dir / PIECES_DIR / f"{self._stem}.json"

    @property
    def work_dir(self) -> Path:
        """Temporary folder of this task, from which it moves files to their places."""
        return self.output_dir / PIECES_DIR / f"work-{self.slice_index:05d}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Piece:
    """Content of a piece's `.json`."""

    dealing: str
    num_samples: int
    num_tokens: int
    num_images: int
    rows_xxh3: str
    """xxh3-64 of the index rows, in hexadecimal."""
    shards: tuple[ShardInfo, ...]


class PieceRows:
    """Writes the index rows of a piece into `stream`, and counts their contents."""

    def __init__(self, stream: IO[bytes], num_rows: int) -> None:
        self._stream = stream
        self._digest = xxhash.xxh3_64()
        self._num_tokens = self._num_images = 0
        self._num_rows = num_rows
        header = {"descr": INDEX_ROW.descr, "fortran_order": False, "shape": (num_rows,)}
        np.lib.format.write_array_header_1_0(stream, header)

    def append(self, rows: np.ndarray) -> None:
        """Write the next rows, `INDEX_ROW`."""
        data = rows.tobytes()
        self._stream.write(data)
        self._digest.update(data)
        self._num_tokens += int(rows["num_tokens"].sum())
        self._num_images += int(rows["num_images"].sum())

    def finish(self, dealing: str, shards: tuple[ShardInfo, ...]) -> Piece:
        """Return the record of the piece."""
        return Piece(
            dealing=dealing,
            num_samples=self._num_rows,
            num_tokens=self._num_tokens,
            num_images=self._num_images,
            rows_xxh3=self._digest.hexdigest(),
            shards=shards,
        )


def write_piece(paths: PiecePaths, piece: Piece) -> None:
    """Write a piece's `.json`; its shards and rows exist already."""
    write_json_atomic(paths.info, {"format": _FORMAT, **dataclasses.asdict(piece)})


def remove_other_pieces(paths: PiecePaths, dealing: str) -> None:
    """Remove the proofs of another dealing's shards before one of these is overwritten.

    Otherwise the other dealing, if requested again, would trust the proofs of its earlier tasks
    although the shards are of this one. Damaged files stay: their reader reports them.
    """
    for path in paths.info.parent.glob("piece-*.json"):
        try:
            other = json.loads(read_bytes(path))["dealing"]
        except (FileNotFoundError, ValueError, TypeError, LookupError):
            continue
        if other != dealing:
            path.unlink(missing_ok=True)


def _remedy(paths: PiecePaths) -> str:
    return (
        f"consolidate slice {paths.slice_index} again (`resume --again STAGE:{paths.slice_index}`)"
    )


def read_pieces(paths: Sequence[PiecePaths], dealing: str) -> list[Piece] | None:
    """Return all pieces of a dealing; None while one is missing.

    A task checks after writing its own piece. Of tasks that end at the same time at least one
    sees all pieces, because an NFS client that has just changed a folder lists it on the server.

    Raises:
        StageError: one is damaged.
    """
    pieces = []
    for path in paths:
        try:
            values: dict[str, Any] = json.loads(read_bytes(path.info))
            if values.pop("format") != _FORMAT or values["dealing"] != dealing:
                return None
            shards = tuple(ShardInfo(**shard) for shard in values["shards"])
            pieces.append(Piece(**{**values, "shards": shards}))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            message = f"{path.info}: damaged ({error!r}); {_remedy(path)}"
            raise StageError(message) from error
    return pieces


def iter_rows(paths: PiecePaths, piece: Piece) -> Iterator[np.ndarray]:
    """Yield the index rows of a piece, block by block.

    Raises:
        StageError: they do not match the piece.
    """
    digest = xxhash.xxh3_64()
    try:
        stream = paths.rows.open("rb")
    except FileNotFoundError as error:
        message = f"{paths.rows}: missing; {_remedy(paths)}"
        raise StageError(message) from error
    with stream:
        size = os.fstat(stream.fileno()).st_size
        stream.seek(max(0, size - piece.num_samples * INDEX_ROW.itemsize))
        while data := stream.read(_BLOCK_ROWS * INDEX_ROW.itemsize):
            digest.update(data)
            yield np.frombuffer(data, INDEX_ROW, count=len(data) // INDEX_ROW.itemsize)
    if digest.hexdigest() != piece.rows_xxh3:
        message = f"{paths.rows}: does not match its checksum; {_remedy(paths)}"
        raise StageError(message)


# Reads samples from their parts ahead of time, in parallel, and yields them in order.
#
# The samples of a shard are scattered over all parts, so each is a separate read. On a shared
# file system a read is mostly waiting, and threads wait in parallel: `pread` releases the
# interpreter's lock.


_RUN_SAMPLES = 8
_RUN_BYTES = 1 << 20
"""Bytes that one thread reads before it returns; a larger sample is read alone."""


class _OpenFile:
    """Descriptor that is closed when its last reader is done."""

    def __init__(self, path: os.PathLike[str]) -> None:
        self.descriptor = os.open(path, os.O_RDONLY)

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


class PartReader:
    """Reads single samples from parts; may be used from several threads."""

    def __init__(self, *, parts: Parts, max_open: int) -> None:
        """Keep at most `max_open` parts open, besides those that are being read."""
        self.max_open = max_open
        self._paths = parts.paths
        self._open = lru_cache(max_open)(lambda part: _OpenFile(parts.paths[part].tar))

    def read(self, part: int, row: np.void) -> bytes:
        """Return the bytes of the sample of `row` (`SAMPLE_ROW`), compared with its checksum.

        Raises:
            StageError: they do not match, or cannot be read; the message names part and sample.
        """
        offset, num_bytes = int(row["offset"]), int(row["num_bytes"])
        try:
            # keep a reference: otherwise it might be closed, and its number reused
            held = self._open(part)
            data = os.pread(held.descriptor, num_bytes, offset)
        except OSError as error:
            message = (
                f"{self._paths[part].tar}: sample {format_key(int(row['key']))} at byte "
                f"{offset} cannot be read: {error.strerror}"
            )
            raise StageError(message) from error
        if xxhash.xxh3_64_intdigest(data) != int(row["xxh3"]):
            message = (
                f"{self._paths[part].tar}: sample {format_key(int(row['key']))} at byte "
                f"{offset} does not match its checksum; preprocess slice {part} again"
            )
            raise StageError(message)
        return data


def open_reader(parts: Parts) -> PartReader:
    """Return a reader that keeps as many parts open as allowed: half of the process's files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return PartReader(parts=parts, max_open=len(parts.paths))
    wanted = soft + 2 * len(parts.paths)
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return PartReader(parts=parts, max_open=max(1, soft // 2))


def read_ahead(
    reader: PartReader, parts: np.ndarray, rows: np.ndarray, *, num_threads: int
) -> Iterator[bytes]:
    """Yield the samples of `rows`, in order; close it to end the threads.

    Args:
        reader: Shared by all threads.
        parts: int [num_samples], the part of each.
        rows: `SAMPLE_ROW` [num_samples].
        num_threads: Number of reading threads. At most two runs of samples per thread are in
            memory.
    """
    waiting: deque[Future[list[bytes]]] = deque()

    def read(run: slice) -> list[bytes]:
        return [reader.read(int(p), row) for p, row in zip(parts[run], rows[run], strict=True)]

    pool = ThreadPoolExecutor(num_threads, thread_name_prefix="samples")
    try:
        for run in cut_runs(rows["num_bytes"]):
            waiting.append(pool.submit(read, run))
            if len(waiting) >= 2 * num_threads:
                yield from waiting.popleft().result()
        while waiting:
            yield from waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def cut_runs(num_bytes: np.ndarray) -> Iterator[slice]:
    """Yield runs of neighbouring samples for one thread: few, and at most a mebibyte together."""
    start = total = 0
    for place, size in enumerate(num_bytes.tolist()):
        if place > start and (total + size > _RUN_BYTES or place - start == _RUN_SAMPLES):
            yield slice(start, place)
            start, total = place, 0
        total += size
    if start < len(num_bytes):
        yield slice(start, len(num_bytes))


# Locations of single samples, fetched from their parts' files, many at a time.


_RUN_ROWS = 1 << 17
"""Rows that are read at a time if most are needed: 7 MiB."""
_ROWS_OF_A_PAGE = 4096 // SAMPLE_ROW.itemsize


def fetch_rows(parts: Parts, numbers: np.ndarray, *, num_threads: int) -> np.ndarray:
    """Return the rows of the samples `numbers`, in that order: `SAMPLE_ROW` [len(numbers)].

    Parts are read in parallel, each once.

    Raises:
        StageError: a part's file is truncated or damaged; the message names part and sample.
    """
    rows = np.empty(len(numbers), dtype=SAMPLE_ROW)
    by_number = np.argsort(numbers)
    cuts = np.searchsorted(numbers[by_number], parts.first_sample)

    def fill(part: int) -> None:
        wanted = by_number[cuts[part] : cuts[part + 1]]
        first, stop = parts.first_sample[part : part + 2]
        rows[wanted] = _rows_of_part(parts.paths[part], numbers[wanted] - first, int(stop - first))

    with ThreadPoolExecutor(num_threads, thread_name_prefix="rows") as pool:
        for _ in pool.map(fill, np.flatnonzero(np.diff(cuts))):
            pass  # raises an error of a thread
    return rows


def _rows_of_part(paths: PartPaths, wanted: np.ndarray, num_samples: int) -> np.ndarray:
    """Return the rows `wanted` (ascending) of a part."""
    try:
        with paths.samples.open("rb", buffering=0) as stream:
            size = os.fstat(stream.fileno()).st_size
            start = size - num_samples * SAMPLE_ROW.itemsize
            data = b"".join(_read(stream.fileno(), wanted, start))
    except OSError as error:
        message = f"{paths.samples}: {error.strerror}; preprocess slice {paths.slice_index} again"
        raise StageError(message) from error
    rows = np.frombuffer(data[: len(data) // SAMPLE_ROW.itemsize * SAMPLE_ROW.itemsize], SAMPLE_ROW)
    if len(rows) < len(wanted) or len(damaged := damaged_rows(rows)):
        which = len(rows) if len(rows) < len(wanted) else int(damaged[0])
        message = (
            f"{paths.samples}: its row of sample {wanted[which]} is damaged; preprocess slice "
            f"{paths.slice_index} again"
        )
        raise StageError(message)
    return rows


def _read(descriptor: int, wanted: np.ndarray, start: int) -> Iterator[bytes]:
    """Yield the bytes of the wanted rows: runs of the file if that reads at most a page per row."""
    width = SAMPLE_ROW.itemsize
    cuts = [*np.flatnonzero(np.diff(wanted // _RUN_ROWS)) + 1, len(wanted)]
    for begin, end in itertools.pairwise([0, *cuts]):
        some = wanted[begin:end]
        first, count = int(some[0]), int(some[-1] - some[0]) + 1
        if count <= len(some) * _ROWS_OF_A_PAGE:
            run = np.frombuffer(
                os.pread(descriptor, count * width, start + first * width), np.uint8
            )
            whole = run[: len(run) // width * width].reshape(-1, width)
            yield whole[(some - first)[some - first < len(whole)]].tobytes()
        else:
            for row in some.tolist():
                yield os.pread(descriptor, width, start + row * width)
