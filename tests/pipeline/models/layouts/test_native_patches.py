"""Places of tokens and cuts of pictures, compared with transformers' own."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.batch import TokenRows
from pipeline.models.layouts.image_layout import StoredImages
from pipeline.models.layouts.native_patches import NativePatches
from pipeline.models.layouts.pixel_scale import PixelScale
from tests.pipeline.models.tiny import tiny_config

PATCH, MERGE = 2, 2
TEXT, PAD = 9, 0
Piece = int | tuple[int, int]
"""So many tokens of text, or rows and columns of an image's tokens."""

images = st.tuples(st.integers(1, 4), st.integers(1, 4))
# Text stands between images, as their marks do: transformers takes two that touch for one.
pieces = st.lists(st.tuples(st.integers(1, 5), images | st.none()), min_size=1, max_size=4).map(
    lambda pairs: [piece for pair in pairs for piece in pair if piece is not None]
)


def layout(image_token_id: int) -> NativePatches:
    return NativePatches(
        scale=PixelScale(mean=(0.5,) * 3, std=(0.5,) * 3),
        patch_size=PATCH,
        merge_size=MERGE,
        temporal_patch_size=2,
        image_token_id=image_token_id,
    )


def tokens_of(sample: list[Piece], image_token_id: int) -> list[int]:
    found: list[int] = []
    for piece in sample:
        if isinstance(piece, int):
            found += [TEXT] * piece
        else:
            found += [image_token_id] * (piece[0] * piece[1])
    return found


def sizes_of(sample: list[Piece]) -> list[tuple[int, int]]:
    side = PATCH * MERGE
    return [(side * p[0], side * p[1]) for p in sample if not isinstance(p, int)]


@pytest.fixture(scope="module")
def qwen():
    from transformers import AutoModelForImageTextToText

    config = tiny_config("qwen2_vl")
    config.vision_config.spatial_merge_size = MERGE
    with torch.device("meta"):
        return AutoModelForImageTextToText.from_config(config)


@settings(deadline=None, max_examples=60)
@given(samples=st.lists(pieces, min_size=1, max_size=3), spare=st.integers(0, 3))
def test_places_of_packed_samples_are_those_of_each_alone(qwen, samples, spare):
    image_id = qwen.config.image_token_id
    ids = [tokens_of(sample, image_id) for sample in samples]
    ends = list(itertools.accumulate((len(i) for i in ids), initial=0))
    length = ends[-1] + spare
    row = np.full((1, length), PAD)
    row[0, : ends[-1]] = list(itertools.chain(*ids))
    bounds = [*ends, length] if spare else ends
    counted = np.concatenate([np.arange(b - a) for a, b in itertools.pairwise(bounds)])
    rows = TokenRows(
        input_ids=row,
        labels=row,
        position_ids=counted[None],
        segment_bounds=np.array(bounds),
        is_packed=len(samples) > 1,
    )
    found = layout(image_id).positions(rows, [s for sample in samples for s in sizes_of(sample)])
    assert found.shape == (3 + rows.is_packed, 1, length)
    if rows.is_packed:
        assert (found[0] == rows.position_ids).all()
    for sample, tokens, start in zip(samples, ids, ends, strict=False):
        input_ids = torch.tensor([tokens])
        grids = [[1, h // PATCH, w // PATCH] for h, w in sizes_of(sample)]
        expected, _ = qwen.model.get_rope_index(
            input_ids,
            mm_token_type_ids=(input_ids == image_id).int(),
            image_grid_thw=torch.tensor(grids) if grids else None,
        )
        assert (found[-3:, 0, start : start + len(tokens)] == expected[:, 0].numpy()).all()


def test_patches_of_pictures_follow_each_other_as_the_processor_cuts_them():
    from transformers import Qwen2VLImageProcessorPil

    draw = np.random.default_rng(0)
    images = [draw.integers(0, 256, (h, w, 3), dtype=np.uint8) for h, w in ((56, 84), (28, 28))]
    processor = Qwen2VLImageProcessorPil(
        do_resize=False, image_mean=[0.5] * 3, image_std=[0.5] * 3, patch_size=14
    )
    theirs = processor(images, return_tensors="pt")
    cut = NativePatches(
        scale=PixelScale(mean=(0.5,) * 3, std=(0.5,) * 3),
        patch_size=14,
        merge_size=2,
        temporal_patch_size=2,
        image_token_id=0,
    )
    flat = np.concatenate([image.reshape(-1, 3) for image in images])
    stored = StoredImages(
        pixels=torch.from_numpy(flat),
        sizes=torch.tensor([image.shape[:2] for image in images]),
        pictures=None,
    )
    found = cut.arrange(stored, torch.float32)
    torch.testing.assert_close(found["pixel_values"], theirs["pixel_values"])
    assert [list(grid) for grid in found["image_grid_thw"]] == theirs["image_grid_thw"].tolist()
