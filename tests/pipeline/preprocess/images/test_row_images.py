"""Images of a row: planned by their headers, made as planned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pipeline.preprocess.encode import SampleEncoder
from pipeline.preprocess.images import load_pixels as load_pixels_module
from pipeline.preprocess.images import row_images as row_images_module
from pipeline.preprocess.images.image_sources import ImageSource
from pipeline.preprocess.images.row_images import RowImages, carry_out
from pipeline.preprocess.rejects import SampleRejectedError
from slurm_jobs.formats.processors.folder import ProcessorInfo
from slurm_jobs.formats.processors.image_plans import FixedImages, ImagePlan, Recipe
from tests.pipeline.kinds import write_kind
from tests.pipeline.preprocess.slices import make_row


def row_images(folder: Path, images: object, max_pixels: int = 100_000_000) -> RowImages:
    processor = ProcessorInfo(
        images=images, resample=3, image_mean=(0.5,) * 3, image_std=(0.5,) * 3, rescale_factor=1.0
    )
    return RowImages(processor=processor, source=ImageSource(folder), max_pixels=max_pixels)


def clip(side: int) -> FixedImages:
    return FixedImages(
        height=side, width=side, shortest_edge=side, image_token="<image>", num_image_tokens=4
    )


def reason_of(raised: pytest.ExceptionInfo[SampleRejectedError]) -> str:
    return raised.value.reason


def test_shorter_side_is_resized_and_the_middle_cut_out(tmp_path: Path) -> None:
    pixels = np.zeros((20, 60, 3), np.uint8)
    pixels[:, 20:40] = 255
    Image.fromarray(pixels).save(tmp_path / "a.png")
    images, row = row_images(tmp_path, clip(20)), make_row(tmp_path, "a.png")
    encoded = images.make(row, images.plan(row))
    assert encoded.images[0].shape == (20, 20, 3)
    assert encoded.images[0].min() == 255
    assert (encoded.original_sizes, encoded.stored_sizes) == (((60, 20),), (((20, 20),),))
    assert encoded.num_pixels == 400


@pytest.mark.parametrize("size", [(60_000, 1), (1, 60_000)])
def test_picture_that_is_huge_before_the_cut_is_rejected_without_decoding(
    tmp_path: Path, size: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.new("RGB", size).save(tmp_path / "a.png")
    monkeypatch.delattr("PIL.Image.Image.resize")
    with pytest.raises(SampleRejectedError, match=r"13440000.* before the middle is cut") as raised:
        row_images(tmp_path, clip(224)).plan(make_row(tmp_path, "a.png"))
    assert reason_of(raised) == "too_many_pixels"


def test_picture_that_is_huge_as_a_square_is_rejected_without_decoding(tmp_path: Path) -> None:
    Image.new("RGB", (3000, 1)).save(tmp_path / "a.png")
    kind = write_kind("llava_onevision", tmp_path / "p")
    encoder = SampleEncoder(kind, image_root=tmp_path, max_pixels=1_000_000)
    (alone,) = encoder.images.plan(make_row(tmp_path, "a.png"))
    assert len(alone.plan.recipes) > 1
    with pytest.raises(SampleRejectedError, match=r"padded to 3000 x 3000; max_pixels") as raised:
        encoder.images.plan(make_row(tmp_path, "a.png", "a.png"))
    assert reason_of(raised) == "too_many_pixels"


def test_padding_is_on_both_sides_of_the_shorter_side() -> None:
    white = Image.new("RGB", (5, 2), (255, 255, 255))
    plan = ImagePlan(recipes=(Recipe(resizes=((5, 5),), square=(9, 8, 7)),), placeholder=())
    (array,) = carry_out(plan, {(): white}, resample=0)
    assert array[:, 0].tolist() == [[9, 8, 7], [255] * 3, [255] * 3, [9, 8, 7], [9, 8, 7]]


def test_tiles_may_have_more_pixels_than_a_file(tmp_path: Path) -> None:
    """The limit is one of what is decoded: SmolVLM makes every picture larger."""
    Image.new("RGB", (30, 30)).save(tmp_path / "a.png")
    encoder = SampleEncoder(
        write_kind("smolvlm", tmp_path / "p"), image_root=tmp_path, max_pixels=1000
    )
    (planned,) = encoder.images.plan(make_row(tmp_path, "a.png"))
    assert planned.plan.num_pixels > 12_000


def test_picture_of_a_shape_that_the_processor_does_not_take_is_rejected(tmp_path: Path) -> None:
    Image.new("RGB", (2010, 10)).save(tmp_path / "a.png")
    encoder = SampleEncoder(write_kind("qwen2_vl", tmp_path / "p"), image_root=tmp_path)
    row = make_row(tmp_path, "a.png")
    with pytest.raises(SampleRejectedError, match=r"a\.png: 2010 x 10 .*: one side is 201 ") as e:
        encoder.images.plan(row)
    assert reason_of(e) == "unfit_size"


def test_picture_that_decodes_to_another_size_than_stated_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tokens are counted already. Pillow's formats seem to agree, so the decoder is a fake."""
    Image.new("RGB", (32, 16)).save(tmp_path / "a.png")
    images, row = row_images(tmp_path, clip(8)), make_row(tmp_path, "a.png")
    planned = images.plan(row)
    turned = Image.new("RGB", (16, 32))
    monkeypatch.setattr(row_images_module, "decode_upright", lambda *_: turned)
    monkeypatch.setattr(load_pixels_module, "decode_upright", lambda *_: turned)
    with pytest.raises(SampleRejectedError, match="decodes to 16 x 32") as raised:
        images.make(row, planned)
    assert reason_of(raised) == "corrupt_image"


def test_all_tiles_are_cut_from_one_resized_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    resized = []
    resize = Image.Image.resize

    def count(image: Image.Image, size: tuple[int, int], resample: int) -> Image.Image:
        resized.append((image.size, size))
        return resize(image, size, resample)

    monkeypatch.setattr(Image.Image, "resize", count)
    chain = ((20, 10), (8, 4))
    boxes = [(0, 0, 4, 4), (4, 0, 8, 4), (-2, 0, 2, 4)]
    recipes = [Recipe(resizes=chain, box=box) for box in boxes]
    plan = ImagePlan(recipes=(*recipes, Recipe(resizes=(*chain, (4, 4)))), placeholder=())
    white = Image.new("RGB", (40, 20), (255, 255, 255))
    arrays = carry_out(plan, {(): white}, resample=3)
    assert resized == [((40, 20), (20, 10)), ((20, 10), (8, 4)), ((8, 4), (4, 4))]
    assert [array.shape for array in arrays] == [(4, 4, 3)] * 4
    assert arrays[2][:, :2].max() == 0  # black over the edge
    assert arrays[2][:, 2:].min() == 255
