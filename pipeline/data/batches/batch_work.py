"""Counts of a batch from which a model's operations follow."""

from __future__ import annotations

import numpy as np

from pipeline.data.batch import Batch
from pipeline.timing.flops import WorkCounts


def count_work(
    batch: Batch,
    *,
    patch_size: int,
    image_token_id: int,
    pad_token_id: int,
    window_patches: int | None = None,
) -> WorkCounts:
    """Count the work of a batch on the host, without padding.

    Args:
        batch: Batch with its token ids.
        patch_size: Side of a patch, in pixels.
        image_token_id: Id of the image token.
        pad_token_id: Id of the padding token.
        window_patches: See `ModelWork`.
    """
    ids = batch.input_ids.numpy().reshape(-1)
    lengths = _sample_lengths(ids, batch, pad_token_id)
    grids = batch.image_sizes.numpy() // patch_size
    num_patches = grids.prod(axis=1)
    windows = 0
    if window_patches is not None:
        windows = int(_window_squares(grids, window_patches).prod(axis=1).sum())
    return WorkCounts(
        num_patches=int(num_patches.sum()),
        num_patch_pairs=int((num_patches**2).sum()),
        num_window_pairs=windows,
        num_image_tokens=int(np.count_nonzero(ids == image_token_id)),
        num_tokens=batch.num_tokens,
        num_token_pairs=int((lengths**2).sum()),
        num_learned=len(batch.learned.places),
    )


def _sample_lengths(ids: np.ndarray, batch: Batch, pad_token_id: int) -> np.ndarray:
    """Return the lengths of segments that are not padding: int64 [num_samples]."""
    bounds = batch.segment_bounds.numpy().astype(np.int64)
    is_sample = np.logical_or.reduceat(ids != pad_token_id, bounds[:-1])  # no segment is empty
    lengths: np.ndarray = np.diff(bounds)[is_sample]
    assert len(lengths) == batch.num_samples
    return lengths


def _window_squares(lengths: np.ndarray, side: int) -> np.ndarray:
    """Return the sum of squares of the pieces when each length is cut into pieces of `side`."""
    whole, rest = np.divmod(lengths, side)
    squares: np.ndarray = whole * side**2 + rest**2
    return squares
