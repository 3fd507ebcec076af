"""The sets that all readers get: made by our stages, then extracted from our shards.

- `raw`: about 2,000 JPEGs of 1,152 x 864 pixels and 100 KB.
- `decoded`: fewer of the same images, because decoding takes milliseconds each.
- `arrays`: raw pixels, 384 x 384.

The images are noise with a falling spectrum, so that their JPEGs are as large as those of
photographs; the readers do not depend on the pixels.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.peers.job import ARRAYS, DECODED, NUM_SHARDS, RAW, Source

PHOTO_SHAPE = (864, 1152, 3)
ARRAY_SHAPE = (384, 384, 3)
_SLOPE = 1.7
"""Exponent of the amplitude over frequency; at quality 80 an image has 104 KB."""
_QUALITY = 80
_NUM_DISTINCT = 40
"""Number of distinct images, which the rows share. Each row has its own bytes in the shards."""
NUM_SAMPLES = {RAW: 2_000, DECODED: 192, ARRAYS: 960}
NUM_SAMPLES_QUICK = {RAW: 256, DECODED: 32, ARRAYS: 192}
SHAPES = {RAW: PHOTO_SHAPE, DECODED: PHOTO_SHAPE, ARRAYS: ARRAY_SHAPE}


def picture(seed: int, shape: tuple[int, int, int]) -> np.ndarray:
    """Return a uint8 image of this shape."""
    height, width, _ = shape
    draw = np.random.default_rng(seed)
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None, :])
    amplitude = 1 / np.maximum(frequency, 1 / max(shape)) ** _SLOPE
    planes = []
    for _ in range(3):
        phases = draw.standard_normal(frequency.shape) + 1j * draw.standard_normal(frequency.shape)
        plane = np.fft.irfft2(amplitude * phases, s=(height, width))
        planes.append(plane / plane.std())
    bright, warm, cold = planes
    colours = np.stack([warm, cold, -warm], axis=-1)
    return np.clip(128 + 48 * (bright[..., None] + 0.25 * colours), 0, 255).astype(np.uint8)


def make_set(folder: Path, kind: str, num_samples: int) -> tuple[Path, Source]:
    """Build our data set of one kind, and the source of the other formats."""
    from pipeline.data.dataset import open_dataset
    from tests.pipeline.build import run_consolidate, run_preprocess

    shape = SHAPES[kind]
    pictures = _write_pictures(folder / "pictures", min(num_samples, _NUM_DISTINCT), shape)
    config: dict[str, Any] = {
        "manifest": str(_write_manifest(folder / "manifest.csv", pictures, num_samples)),
        "processor": str(_write_processor(folder / "processor", shape)),
        "image_format": "raw" if kind == ARRAYS else "jpeg",
        "image_quality": _QUALITY,
    }
    _, parts = run_preprocess(folder / "preprocess", config)
    _, dataset_dir = run_consolidate(folder / "consolidate", parts, num_shards=NUM_SHARDS)
    source = Source(folder=folder / "source", kind=kind)
    source.write(_stored_pictures(open_dataset(dataset_dir)), shape)
    return dataset_dir, source


def _stored_pictures(dataset: Any) -> Iterator[memoryview]:
    """Yield the member `image0` of each sample: a JPEG file, or the pixels of an `.npy`."""
    from pipeline.data.disk_format.sample_members import view_npy
    from pipeline.data.disk_format.tar_format import scan_members

    for number in range(len(dataset)):
        sample = dataset.raw(number)
        member = next(m for m in scan_members(sample) if ".image0." in m.name)
        data = sample[member.start : member.start + member.num_bytes]
        yield view_npy(data).reshape(-1).data if member.name.endswith(".npy") else data


def _write_pictures(folder: Path, num: int, shape: tuple[int, int, int]) -> list[Path]:
    folder.mkdir(parents=True)
    paths = [folder / f"{number}.jpg" for number in range(num)]
    for number, path in enumerate(paths):
        Image.fromarray(picture(number, shape)).save(path, quality=95, subsampling=0)
    return paths


def _write_manifest(path: Path, pictures: list[Path], num_rows: int) -> Path:
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["image_path", "text"])
        for row in range(num_rows):
            writer.writerow([str(pictures[row % len(pictures)]), f"A picture, number {row}."])
    return path


def _write_processor(folder: Path, shape: tuple[int, int, int]) -> Path:
    from tests.pipeline.build import write_processor

    write_processor(folder)
    for name, changes in (
        ("preprocessor_config.json", {"size": {"height": shape[0], "width": shape[1]}}),
        ("processor_config.json", {"patch_size": 96}),
    ):
        path = folder / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder
