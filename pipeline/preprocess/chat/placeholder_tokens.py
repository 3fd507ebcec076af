"""Placeholders of images as tokens, checked against the tokenizer before use.

Transformers puts an image's placeholder into the text and tokenises all of it. Here each piece
is tokenised once, and the tokens are concatenated. That is equal and much faster, unless a
tokenizer merges pieces with their neighbours, which is tested at the start.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from pipeline.preprocess.chat.token_sequences import TokenSequence, count_token, expand_images
from slurm_jobs.base.errors import StageDataError
from slurm_jobs.formats.processors.image_plans import ImagePlan, ImageRules

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


_TRIED_SIZES = ((64, 64), (640, 480), (900, 2400))
"""Width and height; tiled processors cut them into one and several rows and columns."""
_TRIED_TEXTS = ("{}", "a{}b", "See {}\n and {} too", "\n{}{}\n")


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageTokens:
    """Tokens of every piece that a placeholder may have; may be used from many threads."""

    image_token_id: int
    wrapping_ids: tuple[int, int] | None
    ids_of: Mapping[str, tuple[int, ...]]

    def encode(self, plan: ImagePlan) -> np.ndarray:
        """Return the tokens of a plan's placeholder: int32 [num_tokens]."""
        parts = [
            np.tile(np.asarray(self.ids_of[piece], dtype=np.int32), count)
            for piece, count in plan.placeholder
        ]
        return np.concatenate(parts)

    def expand(self, tokens: TokenSequence, plans: list[ImagePlan]) -> TokenSequence:
        """Replace the token of each image by its placeholder."""
        return expand_images(
            tokens,
            image_token_id=self.image_token_id,
            placeholders=[self.encode(plan) for plan in plans],
            wrapping_ids=self.wrapping_ids,
        )


def make_image_tokens(
    tokenizer: PreTrainedTokenizerBase, images: ImageRules, folder: Path
) -> ImageTokens:
    """Tokenise the pieces of a processor's placeholders, and test their concatenation.

    `images.image_token` is a token of the tokenizer.

    Raises:
        StageConfigError: a piece that must be one token is not, or the tokenizer encodes whole
            placeholders differently from their pieces.
    """
    tokens = ImageTokens(
        image_token_id=_id_of(tokenizer, images.image_token),
        wrapping_ids=_wrapping_ids(tokenizer, images),
        ids_of={piece: _ids(tokenizer, piece) for piece in images.pieces()},
    )
    for size in _TRIED_SIZES:
        plan = images.plan(size)
        for text in _TRIED_TEXTS:
            _try(tokenizer, tokens, images=images, plan=plan, text=text, folder=folder)
    return tokens


def _wrapping_ids(tokenizer: PreTrainedTokenizerBase, images: ImageRules) -> tuple[int, int] | None:
    """Return the tokens around an image; None also if the tokenizer lacks them."""
    if images.wrapping is None:
        return None
    first, last = (_id_of(tokenizer, token) for token in images.wrapping)
    lacking = (None, tokenizer.unk_token_id)
    return None if first in lacking or last in lacking else (first, last)


def _id_of(tokenizer: PreTrainedTokenizerBase, token: str) -> int:
    return cast("int", tokenizer.convert_tokens_to_ids(token))  # a list only for several tokens


def _ids(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[int, ...]:
    return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])


def _try(
    tokenizer: PreTrainedTokenizerBase,
    tokens: ImageTokens,
    *,
    images: ImageRules,
    plan: ImagePlan,
    text: str,
    folder: Path,
) -> None:
    num_images = text.count("{}")
    whole = images.written.replace(images.image_token, plan.text)
    at_once = np.asarray(_ids(tokenizer, text.replace("{}", images.written)), dtype=np.int32)
    expected = np.asarray(_ids(tokenizer, text.replace("{}", whole)), dtype=np.int32)
    if count_token(at_once, tokens.image_token_id) == num_images:
        nothing = np.zeros(len(at_once), dtype=bool)
        sequence = TokenSequence(input_ids=at_once, supervised=nothing, of_image=nothing)
        if np.array_equal(tokens.expand(sequence, [plan] * num_images).input_ids, expected):
            return
    marks = sorted(piece for piece in images.pieces() if piece.strip())
    message = (
        f"{folder / 'tokenizer.json'}: it encodes {text.replace('{}', '[image]')!r} with the "
        "tokens of an image in it differently from these tokens one by one, so that images "
        f"could not be counted; {', '.join(map(repr, marks[:4]))} must be added "
        "tokens that do not absorb neighbouring white space (`lstrip`, `rstrip`)"
    )
    raise StageDataError(message)
