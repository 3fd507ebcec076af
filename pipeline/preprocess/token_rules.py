"""Pure rules on token sequences: image tokens multiplied, labels masked, length kept.

Everything here takes and gives int32 or bool arrays of shape [num_tokens].
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pipeline.data.sample_format import IGNORED_LABEL


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenSequence:
    """Tokens and which of them are learned."""

    input_ids: np.ndarray
    """int32 [num_tokens]."""
    supervised: np.ndarray
    """bool [num_tokens]: the assistant's words, with the end-of-turn token."""

    @property
    def labels(self) -> np.ndarray:
        """int32 [num_tokens]: the token itself where it is learned, else `IGNORED_LABEL`."""
        return np.where(self.supervised, self.input_ids, np.int32(IGNORED_LABEL))


def mark_spans(offsets: np.ndarray, spans: Iterable[tuple[int, int]]) -> np.ndarray:
    """The tokens that lie in one of the spans, wholly or in part: bool [num_tokens].

    Args:
        offsets: int64 [num_tokens, 2], start and end of each token in characters. Tokens that
            make one character together share its offsets. A token that is all white space may
            have lost it (`trim_offsets`), and then stands empty where it ended.
        spans: Start and end of each span in characters.
    """
    starts, ends = offsets[:, 0], offsets[:, 1]
    inside = np.zeros(len(offsets), dtype=bool)
    for first, end in spans:
        overlaps = np.maximum(starts, first) < np.minimum(ends, end)
        inside |= np.where(starts == ends, (first < ends) & (ends <= end), overlaps)
    return inside


def multiply_image_tokens(
    tokens: TokenSequence, *, image_token_id: int, num_image_tokens: int
) -> TokenSequence:
    """Put `num_image_tokens` copies in the place of every image token; none is supervised."""
    is_image = tokens.input_ids == image_token_id
    num_copies = np.where(is_image, num_image_tokens, 1)
    return TokenSequence(
        input_ids=np.repeat(tokens.input_ids, num_copies),
        supervised=np.repeat(tokens.supervised & ~is_image, num_copies),
    )


def count_token(input_ids: np.ndarray, token_id: int) -> int:
    """How often `token_id` occurs."""
    return int(np.count_nonzero(input_ids == token_id))


def cut_text(tokens: TokenSequence, *, max_tokens: int, image_token_id: int) -> TokenSequence:
    """Drop text tokens from the end until `max_tokens` are left; image tokens all stay.

    The images alone must fit.
    """
    is_image = tokens.input_ids == image_token_id
    num_text = max_tokens - int(is_image.sum())
    assert num_text >= 0
    keep = is_image | (np.cumsum(~is_image) <= num_text)
    return TokenSequence(input_ids=tokens.input_ids[keep], supervised=tokens.supervised[keep])
