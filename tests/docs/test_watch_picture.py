"""The moving picture of `watch`: each screen stands as long as it did, divided by the speed."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from docs.tools.make_watch_picture import LAST_S, Screen, animated, distinct

SVG = "{http://www.w3.org/2000/svg}"


def _screens() -> list[Screen]:
    texts = (
        "train \x1b[32mrunning\x1b[0m <1 of 2>",
        "train \x1b[32mrunning\x1b[0m <1 of 2>\n\n",
        "done",
    )
    return [Screen(begin_s=2.0 * number, text=text) for number, text in enumerate(texts)]


def test_a_screen_that_did_not_change_is_kept_once() -> None:
    kept = distinct(iter(_screens()))
    assert [screen.begin_s for screen in kept] == [0.0, 4.0]


def test_screens_follow_each_other_without_a_gap_and_at_the_speed() -> None:
    picture = animated(distinct(iter(_screens())), speed=4.0)
    shares = re.findall(r"([\d.]+)%\{visibility:visible\}([\d.]+)%", picture)
    first, last = [(float(begin), float(end)) for begin, end in shares]
    total_s = 4.0 / 4.0 + LAST_S
    assert first == (0.0, last[0])
    assert abs(last[0] - 100 / total_s) < 1e-3
    assert last[1] == 100.0


def test_words_keep_their_signs_their_place_and_their_colour() -> None:
    root = ET.fromstring(animated(distinct(iter(_screens())), speed=1.0))
    first, second = (group.findall(f"{SVG}text") for group in root.findall(f"{SVG}g"))
    assert "".join(piece.text or "" for piece in first) == "train running <1 of 2>"
    assert [piece.text for piece in second] == ["done"]
    assert len({piece.get("fill") for piece in first}) == 2
    xs = [float(piece.get("x", "")) for piece in first]
    widths = [float(piece.get("textLength", "")) for piece in first]
    assert abs(xs[0] + widths[0] - xs[1]) < 0.2
