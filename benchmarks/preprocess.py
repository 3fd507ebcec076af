"""Images and texts per second of `preprocess`, compared with a plain Pillow script.

    python -m benchmarks.preprocess [--quick] [--json FILE]

The script is the usual one of tutorials: `Image.open(file).convert("RGB").resize((s, s))`, with
Pillow's default, bicubic. Both sides start with the bytes of a JPEG in memory and end with a uint8
array [s, s, 3]; storing is measured separately. The images (photographs.py) have 1.0 megapixel in
four shapes, at JPEG quality 90 as from cameras, and at 75 as on the web.

Time is the CPU time of one thread, so that other processes do not count, although they cost cache:
the ratios are best on an idle machine. The methods take turns; a method's time is the mean over the
images of its median for each. PSNR compares our pixels with Pillow's with the same filter
(`exact`), and with Lanczos, the best filter.

The ratio of two threads to one is of wall time, and needs two cores that are idle part of the time.
"""

from __future__ import annotations

import hashlib
import io
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar, get_args

import numpy as np
from PIL import Image

from benchmarks.photographs import as_jpeg, make_photograph
from benchmarks.table import Row, arguments, row, show
from benchmarks.tokenising import tokenising_rows
from pipeline.preprocess.images.load_pixels import load_pixels
from pipeline.preprocess.images.resize import Resize
from pipeline.preprocess.images.storage import image_to_bytes, mean_price, price_of, psnr_db
from slurm_jobs.formats.configs.stages import ImageDecoding, ImageFormat

SHAPES = ((1152, 864), (864, 1152), (1248, 832), (1024, 1024))
SIZES = (384, 512)
FILTERS = {"bicubic": Image.Resampling.BICUBIC, "Lanczos": Image.Resampling.LANCZOS}
LEAST_RATIO: Mapping[ImageDecoding, float] = {"fast": 3.5, "fine": 2.0}
LEAST_DB: Mapping[ImageDecoding, float] = {"fast": 40.0, "fine": 50.0}
QUALITIES = (90, 75)
LEAST_SCALING = 1.9
QUALITY_STORED = 95
THREADED: tuple[tuple[ImageDecoding, ImageFormat], ...] = (
    ("fine", "png"),
    ("fine", "webp_lossless"),
    ("fast", "jpeg"),
)
PEER = "Pillow, bicubic"
_Input = TypeVar("_Input")


def main() -> None:
    """Run the benchmark."""
    options = arguments(__doc__)
    num_pictures, repeats = (4, 3) if options.quick else (12, 15)
    pictures = [make_photograph(seed, *SHAPES[seed % 4]) for seed in range(num_pictures)]
    rows = []
    for quality in QUALITIES:
        files = [as_jpeg(picture, quality) for picture in pictures]
        sizes = SIZES if quality == QUALITIES[0] or not options.quick else SIZES[:1]
        for size in sizes:
            rows += decoding_rows(files, size, quality, repeats)
    files = [as_jpeg(picture) for picture in pictures]
    rows += storage_rows(files, repeats)
    rows += thread_rows(files, repeats)
    with tempfile.TemporaryDirectory() as folder:
        rows += tokenising_rows(Path(folder), repeats)
    show(rows, options, ("pillow", "simplejpeg", "torch", "transformers", "tokenizers"))


def decoding_rows(files: Sequence[bytes], size: int, quality: int, repeats: int) -> list[Row]:
    """Measure images per second and core, and their PSNR against exact decoding."""
    ways: dict[str, Callable[[bytes], np.ndarray]] = {PEER: partial(plain, size=size)}
    for name, resample in FILTERS.items():
        resize = Resize(width=size, height=size, resample=resample)
        for decoding in get_args(ImageDecoding):
            ways[f"{decoding}, {name}"] = partial(load, resize=resize, decoding=decoding)
    per_s = {way: 1 / seconds for way, seconds in thread_seconds(ways, files, repeats).items()}
    mean_kb = sum(map(len, files)) / len(files) / 1e3
    rows = []
    for way in [name for name in ways if name != PEER]:
        decoding, _, filter_name = way.partition(", ")
        case = f"JPEG q{quality}, {mean_kb:.0f} KB, to {size}: {way}"
        goal = LEAST_RATIO.get(decoding)
        rows.append(
            row(case, "images/s/core", per_s[way], peer=PEER, peer_value=per_s[PEER],
                ratio_at_least=goal)
        )  # fmt: skip
        if decoding != "exact":
            for judge in dict.fromkeys((filter_name, "Lanczos")):
                error = mean_squared_error(ways[way], ways[f"exact, {judge}"], files)
                unit = f"dB to exact {judge}"
                rows.append(row(case, unit, psnr_db(error), at_least=LEAST_DB[decoding]))
    return rows


def storage_rows(files: Sequence[bytes], repeats: int) -> list[Row]:
    """Measure time, size and loss of each storage format at 384 pixels."""
    resize = Resize(width=SIZES[0], height=SIZES[0], resample=FILTERS["bicubic"])
    images = [load(data, resize=resize, decoding="exact") for data in files]
    formats: tuple[ImageFormat, ...] = get_args(ImageFormat)
    writers = {name: partial(store, image_format=name) for name in formats}
    write_ms = {n: 1e3 * s for n, s in thread_seconds(writers, images, repeats).items()}
    prices = {}
    for name in formats:
        stored = [store(pixels, image_format=name) for pixels in images]
        pairs = list(zip(images, stored, strict=True)) * repeats
        prices[name] = mean_price([price_of(pixels, data, name) for pixels, data in pairs])
    rows = []
    for name, price in prices.items():
        case = f"{SIZES[0]} x {SIZES[0]} stored as {name}"
        figures = {"KB": price["bytes"] / 1e3, "ms to write": write_ms[name],
                   "ms to read": price["decode_ms"]}  # fmt: skip
        peers = {"KB": prices["png"]["bytes"] / 1e3, "ms to write": write_ms["png"],
                 "ms to read": prices["png"]["decode_ms"]}  # fmt: skip
        rows += [row(case, unit, figures[unit], peer="png", peer_value=peers[unit])
                 for unit in figures]  # fmt: skip
        if price["psnr_db"] is not None:
            rows.append(row(f"{case}, quality {QUALITY_STORED}", "dB", price["psnr_db"]))
    return rows


def thread_rows(files: Sequence[bytes], repeats: int) -> list[Row]:
    """Measure images per second of wall time with two threads against one.

    Takes the best of many short rounds, because other processes can only slow a round down.
    Hashing, which needs no Python lock, gives the most that two threads can reach.
    """
    resize = Resize(width=SIZES[0], height=SIZES[0], resample=FILTERS["bicubic"])

    def convert(data: bytes, *, decoding: ImageDecoding, image_format: ImageFormat) -> bytes:
        return store(load(data, resize=resize, decoding=decoding), image_format=image_format)

    def digest(data: bytes) -> bytes:
        return hashlib.pbkdf2_hmac("sha256", data, b"salt", 10_000)

    works: dict[str, Callable[[bytes], bytes]] = {
        f"decode ({decoding}), resize, store as {image_format}": partial(
            convert, decoding=decoding, image_format=image_format
        )
        for decoding, image_format in THREADED
    }
    works["hashing alone"] = digest
    best = {(name, num_threads): 0.0 for name in works for num_threads in (1, 2)}
    many = list(files) * (24 // len(files))
    for _ in range(2 * repeats):
        for (name, num_threads), so_far in best.items():
            per_s = len(many) / _wall_s(works[name], many, num_threads)
            best[name, num_threads] = max(so_far, per_s)
    return [
        row(f"{name}: two threads", "items/s", best[name, 2], peer="one thread",
            peer_value=best[name, 1],
            ratio_at_least=None if work is digest else LEAST_SCALING)
        for name, work in works.items()
    ]  # fmt: skip


def _wall_s(work: Callable[[bytes], bytes], many: Sequence[bytes], num_threads: int) -> float:
    with ThreadPoolExecutor(num_threads) as pool:
        start_s = time.perf_counter()
        for _ in pool.map(work, many):
            pass
        return time.perf_counter() - start_s


def plain(data: bytes, *, size: int) -> np.ndarray:
    """Decode as the plain script does."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB").resize((size, size)))


def load(data: bytes, *, resize: Resize, decoding: ImageDecoding) -> np.ndarray:
    """Decode with our code."""
    return load_pixels(
        data, target=lambda _w, _h: resize, decoding=decoding, max_pixels=10**8, name="picture"
    )


def store(pixels: np.ndarray, *, image_format: ImageFormat) -> bytes:
    """Encode with our code."""
    return image_to_bytes(pixels, image_format, QUALITY_STORED)


def mean_squared_error(
    ours: Callable[[bytes], np.ndarray],
    exact: Callable[[bytes], np.ndarray],
    files: Sequence[bytes],
) -> float:
    """Return the mean over all values (0 to 255) of all images."""
    errors = [np.mean((ours(data).astype(np.float64) - exact(data)) ** 2) for data in files]
    return float(np.mean(errors))


def thread_seconds(
    ways: Mapping[str, Callable[[_Input], object]], inputs: Sequence[_Input], repeats: int
) -> dict[str, float]:
    """Return the CPU seconds of this thread per input, by method."""
    taken: dict[str, list[list[float]]] = {way: [[] for _ in inputs] for way in ways}
    for _ in range(repeats):
        for way, function in ways.items():
            for index, value in enumerate(inputs):
                start_s = time.thread_time()
                function(value)
                taken[way][index].append(time.thread_time() - start_s)
    return {
        way: statistics.mean(statistics.median(times) for times in by_input)
        for way, by_input in taken.items()
    }


if __name__ == "__main__":
    main()
