"""One sample of a packed microbatch: where it is, the sample alone, and other neighbours of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from pipeline.data.batch import Batch, ModelNeeds, assemble
from pipeline.data.batches.buffer_pool import BufferPool
from pipeline.data.gathered import Gathered, Picture

_PIXEL_MAX = 255


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedSample:
    """Place of a sample in a microbatch."""

    number: int
    """Number among all samples of the microbatch."""
    row: int
    number_in_row: int
    num_in_row: int
    start: int
    """First token, in the concatenated rows."""
    num_tokens: int
    first_image: int
    """Number among all images of the microbatch."""
    num_images: int

    @property
    def end(self) -> int:
        """Place behind its last token, in the concatenated rows."""
        return self.start + self.num_tokens


def placed_samples(batch: Batch) -> Iterator[PlacedSample]:
    """Yield the samples in order, from their own lengths and not from `segment_bounds`."""
    number = first_image = 0
    for row, lengths in enumerate(batch.sample_lengths):
        start = row * batch.input_ids.shape[1]
        for number_in_row, num_tokens in enumerate(lengths):
            num_images = batch.images_of_samples[number]
            yield PlacedSample(
                number=number,
                row=row,
                number_in_row=number_in_row,
                num_in_row=len(lengths),
                start=start,
                num_tokens=num_tokens,
                first_image=first_image,
                num_images=num_images,
            )
            start += num_tokens
            first_image += num_images
            number += 1


def alone(
    batch: Batch,
    sample: PlacedSample,
    *,
    image_token_id: int,
    pad_token_id: int,
    needs: ModelNeeds,
) -> Batch:
    """Return the sample in a row of its own, with its own positions, bounds and images."""
    tokens = slice(sample.start, sample.end)
    ends = _pixel_ends(batch)
    images, sizes = [], []
    for number in range(sample.first_image, sample.first_image + sample.num_images):
        images.append(batch.pixels[ends[number] : ends[number + 1]].flatten().numpy())
        height, width = batch.image_sizes[number].tolist()
        sizes.append((height, width))
    gathered = Gathered(
        keys=[batch.keys[sample.number]],
        input_ids=[batch.input_ids.flatten()[tokens].numpy()],
        labels=[batch.labels.flatten()[tokens].numpy()],
        images=images,
        image_sizes=sizes,
        num_images=[sample.num_images],
        pictures=None if batch.pictures is None else _pictures_of(batch, sample),
    )
    return assemble(
        gathered,
        [1],
        image_token_id=image_token_id,
        pad_token_id=pad_token_id,
        epoch=batch.epoch,
        buffers=BufferPool(pin_memory=False),
        needs=replace(needs, levels=None),
    )


def with_other_neighbours(batch: Batch, sample: PlacedSample, *, image_token_id: int) -> Batch:
    """Return the microbatch with other tokens and pixels everywhere but in this sample.

    Lengths, and the places and sizes of images, stay. A token becomes the next larger one that
    occurs in the microbatch, so that no token is new to the model; pixels are inverted.
    """
    input_ids = batch.input_ids.flatten().clone()
    changes = input_ids != image_token_id
    known = input_ids[changes].unique()
    changes[sample.start : sample.end] = False
    following = known.roll(-1)
    input_ids[changes] = following[torch.searchsorted(known, input_ids[changes])]
    ends = _pixel_ends(batch)
    own = slice(ends[sample.first_image], ends[sample.first_image + sample.num_images])
    pixels = _PIXEL_MAX - batch.pixels
    pixels[own] = batch.pixels[own]
    return replace(batch, input_ids=input_ids.view_as(batch.input_ids), pixels=pixels)


def is_one_segment(batch: Batch, sample: PlacedSample) -> bool:
    """Check whether the bounds of segments are those of the sample."""
    bounds = batch.segment_bounds.tolist()
    return (sample.start, sample.end) in itertools.pairwise(bounds)


def has_own_positions(batch: Batch, sample: PlacedSample, lone: Batch) -> bool:
    """Check whether a sample has the positions in its row that it has alone.

    The rotation of keys and queries depends on differences of positions only, so that logits do not
    show positions which do not restart.
    """
    packed = batch.position_ids.flatten(-2)[..., sample.start : sample.end]
    own = lone.position_ids.flatten(-2)
    if packed.ndim == 2:
        # A packed batch has a first number that only marks where samples begin.
        marks, packed = packed[: -len(own)], packed[-len(own) :]
        if not all(torch.equal(mark, torch.arange(sample.num_tokens)) for mark in marks):
            return False
    return torch.equal(packed, own)


def _pixel_ends(batch: Batch) -> list[int]:
    """Return the bounds of images in `pixels`."""
    return list(itertools.accumulate(batch.image_sizes.prod(dim=1).tolist(), initial=0))


def _pictures_of(batch: Batch, sample: PlacedSample) -> list[Picture]:
    """Return the pictures of a sample; a sample without images has none."""
    assert batch.pictures is not None
    rows = batch.pictures.tolist()
    first = 0
    for number, num_images in enumerate(batch.images_of_samples):
        if not num_images:
            continue
        num_pictures = rows[first][2]
        if number == sample.number:
            return [(height, width, num) for height, width, num in rows[first:][:num_pictures]]
        first += num_pictures
    return []
