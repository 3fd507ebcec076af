"""Untrusted text of samples is written so that all of it is seen."""

from __future__ import annotations

import pytest

from slurm_jobs.report.samples.sample_values import Image
from slurm_jobs.report.samples.visible_text import image_text, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 🙂 汉", "plain é 🙂 汉"),
        ("\x1b[2J\x07\x9b", r"\x1b[2J\x07\x9b"),
        ("a\r\n\tb\x00", r"a\r\n\tb\x00"),
        ("\u202eabc\u200f\u2028\ufeff", r"\u202eabc\u200f\u2028\ufeff"),
        ("\ud800 \U000e0041", r"\ud800 \U000e0041"),
    ],
)
def test_what_is_not_seen_is_written_as_its_code(text: str, shown: str) -> None:
    assert visible(text) == shown


def test_sizes_of_tiles_are_counted() -> None:
    tiles = ((384, 384),) * 4 + ((384, 288),)
    image = Image(original=(640, 480), stored=tiles)
    assert image_text(image) == "640x480 stored as 4 of 384x384, 384x288"
