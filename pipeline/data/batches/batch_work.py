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
    window_tokens: int | None = None,
) -> WorkCounts:
    """Count the work of a batch on the host, without padding.

    Args:
        batch: Batch with its token ids.
        patch_size: Side of a patch, in pixels.
        image_token_id: Id of the image token.
        pad_token_id: Id of the padding token.
        window_patches: See `ModelWork`.
        window_tokens: See `ModelWork`.
    """
    ids = batch.input_ids.numpy().reshape(-1)
    bounds = batch.segment_bounds.numpy().astype(np.int64)
    is_sample = np.logical_or.reduceat(ids != pad_token_id, bounds[:-1])  # no segment is empty
    lengths = np.diff(bounds)[is_sample]
    assert len(lengths) == batch.num_samples
    grids = batch.image_sizes.numpy() // patch_size
    num_patches = grids.prod(axis=1)
    windows = 0
    if window_patches is not None:
        whole, rest = np.divmod(grids, window_patches)
        squares = whole * window_patches**2 + rest**2  # of the windows along each side
        windows = int(squares.prod(axis=1).sum())
    token_windows = 0
    if window_tokens is not None:
        token_windows = int((lengths * np.minimum(lengths, window_tokens)).sum())
    return WorkCounts(
        num_patches=int(num_patches.sum()),
        num_patch_pairs=int((num_patches**2).sum()),
        num_window_pairs=windows,
        num_image_tokens=int(np.count_nonzero(ids == image_token_id)),
        num_tokens=batch.num_tokens,
        num_token_pairs=int((lengths**2).sum()),
        num_token_window_pairs=token_windows,
        num_learned=len(batch.learned.places),
    )
