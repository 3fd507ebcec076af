"""Image features instead of image tokens, and a zero that keeps their gradients."""

from __future__ import annotations

import torch


def put_features(
    embeddings: torch.Tensor, features: torch.Tensor, places: torch.Tensor
) -> torch.Tensor:
    """Replace the embeddings of image tokens by image features, in order; no SYNC.

    The backward pass of `masked_scatter` would read their number from the device.

    Args:
        embeddings: Float [num_rows, length, hidden].
        features: Float [num_image_tokens, hidden].
        places: int64 [num_image_tokens]: positions in the concatenated rows.

    Raises:
        ValueError: the number of features differs from that of image tokens.
    """
    if len(places) != len(features):
        message = f"{len(places)} image tokens do not fit {len(features)} features of images"
        raise ValueError(message)
    # Not by a view of all rows, for which a compiled layer would be compiled again.
    return embeddings.index_put(rows_and_columns(places, embeddings), features.to(embeddings.dtype))


def rows_and_columns(
    places: torch.Tensor, values: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return row and column indices of positions in the concatenated rows of `values`."""
    length = values.shape[1]
    return places // length, places % length


def find_places(input_ids: torch.Tensor, image_token_id: int) -> torch.Tensor:
    """Return the positions of image tokens in the concatenated rows; SYNC on a GPU."""
    return (input_ids == image_token_id).flatten().nonzero().flatten()


def zero_of(features: torch.Tensor) -> torch.Tensor:
    """Return a float32 zero with a gradient path to `features`, whatever their values.

    `0.0 * features.sum()` is NaN where a feature has overflowed under fp16.
    """
    return 0.0 * torch.nan_to_num(features.float(), nan=0.0, posinf=0.0, neginf=0.0).sum()
