"""A part: what one slice of the manifest became.

`part-00003.tar` holds the samples, `part-00003.rejects.jsonl` the rows that
became none, and `part-00003.json`, written last, says where each sample lies
and proves that the other two are whole. Nothing in them depends on time or on
the machine, so a slice that runs again writes the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import xxhash

from pipeline.data.tar import END_OF_ARCHIVE
from pipeline.preprocess.rejects import Reject
from slurm_jobs.common.files import write_text_atomic

PART_FORMAT = "slurm-jobs-part-2"


@dataclass(frozen=True, kw_only=True, slots=True)
class PartPaths:
    """Where the files of a part lie."""

    output_dir: Path
    """Of the stage `preprocess`."""
    slice_index: int

    @property
    def _stem(self) -> str:
        return f"part-{self.slice_index:05d}"

    @property
    def tar(self) -> Path:
        """The samples."""
        return self.output_dir / "parts" / f"{self._stem}.tar"

    @property
    def index(self) -> Path:
        """Where each sample lies; the proof that the part is whole."""
        return self.output_dir / "parts" / f"{self._stem}.json"

    @property
    def rejects(self) -> Path:
        """The rows that became no sample, one JSON object a line."""
        return self.output_dir / "parts" / f"{self._stem}.rejects.jsonl"


@dataclass(frozen=True, kw_only=True, slots=True)
class PartIndex:
    """The content of a part's `.json`. All sequences have one entry a sample."""

    slice_index: int
    num_slices: int
    first_row: int
    end_row: int
    """Not included."""
    settings: Mapping[str, Any]
    """What shaped the samples; equal in all parts of a data set."""
    model_inputs: Mapping[str, Any]
    """What a model must know of the samples: image size, mean and deviation, token ids."""
    processor_dir: str
    """Where the processor was read from."""
    num_bytes: int
    """Of the tar."""
    xxh3: str
    """xxh3-64 of the tar, in hexadecimal."""
    num_rejected: int
    keys: Sequence[str]
    sample_offsets: Sequence[int]
    """Of the sample's first tar header."""
    sample_num_bytes: Sequence[int]
    sample_num_tokens: Sequence[int]
    sample_num_supervised_tokens: Sequence[int]
    sample_num_images: Sequence[int]
    """Stored images: of a tiled processor, all tiles."""
    sample_num_pixels: Sequence[int]
    """Height times width, summed over the stored images: what a vision tower has to do."""
    sample_xxh3: Sequence[str]
    """xxh3-64 of the sample's bytes, headers included, in hexadecimal."""
    rejects_by_reason: Mapping[str, int] = field(default_factory=dict)
    """Empty in a part of an older version, which judged its own rejects."""
    max_reject_share: float = 1.0
    """What `preprocess` was told; no setting, because no sample depends on it."""


@dataclass(slots=True)
class PartBuilder:
    """Appends samples to a part's tar and remembers where they lie."""

    stream: IO[bytes]
    num_bytes: int = 0
    keys: list[str] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    num_tokens: list[int] = field(default_factory=list)
    num_supervised_tokens: list[int] = field(default_factory=list)
    num_images: list[int] = field(default_factory=list)
    num_pixels: list[int] = field(default_factory=list)
    hashes: list[str] = field(default_factory=list)
    _digest: xxhash.xxh3_64 = field(default_factory=xxhash.xxh3_64)

    def add(
        self, key: str, data: bytes, *, labels: np.ndarray, num_images: int, num_pixels: int
    ) -> None:
        """Append the bytes of one sample; `labels` is int32 [num_tokens]."""
        self.keys.append(key)
        self.offsets.append(self.num_bytes)
        self.sizes.append(len(data))
        self.num_tokens.append(len(labels))
        self.num_supervised_tokens.append(int(np.count_nonzero(labels >= 0)))
        self.num_images.append(num_images)
        self.num_pixels.append(num_pixels)
        self.hashes.append(xxhash.xxh3_64_hexdigest(data))
        self._write(data)

    def finish(
        self,
        *,
        slice_index: int,
        num_slices: int,
        rows: range,
        settings: Mapping[str, Any],
        model_inputs: Mapping[str, Any],
        processor_dir: str,
        rejects_by_reason: Mapping[str, int],
        max_reject_share: float,
    ) -> PartIndex:
        """Close the archive, and say what is in it."""
        self._write(END_OF_ARCHIVE)
        return PartIndex(
            slice_index=slice_index,
            num_slices=num_slices,
            first_row=rows.start,
            end_row=rows.stop,
            settings=settings,
            model_inputs=model_inputs,
            processor_dir=processor_dir,
            num_bytes=self.num_bytes,
            xxh3=self._digest.hexdigest(),
            num_rejected=sum(rejects_by_reason.values()),
            keys=self.keys,
            sample_offsets=self.offsets,
            sample_num_bytes=self.sizes,
            sample_num_tokens=self.num_tokens,
            sample_num_supervised_tokens=self.num_supervised_tokens,
            sample_num_images=self.num_images,
            sample_num_pixels=self.num_pixels,
            sample_xxh3=self.hashes,
            rejects_by_reason=rejects_by_reason,
            max_reject_share=max_reject_share,
        )

    def _write(self, data: bytes) -> None:
        self.stream.write(data)
        self._digest.update(data)
        self.num_bytes += len(data)


def write_part_index(path: Path, index: PartIndex) -> None:
    """Write a part's `.json`, whole."""
    values = {name: getattr(index, name) for name in index.__slots__}
    write_text_atomic(path, json.dumps({"format": PART_FORMAT, **values}, sort_keys=True) + "\n")


def read_part_index(path: Path) -> PartIndex:
    """Read a part's `.json`.

    Raises:
        FileNotFoundError: the slice was not finished.
        ValueError: not a part's index, or of another version.
    """
    values = json.loads(path.read_bytes())
    found = values.pop("format", None)
    if found != PART_FORMAT:
        message = f"{path}: format {found!r}, expected {PART_FORMAT!r}; run preprocess again"
        raise ValueError(message)
    return PartIndex(**values)


def write_rejects(path: Path, rejects: Sequence[Reject]) -> None:
    """Write a part's list of rejects, whole."""
    lines = (json.dumps(r.to_json(), sort_keys=True, ensure_ascii=False) for r in rejects)
    write_text_atomic(path, "".join(line + "\n" for line in lines))
