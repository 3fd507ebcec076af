"""One sample of a microbatch: its place, the sample alone, and other neighbours of it."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from pipeline.data.batch import ModelNeeds
from pipeline.data.batches.one_sample import (
    alone,
    has_own_positions,
    is_one_segment,
    placed_samples,
    with_other_neighbours,
)
from tests.pipeline.batches import images_of
from tests.pipeline.data.test_batch import IMAGE, PAD, make_batch, make_sample

IDS = {"image_token_id": IMAGE, "pad_token_id": PAD}


def pictured(number: int, num_tokens: int, num_images: int):
    """A sample with a token for each image behind its first one."""
    sample = make_sample(number, num_tokens, num_images)
    ids = sample.input_ids.copy()
    ids[1 : 1 + num_images] = IMAGE
    return dataclasses.replace(sample, input_ids=ids)


ROWS = [[pictured(1, 5, 2), pictured(2, 4, 1), make_sample(3, 3)], [pictured(4, 6, 1)]]


def test_samples_are_found_in_rows_with_padding():
    places = list(placed_samples(make_batch(ROWS, length=14)))
    assert [(p.row, p.number_in_row, p.start, p.end) for p in places] == [
        (0, 0, 0, 5),
        (0, 1, 5, 9),
        (0, 2, 9, 12),
        (1, 0, 14, 20),
    ]
    assert [(p.first_image, p.num_images) for p in places] == [(0, 2), (2, 1), (3, 0), (3, 1)]


def test_a_sample_alone_is_the_row_that_the_loader_makes_of_it():
    packed = make_batch(ROWS, length=14)
    samples = [sample for row in ROWS for sample in row]
    for place, sample in zip(placed_samples(packed), samples, strict=True):
        lone = alone(packed, place, needs=ModelNeeds(), **IDS)
        expected = make_batch([[sample]])
        for name in ("input_ids", "labels", "position_ids", "segment_bounds", "image_sizes"):
            assert torch.equal(getattr(lone, name), getattr(expected, name)), name
        assert lone.keys == expected.keys
        assert all(map(torch.equal, images_of(lone), images_of(expected)))
        assert is_one_segment(packed, place)
        assert has_own_positions(packed, place, lone)


def test_other_neighbours_change_all_but_the_sample_and_image_places():
    packed = make_batch(ROWS, length=14)
    place = list(placed_samples(packed))[1]
    other = with_other_neighbours(packed, place, image_token_id=IMAGE)
    own = np.zeros(packed.input_ids.numel(), dtype=bool)
    own[place.start : place.end] = True
    is_same = (other.input_ids == packed.input_ids).flatten().numpy()
    is_image = (packed.input_ids == IMAGE).flatten().numpy()
    assert is_same.tolist() == (own | is_image).tolist()
    assert set(other.input_ids.unique().tolist()) <= set(packed.input_ids.unique().tolist())
    kept = [torch.equal(a, b) for a, b in zip(images_of(other), images_of(packed), strict=True)]
    assert kept == [False, False, True, False]


def test_positions_and_bounds_of_another_sample_are_noticed():
    packed = make_batch(ROWS, length=14)
    place = list(placed_samples(packed))[1]
    lone = alone(packed, place, needs=ModelNeeds(), **IDS)
    running = torch.arange(14).expand(2, 14)
    assert not has_own_positions(dataclasses.replace(packed, position_ids=running), place, lone)
    for shift in (-1, 1):
        moved = dataclasses.replace(packed, segment_bounds=packed.segment_bounds + shift)
        assert not is_one_segment(moved, place)


def test_marks_of_positions_in_three_dimensions_must_restart_too():
    packed = make_batch(ROWS, length=14)
    place = list(placed_samples(packed))[1]
    lone = alone(packed, place, needs=ModelNeeds(), **IDS)
    in_three = lone.position_ids.expand(3, 1, -1) // 2
    lone = dataclasses.replace(lone, position_ids=in_three)
    marked = torch.stack([packed.position_ids, *[packed.position_ids // 2] * 3])
    assert has_own_positions(dataclasses.replace(packed, position_ids=marked), place, lone)
    marked[0] = torch.arange(14)
    assert not has_own_positions(dataclasses.replace(packed, position_ids=marked), place, lone)
