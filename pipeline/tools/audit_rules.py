"""Pure rules for the tokens, labels and images of one sample.

`verify` checks checksums and counts, by `shard_check`. These rules serve the audit of `samples`,
which checks that the content makes sense.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pipeline.data.disk_format.dataset_info import DatasetInfo
from pipeline.data.disk_format.sample_members import IGNORED_LABEL
from slurm_jobs.formats.processors.image_plans import ImageRules

Kind = Literal[
    "nothing_supervised",
    "image_token_supervised",
    "first_token_supervised",
    "label_differs",
    "unknown_token",
    "image_tokens",
    "num_images",
    "unreadable",
]
NOTHING_SUPERVISED = "no token is supervised: nothing is learned from it"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """Facts that the samples of a data set are checked against."""

    info: DatasetInfo
    is_token: np.ndarray
    """bool [largest token id + 1]: True if the tokenizer has a token of this id."""
    images: ImageRules
    """Image rules of the data set's processor."""


def find(
    rules: Rules, tokens: np.ndarray, meta: Mapping[str, Any], num_images: int
) -> Iterator[tuple[Kind, str]]:
    """Yield all problems of a sample: the kind, and a message.

    Args:
        rules: Rules of the data set.
        tokens: int32 [2, num_tokens]: token ids and labels.
        meta: The sample's `meta.json`.
        num_images: Number of its stored images.

    Raises:
        KeyError, TypeError, ValueError: `meta` is invalid.
    """
    input_ids, labels = tokens
    is_image = input_ids == rules.info.image_token_id
    supervised = labels != IGNORED_LABEL
    if not supervised.any():
        yield "nothing_supervised", NOTHING_SUPERVISED
    places = np.flatnonzero(supervised & is_image)
    if len(places):
        yield "image_token_supervised", f"{_places('image token', places)} supervised"
    if supervised[0]:
        yield "first_token_supervised", "supervises its first token, which has no token before it"
    places = np.flatnonzero(supervised & (labels != input_ids))
    if len(places):
        message = (
            f"{_places('label', places)} neither {IGNORED_LABEL} nor the token of the same place "
            f"(label {labels[places[0]]}, token {input_ids[places[0]]})"
        )
        before = supervised[:-1]
        if before.any() and np.array_equal(input_ids[1:][before], labels[:-1][before]):
            message += ": they are those of the next token, but labels are not shifted here"
        yield "label_differs", message
    places = np.flatnonzero(~known_ids(input_ids, rules.is_token))
    if len(places):
        message = (
            f"{_places('token id', places)} none of the tokenizer's {int(rules.is_token.sum())} "
            f"({input_ids[places[0]]})"
        )
        yield "unknown_token", message
    num_noted = sum(len(sizes) for sizes in meta["stored_sizes"])
    if num_noted != num_images:
        yield "num_images", f"{_images(num_images)} stored, but meta.json has sizes of {num_noted}"
        return
    num_tokens, num_expected = int(is_image.sum()), num_image_tokens(rules, meta, num_images)
    if num_tokens != num_expected:
        message = (
            f"{num_tokens} image tokens, but {_images(num_images)} stored, which would have "
            f"{num_expected}"
        )
        yield "image_tokens", message


def known_ids(input_ids: np.ndarray, is_token: np.ndarray) -> np.ndarray:
    """Return which ids the tokenizer has: bool [num_tokens]."""
    in_range = (input_ids >= 0) & (input_ids < len(is_token))
    known: np.ndarray = in_range & is_token[np.where(in_range, input_ids, 0)]
    return known


def num_image_tokens(rules: Rules, meta: Mapping[str, Any], num_images: int) -> int:
    """Return how many tokens a sample's stored images must have."""
    info = rules.info
    if info.num_image_tokens is not None:
        return info.num_image_tokens * num_images
    if info.patch_size is not None and info.merge_size is not None:
        side = info.patch_size * info.merge_size
        num_tokens = 0
        for sizes_of_image in meta["stored_sizes"]:
            for width, height in sizes_of_image:
                num_tokens += (width // side) * (height // side)
        return num_tokens
    num_tokens, pictures = 0, meta["original_sizes"]
    for width, height in pictures:
        plan = rules.images.plan((width, height), num_images=len(pictures))
        for piece, count in plan.placeholder:
            if piece == info.image_token:
                num_tokens += count
    return num_tokens


def _images(num: int) -> str:
    return f"{num or 'no'} image{' is' if num == 1 else 's are'}"


def _places(word: str, places: np.ndarray) -> str:
    """Return `3 labels, the first at position 7, are`."""
    if len(places) == 1:
        return f"the {word} at position {places[0]} is"
    return f"{len(places)} {word}s, the first at position {places[0]}, are"
