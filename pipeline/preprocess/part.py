"""Parts: the output of one slice of the manifest each.

`part-00003.tar` holds the samples, `part-00003.samples.npy` has the location of each,
`part-00003.rejects.jsonl` lists the rows that became none, and `part-00003.json`, written last,
proves that the others are complete. Nothing in them depends on time or on the machine, so a
slice that runs again writes the same bytes.

The locations are an array of rows, not of columns: shuffling reads single rows, and a row is
then one page of the file. Each row has its own check value, because no process reads them all.
"""

from __future__ import annotations

import io
import json
import math
import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, Any

import numpy as np
import xxhash
from PIL import Image

from pipeline.data.format import END_OF_ARCHIVE, decode_stored_image
from pipeline.preprocess.rejects import Reject, SampleRejectedError
from slurm_jobs.shared.configs.stages import ImageFormat
from slurm_jobs.shared.files import write_bytes_atomic, write_text_atomic
from slurm_jobs.shared.manifests.text_rows import TextRow
from slurm_jobs.shared.regular_files import read_bytes

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
    values = {name: getattr(index, name) for name in index.__slots__}
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


# Pixels to the bytes stored in a shard, and the cost of each format.
#
# A format is a trade between space, the time to write once and the time to read in every epoch.
# docs/image-decoding.md compares them all, and a slice measures its own format on its first
# images.


MEMBER_SUFFIX: dict[ImageFormat, str] = {
    "png": "png",
    "jpeg": "jpg",
    "webp": "webp",
    "webp_lossless": "webp",
    "raw": "npy",
}
"""File name suffix of an image's member in a shard."""

LOSSY_FORMATS: frozenset[ImageFormat] = frozenset({"jpeg", "webp"})
"""Formats with an `image_quality`."""

_MOST_PIXELS_A_SIDE: dict[ImageFormat, int] = {
    "jpeg": 65_500,  # libjpeg's JPEG_MAX_DIMENSION
    "webp": 16_383,  # 14 bits in the header of VP8 (RFC 6386, 9.1)
    "webp_lossless": 16_383,  # 14 bits too (RFC 9649, 3.4)
}

_Z_RLE = 3
"""zlib's strategy for filtered image rows: matches are runs only."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredPrice:
    """Cost of one stored image, measured by reading it back."""

    num_bytes: int
    decode_s: float
    """CPU seconds of the thread."""
    squared_error: float
    """Mean over all values, in squared steps of 255; 0 if every pixel is kept."""


def image_to_bytes(
    pixels: np.ndarray, image_format: ImageFormat, quality: int, name: str = "image"
) -> bytes:
    """Encode uint8 [height, width, 3]; equal pixels give equal bytes.

    Raises:
        SampleRejectedError: a side is longer than the format allows.
    """
    most = _MOST_PIXELS_A_SIDE.get(image_format)
    if most is not None and max(pixels.shape[:2]) > most:
        message = (
            f"{name}: {pixels.shape[1]} x {pixels.shape[0]} pixels after resizing, but "
            f"image_format: {image_format} allows {most} per side; png and raw allow more"
        )
        raise SampleRejectedError(reason="too_many_pixels", message=message)
    stream = io.BytesIO()
    if image_format == "raw":
        np.lib.format.write_array(stream, np.ascontiguousarray(pixels), version=(1, 0))
        return stream.getvalue()
    image = Image.fromarray(pixels)
    if image_format == "jpeg":
        # 4:4:4: text and thin lines in screenshots lose most to colour subsampling
        image.save(stream, "JPEG", quality=quality, subsampling=0)
    elif image_format == "webp":
        # Method 2 gives a size within 1 % of the default, 4, in half the time.
        image.save(stream, "WEBP", quality=quality, method=2)
    elif image_format == "webp_lossless":
        # The lowest effort takes a third of PNG's time and is smaller; the default effort saves 5
        # to 12 % more in forty times the time.
        image.save(stream, "WEBP", lossless=True, quality=0, method=0)
    else:
        # On photographs as small as with zlib's default strategy, in 8 ms instead of 23 (384 x
        # 384).
        image.save(stream, "PNG", compress_level=6, compress_type=_Z_RLE)
    return stream.getvalue()


def price_of(pixels: np.ndarray, stored: bytes, image_format: ImageFormat) -> StoredPrice:
    """Read a stored image back as training does, and compare it with its pixels."""
    start_s = time.thread_time()
    image = decode_stored_image(memoryview(stored), f"image0.{MEMBER_SUFFIX[image_format]}")
    decode_s = time.thread_time() - start_s
    difference = image.astype(np.float32) - pixels
    return StoredPrice(
        num_bytes=len(stored), decode_s=decode_s, squared_error=float(np.mean(difference**2))
    )


def psnr_db(squared_error: float) -> float:
    """Return the peak signal-to-noise ratio of 8-bit values in decibels; infinite without error."""
    return 10 * math.log10(255**2 / squared_error) if squared_error else math.inf


def mean_price(prices: Sequence[StoredPrice]) -> dict[str, float | None]:
    """Return mean bytes, milliseconds to decode and PSNR of the measured images.

    The PSNR is that of the mean error; None if every pixel is kept (JSON has no infinity).
    """
    count = len(prices)
    error = sum(price.squared_error for price in prices) / count
    return {
        "num_measured": count,
        "bytes": round(sum(price.num_bytes for price in prices) / count),
        "decode_ms": round(1e3 * sum(price.decode_s for price in prices) / count, 3),
        "psnr_db": round(psnr_db(error), 1) if error else None,
    }
