"""Limits of samples and images, chosen so that the rows of a data set fit. PURE."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from slurm_jobs.common.processors.native import NativeImages
from slurm_jobs.common.processors.plan import ImageRules, Size
from slurm_jobs.common.row_sizes import RowSize, image_tokens
from slurm_jobs.common.stage_config.preprocess import DEFAULT_MAX_IMAGES, DEFAULT_MAX_TOKENS

_LARGE: tuple[Size, ...] = ((4032, 3024), (3024, 4032), (4000, 4000), (1600, 500), (500, 1600))
"""Sizes for which the tokens of an image are counted if no image could be read."""
_BYTES_A_TOKEN = 2
"""Bytes of text per token, on the safe side: tokenizers of English take three to four."""
_TURN_TOKENS = 64
"""Room for the chat template, the system message and the prompt."""
_TEXT_TOKENS = 768
"""Minimum room for texts, so that rows that were not read fit, too."""
_FEWEST_TOKENS = 256
"""Minimum for an image: Qwen's lower limit for legible pictures, 256 * 28 * 28 pixels."""
_STEP = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Lengths:
    """Limits that a spec is written with."""

    max_tokens: int = DEFAULT_MAX_TOKENS
    image_pixels: int | None = None
    """`image_pixels.max`; None keeps the processor's limit."""
    max_images: int = DEFAULT_MAX_IMAGES
    reason: str = ""
    """Reason why a limit is not the default, for a comment."""
    notes: tuple[str, ...] = ()
    """Messages about the rows and the choice."""


def choose_lengths(rows: Sequence[RowSize], rules: ImageRules | None) -> Lengths:
    """Return the limits with which the rows fit.

    Args:
        rows: Rows that were read; empty if no image could be read.
        rules: Rules of the model's processor; None if unknown.
    """
    lengths = _token_lengths(rows, rules)
    most = max((len(row.images) for row in rows), default=0)
    if most <= DEFAULT_MAX_IMAGES:
        return lengths
    note = f"max_images is {most}, the largest number in a row that was read"
    return replace(lengths, max_images=most, notes=(*lengths.notes, note))


def _token_lengths(rows: Sequence[RowSize], rules: ImageRules | None) -> Lengths:
    if rules is None:
        note = "the model's image processor is not known here, so lengths were not checked"
        return Lengths(notes=(f"{note}: max_tokens is {DEFAULT_MAX_TOKENS}",))
    seen = rows or [RowSize(images=(size,), num_text_bytes=0) for size in _LARGE]
    lengths = [row_length(row, rules) for row in seen]
    about = _about(rows, lengths)
    if max(lengths) <= DEFAULT_MAX_TOKENS:
        return Lengths(notes=(about,) if rows else ())
    text = max(text_tokens(row) for row in seen)
    if isinstance(rules, NativeImages):
        chosen = _reduced(seen, rules, text)
    else:
        most = _rounded(max(lengths) if rows else max(lengths) + _TEXT_TOKENS)
        chosen = Lengths(max_tokens=most, reason="so that the tokens of the images fit")
    return Lengths(
        max_tokens=chosen.max_tokens,
        image_pixels=chosen.image_pixels,
        reason=chosen.reason,
        notes=(about, _said(chosen)),
    )


def text_tokens(row: RowSize) -> int:
    """Return how many tokens the words of a row may have, with its prompt."""
    return _TURN_TOKENS + math.ceil(row.num_text_bytes / _BYTES_A_TOKEN)


def row_length(row: RowSize, rules: ImageRules) -> int:
    """Return how many tokens a row may have."""
    return text_tokens(row) + image_tokens(row, rules)


def _reduced(rows: Sequence[RowSize], rules: NativeImages, text: int) -> Lengths:
    """Return the limits if images can be reduced; `max_tokens` grows only if they must not be."""
    num_images = max(1, *(len(row.images) for row in rows))
    room = DEFAULT_MAX_TOKENS - max(text, _TEXT_TOKENS)
    tokens = max(room // num_images, _FEWEST_TOKENS)
    side = rules.patch_size * rules.merge_size
    pixels = max(tokens * side**2, rules.min_pixels)
    tokens = math.ceil(pixels / side**2)
    most = max(DEFAULT_MAX_TOKENS, _rounded(max(text, _TEXT_TOKENS) + num_images * tokens))
    return Lengths(
        max_tokens=most,
        image_pixels=pixels,
        reason=f"{tokens:,} tokens an image at most, so that samples fit in max_tokens",
    )


def _rounded(tokens: int) -> int:
    return math.ceil(tokens / _STEP) * _STEP


def _about(rows: Sequence[RowSize], lengths: Sequence[int]) -> str:
    if not rows:
        return (
            "image sizes are not known here; a photo of 4032 x 3024 pixels would have about "
            f"{lengths[0]:,} tokens with the model's processor"
        )
    sizes = sorted(
        (size for row in rows for size in row.images), key=lambda size: size[0] * size[1]
    )
    width, height = sizes[len(sizes) // 2] if sizes else (0, 0)
    over = sum(length > DEFAULT_MAX_TOKENS for length in lengths)
    lost = f"; {over / len(rows):.0%} exceed {DEFAULT_MAX_TOKENS:,}" if over else ""
    return (
        f"lengths: {len(rows):,} rows read, images of {width} x {height} in the median; with "
        f"the model's processor about {median(lengths):,.0f} tokens, at most {max(lengths):,}{lost}"
    )


def _said(chosen: Lengths) -> str:
    if chosen.image_pixels is None:
        return f"max_tokens is {chosen.max_tokens}, {chosen.reason}"
    more = f", max_tokens {chosen.max_tokens}" if chosen.max_tokens != DEFAULT_MAX_TOKENS else ""
    return f"image_pixels.max is {chosen.image_pixels}{more}: {chosen.reason}"
