"""The picture, looked at pixel by pixel."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from PIL import Image

from pipeline.tools.packing_picture import (
    PADDING,
    SAMPLE_COLOURS,
    WIDTH,
    bar_pieces,
    draw_view,
    write_picture,
)


def way(name: str, rows: list[tuple[list[int], int]], **values: Any) -> dict[str, Any]:
    return {
        "name": name,
        "batching": "{}",
        "is_configured": False,
        "problem": None,
        "padding_share": 0.25,
        "samples_per_row": 2.0,
        "rows": [{"lengths": lengths, "padded": padded} for lengths, padded in rows],
        **values,
    }


def view(*ways: dict[str, Any]) -> dict[str, Any]:
    return {
        "num_samples": 9,
        "max_tokens": 100,
        "global_batch_size": 4,
        "num_ranks": 2,
        "device": None,
        "ways": list(ways),
    }


def share_of(image: Image.Image, colour: tuple[int, ...]) -> float:
    """Of the pixels of all bars, those of one colour."""
    counts = {tuple(c): n for n, c in image.getcolors(1 << 20)}
    bars = sum(counts.get(c, 0) for c in (*SAMPLE_COLOURS, PADDING))
    return counts.get(colour, 0) / bars


@pytest.mark.parametrize(
    ("lengths", "padded", "expected"),
    [
        ([50, 25], 100, [(0, 500, 0), (500, 750, 1), (750, 1000, -1)]),
        ([50, 50], 100, [(0, 500, 0), (500, 1000, 1)]),
        ([30], 60, [(0, 300, 0), (300, 600, -1)]),
        ([100], 100, [(0, 1000, 0)]),
    ],
)
def test_pieces_are_as_long_as_samples_and_padding(lengths, padded, expected):
    assert bar_pieces(lengths, padded, max_tokens=100, width=1000) == expected


def test_samples_narrower_than_a_pixel_shift_nothing():
    pieces = bar_pieces([1] * 1000, 2000, max_tokens=2000, width=100)
    assert pieces[0][0] == 0
    assert pieces[-1] == (50, 100, -1)
    assert all(left[1] == right[0] for left, right in pairwise(pieces))


def test_colours_have_the_area_of_what_they_stand_for():
    rows = [([50, 25], 100)] * 40  # so that the legend weighs little
    image = draw_view(view(way("exact", rows)))
    assert image.width == WIDTH
    assert share_of(image, SAMPLE_COLOURS[0]) == pytest.approx(0.5, abs=0.02)
    assert share_of(image, SAMPLE_COLOURS[1]) == pytest.approx(0.25, abs=0.02)
    assert share_of(image, PADDING) == pytest.approx(0.25, abs=0.02)


def test_what_cannot_be_is_not_drawn():
    one = view(way("exact", [([50], 100)]))
    wrong = {"name": "greedy", "problem": "sizes do not divide", "rows": []}
    two = view(way("exact", [([50], 100)]), wrong)
    assert draw_view(two).tobytes() == draw_view(one).tobytes()


def test_the_file_is_a_png(tmp_path):
    write_picture(view(way("exact", [([50], 100)], step_s=0.5, s_per_1000_samples=2.0)),
                  tmp_path / "p.png")  # fmt: skip
    with Image.open(tmp_path / "p.png") as image:
        assert (image.format, image.width) == ("PNG", WIDTH)
    assert [path.name for path in tmp_path.iterdir()] == ["p.png"]
