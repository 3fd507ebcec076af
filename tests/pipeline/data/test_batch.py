"""How samples are laid out in rows."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.batch import Batch, ModelNeeds, TokenRows, collate, lay_out_tokens
from pipeline.data.batches.buffer_pool import BufferPool
from pipeline.data.disk_format.sample_members import Sample
from pipeline.data.gathered import ImageRule, gather_samples
from tests.pipeline.batches import images_of

PAD = 0
IMAGE = 2
SHAPE = (4, 6, 3)
RULE = ImageRule(size=(4, 6))


def make_sample(number: int, num_tokens: int, num_images: int = 0) -> Sample:
    ids = np.arange(num_tokens, dtype=np.int32) + 100 * number + 1
    images = tuple(np.full(SHAPE, 10 * number + i, dtype=np.uint8) for i in range(num_images))
    return Sample(key=f"{number:09d}", input_ids=ids, labels=ids, images=images, meta={})


def make_batch(rows: list[list[Sample]], length: int | None = None) -> Batch:
    return collate(
        rows,
        rule=RULE,
        pad_token_id=PAD,
        image_token_id=IMAGE,
        epoch=2,
        buffers=BufferPool(pin_memory=False),
        length=length,
    )


def test_samples_of_a_row_follow_each_other() -> None:
    batch = make_batch([[make_sample(1, 3), make_sample(2, 2)], [make_sample(3, 4)]], length=6)
    assert batch.input_ids.tolist() == [[101, 102, 103, 201, 202, 0], [301, 302, 303, 304, 0, 0]]
    assert batch.position_ids.tolist() == [[0, 1, 2, 0, 1, 0], [0, 1, 2, 3, 0, 1]]
    assert batch.segment_bounds.tolist() == [0, 3, 5, 6, 10, 12]
    assert batch.keys == ("000000001", "000000002", "000000003")
    assert (batch.num_samples, batch.num_tokens, batch.num_padding_tokens) == (3, 9, 3)
    assert batch.is_packed
    assert batch.epoch == 2


def test_first_token_of_a_sample_is_never_learned() -> None:
    batch = make_batch([[make_sample(1, 3), make_sample(2, 2)]])
    assert batch.labels.tolist() == [[-100, 102, 103, -100, 202]]
    assert batch.num_supervised_tokens == 3


def test_one_sample_a_row_is_not_packed() -> None:
    batch = make_batch([[make_sample(1, 3)], [make_sample(2, 5)]])
    assert not batch.is_packed
    assert batch.input_ids.shape == (2, 5)


def test_images_come_in_the_order_of_rows_and_samples() -> None:
    rows = [[make_sample(1, 3, 2), make_sample(2, 2)], [make_sample(3, 4, 1)]]
    batch = make_batch(rows)
    assert batch.pixels.dtype == torch.uint8
    images = torch.stack(images_of(batch))
    assert images.shape == (3, *SHAPE)
    assert images[:, 0, 0, 0].tolist() == [10, 11, 30]
    assert (images == images[:, :1, :1, :1]).all()


def test_places_of_image_tokens_count_through_the_rows() -> None:
    ids = np.array([5, IMAGE, IMAGE, 6], dtype=np.int32)
    pictured = dataclasses.replace(make_sample(1, 4, 1), input_ids=ids)
    batch = make_batch([[make_sample(2, 3), pictured], [pictured]], length=8)
    assert batch.image_places is not None
    assert batch.image_places.tolist() == [4, 5, 9, 10]
    assert make_batch([[make_sample(2, 3)]]).image_places is None


def test_images_of_sizes_of_their_own_are_joined_with_their_sizes() -> None:
    shapes = [(4, 2, 3), (2, 8, 3), (6, 6, 3)]
    images = tuple(np.full(shape, n, dtype=np.uint8) for n, shape in enumerate(shapes))
    sample = dataclasses.replace(make_sample(1, 3), images=images)
    batch = collate(
        [[sample]],
        rule=ImageRule(size=None, multiple=2),
        pad_token_id=PAD,
        image_token_id=IMAGE,
        epoch=0,
        buffers=BufferPool(pin_memory=False),
    )
    assert batch.image_sizes.tolist() == [[4, 2], [2, 8], [6, 6]]
    assert [tuple(image.shape) for image in images_of(batch)] == shapes
    assert [image.unique().tolist() for image in images_of(batch)] == [[0], [1], [2]]
    assert batch.num_images == 3


def test_image_that_is_no_whole_number_of_patches_is_named() -> None:
    sample = dataclasses.replace(make_sample(1, 3), images=(np.zeros((4, 3, 3), np.uint8),))
    with pytest.raises(ValueError, match=r"sample 000000001: image \(4, 3, 3\), .*multiples of 2"):
        gather_samples([sample], ImageRule(size=None, multiple=2))


def test_model_may_number_tokens_its_own_way_and_ask_for_pictures() -> None:
    meta = {"original_sizes": [[60, 40], [50, 30]]}
    sample = dataclasses.replace(make_sample(1, 3, 1), meta=meta)
    seen = []

    def make_positions(rows: TokenRows, sizes: Sequence[tuple[int, int]]) -> np.ndarray:
        seen.append((rows.is_packed, list(sizes)))
        return np.stack([rows.position_ids, 7 * rows.position_ids])

    batch = collate(
        [[sample]],
        rule=RULE,
        needs=ModelNeeds(make_positions=make_positions, pictures=True),
        pad_token_id=PAD,
        image_token_id=IMAGE,
        epoch=0,
        buffers=BufferPool(pin_memory=False),
    )
    assert seen == [(False, [(4, 6)])]
    assert batch.position_ids.tolist() == [[[0, 1, 2]], [[0, 7, 14]]]
    assert batch.pictures.tolist() == [[40, 60, 2], [30, 50, 2]]


def test_image_of_another_size_is_named() -> None:
    wrong = Sample(
        key="7",
        input_ids=np.ones(2, dtype=np.int32),
        labels=np.ones(2, dtype=np.int32),
        images=(np.zeros((5, 6, 3), dtype=np.uint8),),
        meta={},
    )
    with pytest.raises(ValueError, match=r"sample 7: image \(5, 6, 3\), expected \(4, 6, 3\)"):
        make_batch([[wrong]])


@settings(deadline=None)
@given(
    rows=st.lists(
        st.lists(st.integers(1, 12), min_size=1, max_size=5).map(tuple), min_size=1, max_size=4
    ),
    spare=st.integers(0, 5),
)
def test_segments_tile_the_rows_and_hold_one_sample_each(
    rows: list[tuple[int, ...]], spare: int
) -> None:
    length = max(sum(row) for row in rows) + spare
    numbered = iter(range(1, 100))
    samples = [[make_sample(next(numbered), n) for n in row] for row in rows]
    gathered = gather_samples(itertools.chain(*samples), RULE)
    tokens = lay_out_tokens(gathered, [len(row) for row in rows], pad_token_id=PAD, length=length)
    ids, positions = tokens.input_ids.ravel(), tokens.position_ids.ravel()
    bounds = tokens.segment_bounds
    assert bounds[0] == 0
    assert bounds[-1] == len(ids) == len(rows) * length
    found = []
    for start, end in itertools.pairwise(bounds):
        assert start < end
        assert start // length == (end - 1) // length  # within one row
        assert positions[start:end].tolist() == list(range(end - start))
        if ids[start] != PAD:
            found.append(ids[start:end].tolist())
        else:
            assert (ids[start:end] == PAD).all()
    assert found == [sample.input_ids.tolist() for row in samples for sample in row]
