"""The arrays of several samples, one after the other."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.data.disk_format.sample_members import Sample
from pipeline.data.gathered import ImageRule, gather_samples

SHAPE = (2, 3, 3)
RULE = ImageRule(size=(2, 3))


def make_sample(number: int, num_images: int) -> Sample:
    ids = np.full(number, number, dtype=np.int32)
    images = tuple(np.full(SHAPE, number, dtype=np.uint8) for _ in range(num_images))
    return Sample(key=str(number), input_ids=ids, labels=-ids, images=images, meta={})


def test_arrays_follow_the_order_of_samples() -> None:
    found = gather_samples([make_sample(2, 2), make_sample(1, 0), make_sample(3, 1)], RULE)
    assert found.keys == ["2", "1", "3"]
    assert [ids.tolist() for ids in found.input_ids] == [[2, 2], [1], [3, 3, 3]]
    assert [labels.tolist() for labels in found.labels] == [[-2, -2], [-1], [-3, -3, -3]]
    assert [image.tolist() for image in found.images] == [[2] * 18, [2] * 18, [3] * 18]
    assert found.image_sizes == [(2, 3)] * 3
    assert found.pictures is None


def test_image_of_another_shape_is_named_with_its_sample() -> None:
    with pytest.raises(ValueError, match=r"sample 4: image \(2, 3, 3\), expected \(3, 2, 3\)"):
        gather_samples([make_sample(4, 1)], ImageRule(size=(3, 2)))


@pytest.mark.parametrize(
    ("meta", "said"),
    [
        ({}, "has no sizes of its original"),
        ([1], "has no sizes of its original"),
        ({"original_sizes": 5}, "original_sizes is 5, not a width and a height"),
        ({"original_sizes": [5]}, r"original_sizes is \[5\], not a width"),
        ({"original_sizes": [[1]]}, r"original_sizes is \[\[1\]\], not a width"),
        ({"original_sizes": [["a", "b"]]}, "not a width and a height"),
    ],
)
def test_original_sizes_that_preprocess_would_not_write_are_refused(meta, said):
    spoilt = replace(make_sample(7, 1), meta=meta)
    with pytest.raises(ValueError, match=f"sample 7.*{said}"):
        gather_samples([spoilt], RULE, with_pictures=True)
