"""PNG of the rows of each way of batching: samples as coloured bars, padding in grey."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageFont

from slurm_jobs.base.files import write_bytes_atomic

WIDTH = 1200
_MARGIN = 28
_BAR_HEIGHT, _BAR_GAP = 13, 4
_HEADING_HEIGHT, _BLOCK_GAP = 26, 16
_TOP_HEIGHT, _BOTTOM_HEIGHT = 104, 14
_TITLE_SIZE, _NAME_SIZE, _TEXT_SIZE = 22, 17, 15
BACKGROUND, INK, FAINT = (255, 255, 255), (33, 37, 41), (96, 104, 112)
PADDING = (214, 217, 221)
SAMPLE_COLOURS = (
    (68, 119, 170),
    (238, 153, 68),
    (51, 153, 119),
    (170, 85, 136),
    (204, 187, 68),
    (102, 187, 221),
)
"""Colours of consecutive samples in a row; neighbours differ in lightness, too. After Paul
Tol's colour schemes for colour-blind readers (SRON/EPS/TN/09-002)."""


def write_picture(view: Mapping[str, Any], path: Path) -> None:
    """Draw the result of `packing.run` and write it to `path`, which appears whole or not at all.

    Raises:
        OSError: it cannot be written.
    """
    encoded = io.BytesIO()
    draw_view(view).save(encoded, format="PNG", optimize=True)
    write_bytes_atomic(path, encoded.getvalue())


def draw_view(view: Mapping[str, Any]) -> Image.Image:
    """Draw the picture, `WIDTH` pixels wide; its height depends on the rows."""
    ways = [way for way in view["ways"] if way["problem"] is None]
    row_height = _BAR_HEIGHT + _BAR_GAP
    heights = [_HEADING_HEIGHT + len(way["rows"]) * row_height + _BLOCK_GAP for way in ways]
    image = Image.new("RGB", (WIDTH, _TOP_HEIGHT + sum(heights) + _BOTTOM_HEIGHT), BACKGROUND)
    draw = ImageDraw.Draw(image)
    _draw_top(draw, view)
    top = _TOP_HEIGHT
    for way, height in zip(ways, heights, strict=True):
        max_tokens = view["max_tokens"]
        font = _font(_NAME_SIZE)
        draw.text((_MARGIN, top), way["name"], INK, font)
        left = _MARGIN + max(130, int(draw.textlength(way["name"], font)) + 20)
        draw.text((left, top + 2), way_words(way), FAINT, _font(_TEXT_SIZE))
        width = WIDTH - 2 * _MARGIN
        for number, row in enumerate(way["rows"]):
            above = top + _HEADING_HEIGHT + number * (_BAR_HEIGHT + _BAR_GAP)
            for start, end, sample in bar_pieces(
                row["lengths"], row["padded"], max_tokens=max_tokens, width=width
            ):
                colour = PADDING if sample < 0 else SAMPLE_COLOURS[sample % len(SAMPLE_COLOURS)]
                # Drawn one pixel short, so that the start of the next one is visible.
                right = _MARGIN + max(start, end - 2)
                draw.rectangle(
                    (_MARGIN + start, above, right, above + _BAR_HEIGHT - 1), fill=colour
                )
        top += height
    return image


def bar_pieces(
    lengths: Sequence[int], padded: int, *, max_tokens: int, width: int
) -> list[tuple[int, int, int]]:
    """Return first and last pixel (exclusive) of each sample, with its index; -1 is padding.

    Samples narrower than a pixel may be missing.

    Args:
        lengths: Tokens of the samples.
        padded: Tokens of the row with its padding.
        max_tokens: Tokens of the whole width.
        width: In pixels.
    """
    pieces, start = [], 0
    spans = [(number, length) for number, length in enumerate(lengths)]
    for number, length in [*spans, (-1, padded - sum(lengths))]:
        left, right = (place * width // max_tokens for place in (start, start + length))
        if right > left:
            pieces.append((left, right, number))
        start += length
    return pieces


def _draw_top(draw: ImageDraw.ImageDraw, view: Mapping[str, Any]) -> None:
    draw.text((_MARGIN, 16), "Rows of one batch, by way of batching", INK, _font(_TITLE_SIZE))
    words = (
        f"width: {view['max_tokens']:,} tokens   ·   {view['num_samples']:,} samples   ·   "
        f"{view['global_batch_size']} samples a step on {view['num_ranks']} ranks"
    )
    if view["device"] is not None:
        words += f"   ·   timed on {view['device']}"
    draw.text((_MARGIN, 46), words, FAINT, _font(_TEXT_SIZE))
    left = _MARGIN
    for colour in SAMPLE_COLOURS:
        draw.rectangle((left, 72, left + 13, 82), fill=colour)
        left += 14
    draw.text((left + 8, 68), "samples, one after the other", FAINT, _font(_TEXT_SIZE))
    left += 240
    draw.rectangle((left, 72, left + 40, 82), fill=PADDING)
    draw.text((left + 50, 68), "padding, which is computed, too", FAINT, _font(_TEXT_SIZE))


def way_words(way: Mapping[str, Any]) -> str:
    """Return `12.3 % padding, 1.4 samples a row, 0.31 s a step`."""
    words = [
        f"{100 * way['padding_share']:.1f} % padding",
        f"{way['samples_per_row']:.1f} samples a row",
    ]
    if "step_s" in way:
        words += [
            f"{way['step_s']:.3g} s a step",
            f"{way['s_per_1000_samples']:.3g} s for 1,000 samples",
        ]
    return "   ·   ".join(words) + ("   ·   the spec's" if way["is_configured"] else "")


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Return Pillow's font, so that the picture is the same on every machine."""
    return ImageFont.load_default(size)
