"""Checks that the samples of a data set fit the positions of a language model.

A rotary embedding computes any position, so a sample that is too long trains without an error,
on positions that the model never saw or that exceed its config. Programs that serve the model
(vLLM, TGI) then refuse such prompts. To extend the context, set it in config.json:
`max_position_embeddings`, or the scaling of `rope_parameters`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from pipeline.data.disk_format.dataset_info import DatasetInfo
from pipeline.data.disk_format.index import DatasetIndex

_BLOCK_ROWS = 1 << 20


def max_positions(language: Any) -> int | None:
    """Return the longest sequence that a language model's config allows; None if it has no limit.

    A scaled rotary embedding reaches `factor` times its training length. Configs state that
    reach, or only the original length and the factor: the greater value counts.
    """
    for name in ("max_position_embeddings", "n_positions"):
        limit = getattr(language, name, None)
        if limit:
            break
    else:
        return None
    rope = getattr(language, "rope_parameters", None) or {}
    by_layer = [each for each in rope.values() if isinstance(each, Mapping)]  # Gemma 3's
    reach = float(limit)
    for of_layer in by_layer or [rope]:
        original = of_layer.get("original_max_position_embeddings") or limit
        is_scaled = of_layer.get("rope_type", "default") != "default"
        factor = of_layer.get("factor") if is_scaled else None
        reach = max(reach, original * (factor or 1))
    return int(reach)


def longest_sample(index: DatasetIndex, info: DatasetInfo, limit: int) -> tuple[int, int]:
    """Return the positions of the longest sample, and how many samples have more than `limit`.

    A token has one position, except for the tokens of a `native` image: these are numbered by row
    and column, so an image of T tokens takes at least sqrt(T) positions. Sizes of single images
    are not in the index; for such data sets the numbers are lower bounds.

    Raises:
        StageError: a column of the index does not match its checksum.
    """
    lengths = index.whole("num_tokens")
    longest, num_over = 0, 0
    for start in range(0, len(lengths), _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        positions = lengths[rows].astype(np.int64)
        if info.image_kind == "native":
            positions = _least_positions(positions, index, info, rows)
        if positions.size:
            longest = max(longest, int(positions.max()))
            num_over += int(np.count_nonzero(positions > limit))
    return longest, num_over


def _least_positions(
    lengths: np.ndarray, index: DatasetIndex, info: DatasetInfo, rows: slice
) -> np.ndarray:
    assert info.patch_size is not None  # a `native` data set
    assert info.merge_size is not None
    num_pixels = index.whole("num_pixels")[rows]
    num_image_tokens = num_pixels // (info.patch_size * info.merge_size) ** 2
    least = lengths - num_image_tokens + np.ceil(np.sqrt(num_image_tokens)).astype(np.int64)
    # Older data sets did not count pixels: samples with images cannot be judged there.
    unknown = (index.whole("num_images")[rows] > 0) & (num_pixels == 0)
    return np.where(unknown, 0, least)


def positions_problem(
    *, longest: int, limit: int, num_over: int, num_samples: int, source: str
) -> str | None:
    """Return why the samples do not fit, with the remedy; None if they do.

    Args:
        longest: Positions of the longest sample.
        limit: Limit of the language model.
        num_over: Samples with more than `limit`.
        num_samples: Number of all samples.
        source: The key or file that gives the limit, and how to raise it.
    """
    if longest <= limit:
        return None
    return (
        f"the longest sample has {longest:,} tokens, but the language model has {limit:,} "
        f"positions ({num_over:,} of {num_samples:,} samples are longer than that): preprocess "
        f"with max_tokens: {limit}, or {source}"
    )
