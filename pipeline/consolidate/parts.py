"""All parts of a preprocess stage as one table of samples, checked to belong together."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import xxhash

from pipeline.preprocess.part import PartIndex, PartPaths, read_part_index
from pipeline.preprocess.rejects import RejectLimit, add_reasons
from slurm_jobs.common.context import ParentStage
from slurm_jobs.common.errors import StageError

_MAX_NAMED = 10
_MAX_OPEN_FILES = 128  # far below the usual limit of 1024, however many parts there are


@dataclass(frozen=True, kw_only=True, slots=True)
class PartSamples:
    """The samples of all parts in the order of their keys; each column has one entry a sample."""

    key: np.ndarray
    """int64."""
    part: np.ndarray
    """int32: number of the part that holds the sample."""
    offset: np.ndarray
    """int64: in the part's tar."""
    num_bytes: np.ndarray
    """int64."""
    num_tokens: np.ndarray
    """int32."""
    num_supervised_tokens: np.ndarray
    """int32."""
    num_images: np.ndarray
    """int32: stored ones, all tiles included."""
    num_pixels: np.ndarray
    """int64: of all stored images."""
    xxh3: np.ndarray
    """uint64."""

    def __len__(self) -> int:
        return len(self.key)


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """What a preprocess stage left behind."""

    paths: tuple[PartPaths, ...]
    samples: PartSamples
    settings: Mapping[str, Any]
    model_inputs: Mapping[str, Any]
    processor_dir: Path
    num_rejected: int
    rejects_by_reason: Mapping[str, int]
    reject_limit: RejectLimit
    """As `preprocess` was told; the strictest, should its slices have been told otherwise."""


def gather_parts(parent: ParentStage) -> Parts:
    """Read the index of every part of a preprocess stage.

    Raises:
        StageError: a part is missing, damaged, or made under other settings.
    """
    paths = tuple(
        PartPaths(output_dir=parent.output_dir, slice_index=index)
        for index in range(parent.num_slices)
    )
    missing = [path.index.name for path in paths if not path.index.exists()]
    if missing:
        message = (
            f"{paths[0].index.parent}: {len(missing)} of {len(paths)} parts are missing: "
            f"{_name_some(missing)}; resume the run to preprocess them"
        )
        raise StageError(message)
    indexes = [_read_index(path) for path in paths]
    _check_same_data(paths, indexes)
    return Parts(
        paths=paths,
        samples=_join(indexes),
        settings=indexes[0].settings,
        model_inputs=indexes[0].model_inputs,
        processor_dir=Path(indexes[0].processor_dir),
        num_rejected=sum(index.num_rejected for index in indexes),
        rejects_by_reason=add_reasons(index.rejects_by_reason for index in indexes),
        reject_limit=RejectLimit(
            max_reject_share=min(index.max_reject_share for index in indexes),
            num_rows=indexes[-1].end_row,
        ),
    )


def _name_some(names: Sequence[str]) -> str:
    rest = len(names) - _MAX_NAMED
    return ", ".join(names[:_MAX_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def _read_index(path: PartPaths) -> PartIndex:
    """The index of a part, the two other files of which are as long as it says."""
    try:
        index = read_part_index(path.index)
        num_bytes = path.tar.stat().st_size
        num_rejected = path.rejects.read_bytes().count(b"\n")
    except (OSError, ValueError, TypeError) as error:
        message = f"{path.index}: {error}; preprocess slice {path.slice_index} again"
        raise StageError(message) from error
    num_rows = len(index.keys) + index.num_rejected
    for file, unit, found, expected in (
        (path.tar, "bytes", num_bytes, index.num_bytes),
        (path.rejects, "rejects", num_rejected, index.num_rejected),
        (path.index, "samples and rejects", num_rows, index.end_row - index.first_row),
    ):
        if found != expected:
            message = (
                f"{file}: {found} {unit}, expected {expected}; preprocess slice "
                f"{path.slice_index} again"
            )
            raise StageError(message)
    return index


def _check_same_data(paths: Sequence[PartPaths], indexes: Sequence[PartIndex]) -> None:
    next_row = 0
    for path, index in zip(paths, indexes, strict=True):
        same = index.settings == indexes[0].settings and index.model_inputs == (
            indexes[0].model_inputs
        )
        if not same or index.num_slices != len(paths) or index.first_row != next_row:
            first, missing = indexes[0].settings, object()
            differing = [
                name
                for name in sorted({*first, *index.settings})
                if index.settings.get(name, missing) != first.get(name, missing)
            ]
            message = (
                f"{path.index}: made under other settings than {paths[0].index.name} "
                f"({', '.join(differing) or 'slices or processor'} differ); the manifest or the "
                f"config changed between array tasks, so preprocess all slices again"
            )
            raise StageError(message)
        next_row = index.end_row


def _join(indexes: Sequence[PartIndex]) -> PartSamples:
    counts = [len(index.keys) for index in indexes]

    def column(name: str, dtype: type) -> np.ndarray:
        return np.concatenate([np.asarray(getattr(i, name), dtype=dtype) for i in indexes])

    hashes = [int(value, 16) for index in indexes for value in index.sample_xxh3]
    samples = PartSamples(
        key=column("keys", np.int64),
        part=np.repeat(np.arange(len(indexes), dtype=np.int32), counts),
        offset=column("sample_offsets", np.int64),
        num_bytes=column("sample_num_bytes", np.int64),
        num_tokens=column("sample_num_tokens", np.int32),
        num_supervised_tokens=column("sample_num_supervised_tokens", np.int32),
        num_images=column("sample_num_images", np.int32),
        num_pixels=column("sample_num_pixels", np.int64),
        xxh3=np.asarray(hashes, dtype=np.uint64),
    )
    assert np.all(np.diff(samples.key) > 0)
    return samples


@dataclass(slots=True)
class PartReader:
    """Reads single samples out of parts, with few files open at a time."""

    parts: Parts
    _open: OrderedDict[int, int] = field(default_factory=OrderedDict)

    def read(self, number: int) -> bytes:
        """The bytes of one sample, compared with their checksum.

        Raises:
            StageError: they do not match; part and sample are named.
        """
        samples = self.parts.samples
        part = int(samples.part[number])
        num_bytes, offset = int(samples.num_bytes[number]), int(samples.offset[number])
        data = os.pread(self._descriptor(part), num_bytes, offset)
        if xxhash.xxh3_64_intdigest(data) != int(samples.xxh3[number]):
            message = (
                f"{self.parts.paths[part].tar}: sample {int(samples.key[number]):09d} at byte "
                f"{offset} does not match its checksum; preprocess slice {part} again"
            )
            raise StageError(message)
        return data

    def _descriptor(self, part: int) -> int:
        if part in self._open:
            self._open.move_to_end(part)
            return self._open[part]
        if len(self._open) >= _MAX_OPEN_FILES:
            os.close(self._open.popitem(last=False)[1])
        self._open[part] = os.open(self.parts.paths[part].tar, os.O_RDONLY)
        return self._open[part]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        while self._open:
            os.close(self._open.popitem()[1])
