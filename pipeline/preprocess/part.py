"""A part: what one slice of the manifest became.

`part-00003.tar` holds the samples, `part-00003.samples.npy` says where each of
them lies, `part-00003.rejects.jsonl` lists the rows that became none, and
`part-00003.json`, written last, proves that the others are whole. Nothing in
them depends on time or on the machine, so a slice that runs again writes the
same bytes.

Where the samples lie is an array of rows, not of columns: who shuffles reads
rows here and there, and a row is then one page of the file. Each row has a
check of its own, because nobody reads them all.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import xxhash

from pipeline.data.tar import END_OF_ARCHIVE
from pipeline.preprocess.rejects import Reject
from slurm_jobs.common.files import write_bytes_atomic, write_text_atomic

PART_FORMAT = "slurm-jobs-part-2"

SAMPLE_ROW = np.dtype(
    [
        ("key", "<i8"),
        ("offset", "<i8"),  # of the sample's first tar header in the part
        ("num_bytes", "<i8"),
        ("xxh3", "<u8"),  # xxh3-64 of the sample's bytes, headers included
        ("num_pixels", "<i8"),  # of all images as they are stored; 0 where not counted
        ("num_tokens", "<i4"),
        ("num_supervised_tokens", "<i4"),
        ("num_images", "<i4"),
        ("check", "<u4"),  # the low half of xxh3-64 of the fields before it
    ]
)
"""What a part says of one sample."""
_FIELDS = struct.Struct("<qqqQqiii")
_CHECK = struct.Struct("<I")


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
    def samples(self) -> Path:
        """Where each sample lies: an array of `SAMPLE_ROW`."""
        return self.output_dir / "parts" / f"{self._stem}.samples.npy"

    @property
    def index(self) -> Path:
        """What is in the others; the proof that the part is whole."""
        return self.output_dir / "parts" / f"{self._stem}.json"

    @property
    def rejects(self) -> Path:
        """The rows that became no sample, one JSON object a line."""
        return self.output_dir / "parts" / f"{self._stem}.rejects.jsonl"


@dataclass(frozen=True, kw_only=True, slots=True)
class PartIndex:
    """The content of a part's `.json`."""

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
    num_samples: int
    samples_num_bytes: int
    """Of `.samples.npy`, whose last `num_samples` rows of bytes are the array."""
    samples_xxh3: str
    """xxh3-64 of that file, in hexadecimal."""
    num_rejected: int
    rejects_by_reason: Mapping[str, int]
    max_reject_share: float
    """What `preprocess` was told; no setting, because no sample depends on it."""
    rejects_num_bytes: int = 0
    """Of their list, as `write_part` found it."""
    max_too_long_share: float = 1.0
    """As `max_reject_share`, for rows left out as too long; parts of older versions have none."""


@dataclass(slots=True)
class PartBuilder:
    """Appends samples to a part's tar and remembers where they lie."""

    stream: IO[bytes]
    num_bytes: int = 0
    _rows: bytearray = field(default_factory=bytearray)
    _digest: xxhash.xxh3_64 = field(default_factory=xxhash.xxh3_64)

    def add(
        self, key: str, data: bytes, *, labels: np.ndarray, num_images: int, num_pixels: int = 0
    ) -> None:
        """Append the bytes of one sample; `labels` is int32 [num_tokens]."""
        row = _FIELDS.pack(
            int(key),
            self.num_bytes,
            len(data),
            xxhash.xxh3_64_intdigest(data),
            num_pixels,
            len(labels),
            int(np.count_nonzero(labels >= 0)),
            num_images,
        )
        self._rows += row + _CHECK.pack(_check_of(row))
        self._write(data)

    @property
    def samples(self) -> np.ndarray:
        """Where the samples lie, `SAMPLE_ROW` [num_samples]."""
        return np.frombuffer(bytes(self._rows), dtype=SAMPLE_ROW)

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
        max_too_long_share: float = 1.0,
    ) -> PartIndex:
        """Close the archive, and say what is in it."""
        self._write(END_OF_ARCHIVE)
        samples_file = npy_bytes(self.samples)
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
            num_samples=len(self.samples),
            samples_num_bytes=len(samples_file),
            samples_xxh3=xxhash.xxh3_64_hexdigest(samples_file),
            num_rejected=sum(rejects_by_reason.values()),
            rejects_by_reason=rejects_by_reason,
            max_reject_share=max_reject_share,
            max_too_long_share=max_too_long_share,
        )

    def _write(self, data: bytes) -> None:
        self.stream.write(data)
        self._digest.update(data)
        self.num_bytes += len(data)


def _check_of(fields: bytes) -> int:
    return xxhash.xxh3_64_intdigest(fields) & 0xFFFFFFFF


def damaged_rows(rows: np.ndarray) -> np.ndarray:
    """Which of these rows (`SAMPLE_ROW`) are not as they were written: their places, ascending."""
    data = np.ascontiguousarray(rows).tobytes()
    starts = range(0, len(data), SAMPLE_ROW.itemsize)
    found = [_check_of(data[start : start + _FIELDS.size]) for start in starts]
    return np.flatnonzero(rows["check"] != np.array(found, dtype=np.uint32))


def npy_bytes(samples: np.ndarray) -> bytes:
    """The content of `.samples.npy`."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, samples, version=(1, 0))
    return stream.getvalue()


def write_part(paths: PartPaths, index: PartIndex, samples: np.ndarray) -> None:
    """Write where the samples lie, and last what proves the part whole: the others are there."""
    write_bytes_atomic(paths.samples, npy_bytes(samples))
    index = replace(index, rejects_num_bytes=paths.rejects.stat().st_size)
    values = {name: getattr(index, name) for name in index.__slots__}
    text = json.dumps({"format": PART_FORMAT, **values}, sort_keys=True) + "\n"
    write_text_atomic(paths.index, text)


def read_part_index(path: Path) -> PartIndex:
    """Read a part's `.json`.

    Raises:
        FileNotFoundError: the slice was not finished.
        ValueError: not a part's index, or of another version.
    """
    values = json.loads(path.read_bytes())
    found = values.pop("format", None) if isinstance(values, dict) else None
    if found != PART_FORMAT:
        message = f"format {found!r}, expected {PART_FORMAT!r}"
        raise ValueError(message)
    return PartIndex(**values)


def write_rejects(path: Path, rejects: Sequence[Reject]) -> None:
    """Write a part's list of rejects, whole."""
    lines = (json.dumps(r.to_json(), sort_keys=True, ensure_ascii=False) for r in rejects)
    write_text_atomic(path, "".join(line + "\n" for line in lines))
