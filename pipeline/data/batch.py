"""Samples to one batch of tensors, with one or several samples in a row.

Samples of a row never see each other: positions restart at 0, attention kernels get the bounds
of all segments, and no sample's first token is a target, because the sample before would
predict it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pipeline.data.batches.buffer_pool import BufferPool
from pipeline.data.batches.learned_targets import Learned, LevelRules, find_learned
from pipeline.data.batches.manifest_groups import ManifestGroups
from pipeline.data.disk_format.sample_members import IGNORED_LABEL, Sample
from pipeline.data.gathered import Gathered, ImageRule, ImageSize, gather_samples
from pipeline.timing.thread_clock import NOT_TIMED, ThreadTimes


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """Microbatch of one rank, on the host.

    The memory of `pixels` is reused as soon as it has no reference: keep the batch until the
    device has copied it.
    """

    input_ids: torch.Tensor
    """int64 [num_rows, length], padded on the right."""
    labels: torch.Tensor
    """int64 [num_rows, length], -100 where nothing is learned; not shifted."""
    position_ids: torch.Tensor
    """int64 [num_rows, length], from 0 in every sample and in the padding of a row; or the
    result of `PositionMaker`."""
    segment_bounds: torch.Tensor
    """int32 [num_segments + 1]: bounds of the segments in the concatenated rows. A segment is a
    sample, or the padding of a row."""
    image_places: torch.Tensor | None
    """int64 [num_image_tokens]: positions of the image tokens in the concatenated rows; None
    without an image."""
    learned: Learned
    """Targets of the loss."""
    pixels: torch.Tensor
    """uint8 [num_pixels, 3] of all images, concatenated in the order of the image tokens."""
    image_sizes: torch.Tensor
    """int64 [num_images, 2]: height and width of each."""
    pictures: torch.Tensor | None
    """int64 [num_pictures, 3]: height and width of each picture before preprocessing, and number
    of pictures of its sample; None unless the model needs them. A picture that was cut into tiles
    is several images."""
    keys: tuple[str, ...]
    sample_lengths: tuple[tuple[int, ...], ...]
    """Number of tokens of each sample, by row."""
    images_of_samples: tuple[int, ...]
    """Number of images of each sample, in the order of `keys`."""
    epoch: int
    """Epoch of the first row of the global batch."""
    is_packed: bool
    """True if any row holds more than one sample."""
    num_samples: int
    num_tokens: int
    """Tokens without padding, image tokens included."""
    num_padding_tokens: int
    num_supervised_tokens: int
    num_images: int
    loading: ThreadTimes = NOT_TIMED
    """Time of the loader's threads for this batch."""
    reading: ThreadTimes = NOT_TIMED
    """Share of `loading` of a thread that reads for all others; not timed where each thread reads.
    """


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenRows:
    """Text side of a batch; all arrays but the last are [num_rows, length]."""

    input_ids: np.ndarray
    """int64."""
    labels: np.ndarray
    """int64."""
    position_ids: np.ndarray
    """int64."""
    segment_bounds: np.ndarray
    """int32 [num_segments + 1]."""
    is_packed: bool
    """True if any row holds more than one sample."""


PositionMaker = Callable[[TokenRows, Sequence[ImageSize]], np.ndarray]
"""Maps the rows and the height and width of each image to int64 [.., num_rows, length]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelNeeds:
    """Requirements of a model for its batches beyond the default."""

    make_positions: PositionMaker | None = None
    """None: positions count the tokens of each sample."""
    pictures: bool = False
    """True if it needs the sizes of pictures before preprocessing."""
    levels: LevelRules | None = None
    """Rules for samples with chained targets."""
    manifests: ManifestGroups | None = None
    """Groups of targets by manifest; not together with levels, which are groups themselves."""


def collate(
    rows: Sequence[Sequence[Sample]],
    *,
    rule: ImageRule,
    needs: ModelNeeds = ModelNeeds(),
    **settings: Any,
) -> Batch:
    """Assemble the samples of each row (see `assemble`); no row is empty.

    Raises:
        ValueError: an image does not fit the rule.
    """
    samples = itertools.chain.from_iterable(rows)
    gathered = gather_samples(samples, rule, with_pictures=needs.pictures)
    return assemble(gathered, [len(row) for row in rows], needs=needs, **settings)


def assemble(
    gathered: Gathered,
    row_sizes: Sequence[int],
    *,
    image_token_id: int,
    pad_token_id: int,
    epoch: int,
    buffers: BufferPool,
    length: int | None = None,
    needs: ModelNeeds = ModelNeeds(),
    pin_memory: bool = False,
) -> Batch:
    """Concatenate the samples of each row, pad the rows, and join the images.

    `row_sizes` counts the samples of each row, at least one; `length` None pads to the longest
    row; `pin_memory` returns pinned tensors, which a GPU copies asynchronously.
    """
    rows = lay_out_tokens(gathered, row_sizes, pad_token_id=pad_token_id, length=length)
    position_ids = rows.position_ids
    if needs.make_positions is not None:
        position_ids = needs.make_positions(rows, gathered.image_sizes)
    tensor = _pinned if pin_memory else torch.from_numpy
    learned = find_learned(rows.labels, rows.segment_bounds, gathered.keys, needs.levels, tensor)
    if needs.manifests is not None:
        learned = needs.manifests.group(learned, gathered.keys, gathered.labels, tensor)
    lengths = [len(ids) for ids in gathered.input_ids]
    lasts = itertools.accumulate(row_sizes, initial=0)
    image_places = np.flatnonzero(rows.input_ids == image_token_id) if gathered.images else None
    ends = list(itertools.accumulate(map(len, gathered.images), initial=0))
    pixels = buffers.take(ends[-1])  # pinned, if `buffers` pins
    for image, (start, end) in zip(gathered.images, itertools.pairwise(ends), strict=True):
        pixels[start:end] = image
    return Batch(
        input_ids=tensor(rows.input_ids),
        labels=torch.from_numpy(rows.labels),  # for the host only
        position_ids=tensor(position_ids),
        segment_bounds=tensor(rows.segment_bounds),
        image_places=None if image_places is None else tensor(image_places),
        learned=learned,
        pixels=torch.from_numpy(pixels.reshape(-1, 3)),
        image_sizes=_table(gathered.image_sizes, 2),
        pictures=None if gathered.pictures is None else _table(gathered.pictures, 3),
        keys=tuple(gathered.keys),
        sample_lengths=tuple(
            tuple(lengths[first:last]) for first, last in itertools.pairwise(lasts)
        ),
        images_of_samples=tuple(gathered.num_images),
        epoch=epoch,
        is_packed=rows.is_packed,
        num_samples=len(gathered.keys),
        num_tokens=sum(lengths),
        num_padding_tokens=rows.input_ids.size - sum(lengths),
        num_supervised_tokens=learned.num_tokens,
        num_images=len(gathered.images),
    )


def _table(rows: Sequence[tuple[int, ...]], num_columns: int) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.int64).reshape(-1, num_columns)


def _pinned(array: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(array).pin_memory()


def lay_out_tokens(
    gathered: Gathered, row_sizes: Sequence[int], *, pad_token_id: int, length: int | None = None
) -> TokenRows:
    """Lay out token ids, labels, positions and segments; rows are padded on the right.

    Rows of one sample need no mask: with causal attention no real token sees the padding after
    it.
    """
    sizes = [len(ids) for ids in gathered.input_ids]
    lasts = list(itertools.accumulate(row_sizes))
    longest = max(sum(sizes[start:last]) for start, last in itertools.pairwise([0, *lasts]))
    assert length is None or longest <= length
    width = longest if length is None else length
    num_places = len(row_sizes) * width
    input_ids = np.full(num_places, pad_token_id, dtype=np.int64)
    labels = np.full(num_places, IGNORED_LABEL, dtype=np.int64)
    position_ids = np.empty(num_places, dtype=np.int64)
    from_zero = np.arange(width)
    bounds = [0]
    sample = 0
    for last, row_end in zip(lasts, range(width, num_places + 1, width), strict=True):
        start = row_end - width
        while sample < last:
            size = sizes[sample]
            end = start + size
            input_ids[start:end] = gathered.input_ids[sample]
            labels[start + 1 : end] = gathered.labels[sample][1:]
            position_ids[start:end] = from_zero[:size]
            bounds.append(end)
            start = end
            sample += 1
        if start < row_end:
            position_ids[start:row_end] = from_zero[: row_end - start]
            bounds.append(row_end)
    shape = (len(row_sizes), width)
    return TokenRows(
        input_ids=input_ids.reshape(shape),
        labels=labels.reshape(shape),
        position_ids=position_ids.reshape(shape),
        segment_bounds=np.asarray(bounds, dtype=np.int32),
        is_packed=len(sizes) > len(row_sizes),
    )
