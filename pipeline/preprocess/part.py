"""Parts: the output of one slice of the manifest each.

`part-00003.tar` holds the samples, `part-00003.samples.npy` has the location of each,
`part-00003.rejects.jsonl` lists the rows that became none, and `part-00003.json`, written last,
proves that the others are complete. If rows are held out, `held_out_files` describes two more
files. Nothing in them depends on time or on the machine, so a
slice that runs again writes the same bytes.

The locations are an array of rows, not of columns: shuffling reads single rows, and a row is
then one page of the file. Each row has its own check value, because no process reads them all.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import xxhash

from pipeline.data.disk_format.tar_format import END_OF_ARCHIVE
from pipeline.preprocess.rejects import Reject
from slurm_jobs.base.files import write_bytes_atomic, write_text_atomic
from slurm_jobs.base.regular_files import read_bytes
from slurm_jobs.formats.manifests.text_rows import TextRow

PART_FORMAT = "slurm-jobs-part-2"

SAMPLE_ROW = np.dtype(
    [
        ("key", "<i8"),
        ("offset", "<i8"),  # of the sample's first tar header in the part
        ("num_bytes", "<i8"),
        ("xxh3", "<u8"),  # xxh3-64 of the sample's bytes, headers included
        ("num_pixels", "<i8"),  # of all stored images; 0 where not counted
        ("num_tokens", "<i4"),
        ("num_supervised_tokens", "<i4"),
        ("num_images", "<i4"),
        ("check", "<u4"),  # the low half of xxh3-64 of the fields before it
    ]
)
"""Record of one sample in a part."""
_FIELDS = struct.Struct("<qqqQqiii")
_CHECK = struct.Struct("<I")


@dataclass(frozen=True, kw_only=True, slots=True)
class PartPaths:
    """Paths of the files of a part."""

    output_dir: Path
    """Output folder of the stage `preprocess`."""
    slice_index: int

    @property
    def _stem(self) -> str:
        return f"part-{self.slice_index:05d}"

    @property
    def tar(self) -> Path:
        """Samples."""
        return self.output_dir / "parts" / f"{self._stem}.tar"

    @property
    def samples(self) -> Path:
        """Location of each sample: an array of `SAMPLE_ROW`."""
        return self.output_dir / "parts" / f"{self._stem}.samples.npy"

    @property
    def index(self) -> Path:
        """Facts about the other files; proof that the part is complete."""
        return self.output_dir / "parts" / f"{self._stem}.json"

    @property
    def rejects(self) -> Path:
        """Rows that became no sample, one JSON object per line."""
        return self.output_dir / "parts" / f"{self._stem}.rejects.jsonl"

    @property
    def held_out_rows(self) -> Path:
        """Rows that are held out, one JSON object per line."""
        return self.output_dir / "parts" / f"{self._stem}.held_out.jsonl"

    @property
    def held_out_pictures(self) -> Path:
        """Pictures of these rows."""
        return self.output_dir / "parts" / f"{self._stem}.held_out.tar"


@dataclass(frozen=True, kw_only=True, slots=True)
class PartIndex:
    """Content of a part's `.json`."""

    slice_index: int
    num_slices: int
    first_row: int
    end_row: int
    """Exclusive."""
    settings: Mapping[str, Any]
    """Settings that shaped the samples; equal in all parts of a data set."""
    model_inputs: Mapping[str, Any]
    """Facts that a model needs about the samples: image size, mean and deviation, token ids."""
    processor_dir: str
    """Source folder of the processor."""
    num_bytes: int
    """Size of the tar."""
    xxh3: str
    """xxh3-64 of the tar, in hexadecimal."""
    num_samples: int
    samples_num_bytes: int
    """Size of `.samples.npy`, whose last `num_samples` rows of bytes are the array."""
    samples_xxh3: str
    """xxh3-64 of that file, in hexadecimal."""
    num_rejected: int
    rejects_by_reason: Mapping[str, int]
    max_reject_share: float
    """Config of `preprocess`; not in `settings`, because no sample depends on it."""
    rejects_num_bytes: int = 0
    """Size of the list of rejects in `write_part`."""
    max_too_long_share: float = 1.0
    """Config of `preprocess`, for rows left out as too long; parts of older versions have none."""
    text_only: bool = True
    """Config of `preprocess`: samples without any picture are accepted, as in older versions."""
    first_text_row: Mapping[str, Any] | None = None
    """Fields of `TextRow`, if no sample has a picture."""
    manifests: Sequence[Mapping[str, Any]] | None = None
    """`PartManifest` of each manifest of a list, as JSON; None, and not written, without a list."""
    held_out_num_bytes: Sequence[int] | None = None
    """Sizes of the held-out rows and of their pictures in `write_part`; None without `held_out`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PartManifest:
    """Share of a part that is from one manifest of a list."""

    name: str
    path: str
    num_samples: int
    """Its samples in this part."""
    num_bytes: int
    """Bytes of these samples."""
    proportion: Mapping[str, float]
    """Config of `preprocess`, by key; not in `settings`, because no sample depends on it."""


@dataclass(slots=True)
class PartBuilder:
    """Appends samples to a part's tar and records their locations."""

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
        """Locations of the samples, `SAMPLE_ROW` [num_samples]."""
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
        text_only: bool = True,
        first_text_row: TextRow | None = None,
        manifests: Sequence[PartManifest] = (),
    ) -> PartIndex:
        """Close the archive and return its index."""
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
            text_only=text_only,
            first_text_row=None if first_text_row is None else asdict(first_text_row),
            manifests=[asdict(manifest) for manifest in manifests] or None,
        )

    def _write(self, data: bytes) -> None:
        self.stream.write(data)
        self._digest.update(data)
        self.num_bytes += len(data)


def _check_of(fields: bytes) -> int:
    return xxhash.xxh3_64_intdigest(fields) & 0xFFFFFFFF


def damaged_rows(rows: np.ndarray) -> np.ndarray:
    """Return which rows (`SAMPLE_ROW`) do not match their check value: positions, ascending."""
    data = np.ascontiguousarray(rows).tobytes()
    starts = range(0, len(data), SAMPLE_ROW.itemsize)
    checksums = [_check_of(data[start : start + _FIELDS.size]) for start in starts]
    return np.flatnonzero(rows["check"] != np.array(checksums, dtype=np.uint32))


def npy_bytes(samples: np.ndarray) -> bytes:
    """Return the content of `.samples.npy`."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, samples, version=(1, 0))
    return stream.getvalue()


def write_part(paths: PartPaths, index: PartIndex, samples: np.ndarray) -> None:
    """Write the locations, and last the proof that the part is complete; the other files exist."""
    write_bytes_atomic(paths.samples, npy_bytes(samples))
    index = replace(index, rejects_num_bytes=paths.rejects.stat().st_size)
    if "held_out" in index.settings:
        files = (paths.held_out_rows, paths.held_out_pictures)
        index = replace(index, held_out_num_bytes=[file.stat().st_size for file in files])
    values = {name: getattr(index, name) for name in index.__slots__}
    if index.manifests is None:
        del values["manifests"]
    if index.held_out_num_bytes is None:
        del values["held_out_num_bytes"]
    text = json.dumps({"format": PART_FORMAT, **values}, sort_keys=True) + "\n"
    write_text_atomic(paths.index, text)


def read_part_index(path: Path) -> PartIndex:
    """Read a part's `.json`.

    Raises:
        FileNotFoundError: the slice was not finished.
        ValueError: it is not a part's index, or has another version.
    """
    values = json.loads(read_bytes(path))
    version = values.pop("format", None) if isinstance(values, dict) else None
    if version != PART_FORMAT:
        message = f"format {version!r}, expected {PART_FORMAT!r}"
        raise ValueError(message)
    return PartIndex(**values)


def write_rejects(path: Path, rejects: Sequence[Reject]) -> None:
    """Write a part's complete list of rejects."""
    lines = (json.dumps(r.to_json(), sort_keys=True, ensure_ascii=False) for r in rejects)
    write_text_atomic(path, "".join(line + "\n" for line in lines))
