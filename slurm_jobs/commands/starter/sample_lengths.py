"""Limits of samples and images, chosen so that the rows of a data set fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from slurm_jobs.formats.configs.stages import DEFAULT_MAX_IMAGES, DEFAULT_MAX_TOKENS
from slurm_jobs.formats.manifests.row_sizes import RowSize, image_tokens
from slurm_jobs.formats.processors.image_plans import ImageRules, NativeImages, Size

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
class LengthLimits:
    """Limits that a spec is written with."""

    max_tokens: int = DEFAULT_MAX_TOKENS
    image_pixels: int | None = None
    """`image_pixels.max`; None keeps the processor's limit."""
    max_images: int = DEFAULT_MAX_IMAGES
    reason: str = ""
    """Reason why a limit is not the default, for a comment."""
    notes: tuple[str, ...] = ()
    """Messages about the rows and the choice."""


def choose_lengths(rows: Sequence[RowSize], rules: ImageRules | None) -> LengthLimits:
    """Return the limits with which the rows fit.

    There are no rows if no image could be read, and no rules if the model's processor is unknown.
    Rows of text alone need no limit of images, and keep the default.
    """
    lengths = _token_lengths(rows, rules)
    most = max((len(row.images) for row in rows), default=0)
    if most <= DEFAULT_MAX_IMAGES:
        return lengths
    note = f"max_images is {most}, the largest number in a row that was read"
    return replace(lengths, max_images=most, notes=(*lengths.notes, note))


def _token_lengths(rows: Sequence[RowSize], rules: ImageRules | None) -> LengthLimits:
    if rules is None:
        note = "the model's image processor is not known here, so lengths were not checked"
        return LengthLimits(notes=(f"{note}: max_tokens is {DEFAULT_MAX_TOKENS}",))
    if rows and not any(row.images for row in rows):
        return LengthLimits()
    seen = rows or [RowSize(images=(size,), num_text_bytes=0) for size in _LARGE]
    lengths = [row_length(row, rules) for row in seen]
    about = (
        "image sizes are not known here; a photo of 4032 x 3024 pixels would have about "
        f"{lengths[0]:,} tokens with the model's processor"
    )
    if rows:
        sizes = sorted((size for row in rows for size in row.images), key=math.prod)
        width, height = sizes[len(sizes) // 2] if sizes else (0, 0)
        over = sum(length > DEFAULT_MAX_TOKENS for length in lengths)
        lost = f"; {over / len(rows):.0%} exceed {DEFAULT_MAX_TOKENS:,}" if over else ""
        about = (
            f"lengths: {len(rows):,} rows read, images of {width} x {height} in the median; with "
            f"the model's processor about {median(lengths):,.0f} tokens, at most "
            f"{max(lengths):,}{lost}"
        )
    if max(lengths) <= DEFAULT_MAX_TOKENS:
        return LengthLimits(notes=(about,) if rows else ())
    if not isinstance(rules, NativeImages):
        most = _STEP * math.ceil((max(lengths) + (0 if rows else _TEXT_TOKENS)) / _STEP)
        reason = "so that the tokens of the images fit"
        return LengthLimits(
            max_tokens=most, reason=reason, notes=(about, f"max_tokens is {most}, {reason}")
        )
    # Images can be reduced; `max_tokens` grows only if they must not be.
    text = max(_TEXT_TOKENS, *(row_length(row, None) for row in seen))
    num_images = max(1, *(len(row.images) for row in seen))
    side = rules.patch_size * rules.merge_size
    tokens = max((DEFAULT_MAX_TOKENS - text) // num_images, _FEWEST_TOKENS)
    pixels = max(tokens * side**2, rules.min_pixels)
    tokens = math.ceil(pixels / side**2)
    most = max(DEFAULT_MAX_TOKENS, _STEP * math.ceil((text + num_images * tokens) / _STEP))
    reason = f"{tokens:,} tokens an image at most, so that samples fit in max_tokens"
    more = f", max_tokens {most}" if most != DEFAULT_MAX_TOKENS else ""
    return LengthLimits(
        max_tokens=most,
        image_pixels=pixels,
        reason=reason,
        notes=(about, f"image_pixels.max is {pixels}{more}: {reason}"),
    )


def row_length(row: RowSize, rules: ImageRules | None) -> int:
    """Return how many tokens a row with its prompt may have; None for `rules` leaves images out."""
    text = _TURN_TOKENS + math.ceil(row.num_text_bytes / _BYTES_A_TOKEN)
    return text if rules is None else text + image_tokens(row, rules)
