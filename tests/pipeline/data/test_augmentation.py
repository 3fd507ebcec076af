"""Pictures that change from epoch to epoch, and in no other way."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.data.augmentation import Augmentation, check_augmentation, draw_box, make_augmentation
from pipeline.data.disk_format.dataset_info import read_dataset_info
from pipeline.data.disk_format.sample_members import Sample
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.training_parts import AugmentConfig

EVERYTHING = AugmentConfig(
    mirror_share=0.5, min_crop_share=0.5, brightness=0.3, contrast=0.3, saturation=0.3
)


def make_sample(num_images: int = 2) -> Sample:
    draw = np.random.default_rng(1)
    ids = np.arange(5, dtype=np.int32)
    images = tuple(draw.integers(0, 256, (20, 30, 3), dtype=np.uint8) for _ in range(num_images))
    return Sample(key="3", input_ids=ids, labels=ids, images=images, meta={})


def pixels(config: AugmentConfig, *, number: int = 3, epoch: int = 0, seed: int = 0) -> bytes:
    changed = Augmentation(config=config, seed=seed)(make_sample(), number=number, epoch=epoch)
    return b"".join(image.tobytes() for image in changed.images)


def test_pictures_depend_on_seed_epoch_and_sample_alone() -> None:
    first = pixels(EVERYTHING)
    assert pixels(EVERYTHING) == first
    others = [{"epoch": 1}, {"seed": 1}, {"number": 4}]
    assert len({first, *(pixels(EVERYTHING, **other) for other in others)}) == 4


@pytest.mark.parametrize(
    ("config", "named"),
    [
        (AugmentConfig(mirror_share=0.5), r"^augment\.mirror_share is 0\.5: "),
        (
            AugmentConfig(min_crop_share=0.25, brightness=0.1),
            r"^augment\.min_crop_share is 0\.25: ",
        ),
        (EVERYTHING, r"mirror_share is 0\.5 and augment\.min_crop_share is 0\.5: "),
    ],
)
def test_tiles_are_not_mirrored_or_cut_one_by_one(
    dataset_dir: Path, config: AugmentConfig, named: str
) -> None:
    info = read_dataset_info(dataset_dir)
    check_augmentation(config, info)  # whole pictures
    tiles = dataclasses.replace(info, image_kind="tiled")
    with pytest.raises(StageConfigError, match=named):
        check_augmentation(config, tiles)
    check_augmentation(AugmentConfig(brightness=0.2, contrast=0.2, saturation=0.2), tiles)


def test_sizes_and_tokens_stay() -> None:
    sample = make_sample()
    changed = Augmentation(config=EVERYTHING, seed=0)(sample, number=0, epoch=0)
    assert [image.shape for image in changed.images] == [(20, 30, 3)] * 2
    assert {image.dtype for image in changed.images} == {np.dtype(np.uint8)}
    assert changed.input_ids is sample.input_ids


def test_mirroring_mirrors_the_stated_share() -> None:
    augment = Augmentation(config=AugmentConfig(mirror_share=0.25), seed=0)
    sample = make_sample(1)
    num_mirrored = 0
    for number in range(400):
        (image,) = augment(sample, number=number, epoch=0).images
        is_mirrored = np.array_equal(image, sample.images[0][:, ::-1])
        assert is_mirrored or np.array_equal(image, sample.images[0])
        num_mirrored += is_mirrored
    assert 60 < num_mirrored < 140  # 100 expected, 4.6 standard deviations


def test_brightness_stays_within_its_range() -> None:
    augment = Augmentation(config=AugmentConfig(brightness=0.2), seed=0)
    grey = Sample(
        key="0",
        input_ids=np.zeros(1, dtype=np.int32),
        labels=np.zeros(1, dtype=np.int32),
        images=(np.full((4, 4, 3), 100, dtype=np.uint8),),
        meta={},
    )
    levels = [int(augment(grey, number=n, epoch=0).images[0][0, 0, 0]) for n in range(200)]
    assert 79 <= min(levels) < 85
    assert 115 < max(levels) <= 120


@given(
    seed=st.integers(0, 2**32),
    width=st.integers(1, 500),
    height=st.integers(1, 500),
    min_share=st.floats(0.01, 0.99),
)
def test_crops_lie_in_the_picture(seed: int, width: int, height: int, min_share: float) -> None:
    box = draw_box(np.random.default_rng(seed), (width, height), min_share)
    assert box is not None
    left, top, right, bottom = box
    assert 0 <= left < right <= width * (1 + 1e-9)
    assert 0 <= top < bottom <= height * (1 + 1e-9)


def test_an_empty_config_augments_nothing() -> None:
    assert make_augmentation(AugmentConfig(), 0) is None
    assert make_augmentation(EVERYTHING, 0) is not None


def test_text_alone_passes() -> None:
    sample = make_sample(0)
    assert Augmentation(config=EVERYTHING, seed=0)(sample, number=0, epoch=0) is sample


def test_no_crop_of_nothing() -> None:
    with pytest.raises(ValueError, match="min_crop_share is 0"):
        AugmentConfig(min_crop_share=0)
