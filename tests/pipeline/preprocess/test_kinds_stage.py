"""A slice of real files through the stages with every kind of processor, read by WebDataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import webdataset as wds
from PIL import Image

from pipeline.data.dataset import open_dataset
from pipeline.data.disk_format.dataset_info import read_dataset_info
from pipeline.models.data_fit import check_small_images
from pipeline.preprocess.part import PartPaths
from slurm_jobs.base.errors import StageConfigError
from tests.pipeline.build import run_consolidate, run_preprocess
from tests.pipeline.kinds import (
    KINDS,
    NUM_TILE_TOKENS,
    TILE,
    encode_as_hugging_face,
    pixel_values_of,
    pixel_values_of_hugging_face,
    write_kind,
)

NUM_IMAGES = 20
ONE_NUMBER = ("idefics3", "smolvlm", "internvl")
"""Kinds whose tiles all have one number of tokens."""
FIXED = ("llava", "llava_siglip", "gemma3")
TILED = ("llava_next", "llava_onevision", *ONE_NUMBER)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One to three images a row, text alone, several turns; some pictures lie on their side."""
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for number in range(NUM_IMAGES):
        width, height = rng.integers(9, 150, size=2)
        exif = Image.Exif()
        exif[0x0112] = (1, 6, 8)[number % 3]
        pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.jpg", quality=92, exif=exif)
    rows, left = [], list(range(NUM_IMAGES))
    while left:
        taken, left = left[: len(rows) % 4], left[len(rows) % 4 :]
        items = [{"type": "image", "path": f"{number}.jpg"} for number in taken]
        said = [{"type": "text", "text": "What is this?"}]
        rows.append([message("user", *items, *said), message("assistant", *said)])
        if len(rows) % 5 == 0:
            rows[-1] += rows[0]
    lines = (json.dumps({"messages": row}) + "\n" for row in rows)
    (folder / "rows.jsonl").write_text("".join(lines))
    return folder / "rows.jsonl"


def message(role: str, *items: dict[str, str]) -> dict[str, Any]:
    return {"role": role, "content": list(items)}


@pytest.mark.parametrize("kind", KINDS)
def test_files_become_shards_that_webdataset_reads(
    kind: str, manifest: Path, tmp_path: Path
) -> None:
    rows = [json.loads(line)["messages"] for line in manifest.read_text().splitlines()]
    config = {
        "manifest": str(manifest),
        "processor": str(write_kind(kind, tmp_path / "processor")),
        "max_tokens": 100_000,
        "num_threads": 2,
        "image_decoding": "exact",
        "image_format": "png",
    }
    (first, second), parts_dir = run_preprocess(tmp_path / "prep", config, 2)
    assert first["num_rejected"] == second["num_rejected"] == 0
    _, folder = run_consolidate(tmp_path / "set", parts_dir, 2, num_shards=2)
    shards = sorted(str(path) for path in (folder / "shards").glob("*.tar"))
    num_pixels = {}
    for sample in wds.WebDataset(shards, shardshuffle=False).decode("rgb8"):
        meta = sample["meta.json"]
        stored = [tuple(size) for sizes in meta["stored_sizes"] for size in sizes]
        images = tuple(sample[f"image{number}.png"] for number in range(len(stored)))
        assert [image.shape[1::-1] for image in images] == stored
        theirs = encode_as_hugging_face(kind, rows[meta["row"]], manifest.parent)
        assert sample["tokens.npy"][0].tolist() == list(theirs["input_ids"][0])
        num_pixels[meta["row"]] = sum(width * height for width, height in stored)
        if images:
            found = pixel_values_of(kind, images)
            assert np.array_equal(found, pixel_values_of_hugging_face(kind, theirs))
    assert len(num_pixels) == len(rows)
    parts = [PartPaths(output_dir=parts_dir, slice_index=number) for number in range(2)]
    recorded = [pixels for part in parts for pixels in np.load(part.samples)["num_pixels"]]
    assert recorded == [num_pixels[row] for row in range(len(rows))]


@pytest.mark.parametrize("kind", KINDS)
def test_data_set_says_what_its_images_are(kind: str, manifest: Path, tmp_path: Path) -> None:
    processor = write_kind(kind, tmp_path / "processor")
    config = {"manifest": str(manifest), "processor": str(processor), "max_tokens": 100_000}
    _, parts_dir = run_preprocess(tmp_path / "prep", config)
    _, folder = run_consolidate(tmp_path / "set", parts_dir)
    info, dataset = read_dataset_info(folder), open_dataset(folder)
    images = [image for number in range(len(dataset)) for image in dataset.sample(number).images]
    assert info.num_images == len(images) == int(dataset.index.num_images.sum())
    assert (len(images) > NUM_IMAGES) == (kind in TILED)
    if kind in FIXED + TILED:
        assert {image.shape for image in images} == {(info.image_height, info.image_width, 3)}
        assert info.image_height == TILE
        assert info.patch_size is None
    else:
        side = info.patch_size * info.merge_size
        assert info.image_height is info.image_width is None
        assert all(size % side == 0 for image in images for size in image.shape[:2])
        assert info.temporal_patch_size == (2 if kind.startswith(("qwen", "glm")) else 1)
    num_tokens = dict.fromkeys(ONE_NUMBER, NUM_TILE_TOKENS) | dict.fromkeys(FIXED, 4)
    assert info.num_image_tokens == num_tokens.get(kind)
    check_is_taken_by_the_small_model(info, taken=kind in FIXED)


def check_is_taken_by_the_small_model(info: Any, *, taken: bool) -> None:
    if taken:
        check_small_images(info)
        return
    with pytest.raises(StageConfigError, match=f"images are {info.image_kind}; .* small_vlm needs"):
        check_small_images(info)
