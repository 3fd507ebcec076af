"""Pure rules on token sequences: expand image tokens, mask labels, limit length.

Everything here takes and returns int32 or bool arrays of shape [num_tokens].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from pipeline.data.disk_format.sample_members import IGNORED_LABEL


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenSequence:
    """Tokens and which of them are learned."""

    input_ids: np.ndarray
    """int32 [num_tokens]."""
    supervised: np.ndarray
    """bool [num_tokens]: the assistant's answers, with the end-of-turn token."""
    of_image: np.ndarray
    """bool [num_tokens]: an image token, or a mark at the start or end of an image or tile;
    neither learned nor cut."""

    @property
    def labels(self) -> np.ndarray:
        """int32 [num_tokens]: the token itself where it is learned, else `IGNORED_LABEL`."""
        return np.where(self.supervised, self.input_ids, np.int32(IGNORED_LABEL))


def mark_spans(offsets: np.ndarray, spans: Iterable[tuple[int, int]]) -> np.ndarray:
    """Return which tokens overlap one of the spans: bool [num_tokens].

    Args:
        offsets: int64 [num_tokens, 2], start and end of each token in characters. Tokens that
            form one character together share its offsets. A token of only white space may have
            lost it (`trim_offsets`); then it is empty, at its end.
        spans: Start and end of each span in characters.
    """
    starts, ends = offsets[:, 0], offsets[:, 1]
    inside = np.zeros(len(offsets), dtype=bool)
    for first, end in spans:
        overlaps = np.maximum(starts, first) < np.minimum(ends, end)
        inside |= np.where(starts == ends, (first < ends) & (ends <= end), overlaps)
    return inside


def expand_images(
    tokens: TokenSequence,
    *,
    image_token_id: int,
    placeholders: Sequence[np.ndarray],
    wrapping_ids: tuple[int, int] | None = None,
) -> TokenSequence:
    """Replace every image token by a placeholder; no token of an image is supervised.

    Args:
        tokens: With as many image tokens as placeholders.
        image_token_id: The token that the chat template prints for an image.
        placeholders: int32 [any length] each, in the order of the images.
        wrapping_ids: Tokens that belong to an image if they are directly before and after it.
    """
    is_image = tokens.input_ids == image_token_id
    lengths = np.ones(len(is_image), dtype=np.int64)
    lengths[is_image] = [len(placeholder) for placeholder in placeholders]
    of_image = tokens.of_image | is_image
    if wrapping_ids is not None:
        first, last = (tokens.input_ids == token_id for token_id in wrapping_ids)
        of_image[:-1] |= first[:-1] & is_image[1:]
        of_image[1:] |= last[1:] & is_image[:-1]
    input_ids = np.repeat(tokens.input_ids, lengths)
    if placeholders:
        input_ids[np.repeat(is_image, lengths)] = np.concatenate(placeholders)
    return TokenSequence(
        input_ids=input_ids,
        supervised=np.repeat(tokens.supervised & ~of_image, lengths),
        of_image=np.repeat(of_image, lengths),
    )


def count_token(input_ids: np.ndarray, token_id: int) -> int:
    """Count occurrences of `token_id`."""
    return int(np.count_nonzero(input_ids == token_id))


def cut_text(tokens: TokenSequence, *, max_tokens: int) -> TokenSequence:
    """Drop text tokens from the end until `max_tokens` are left; image tokens stay.

    The images alone must fit.
    """
    num_text = max_tokens - int(tokens.of_image.sum())
    assert num_text >= 0
    keep = tokens.of_image | (np.cumsum(~tokens.of_image) <= num_text)
    return TokenSequence(
        input_ids=tokens.input_ids[keep],
        supervised=tokens.supervised[keep],
        of_image=tokens.of_image[keep],
    )
