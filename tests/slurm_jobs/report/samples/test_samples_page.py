"""Samples as they are shown: to a terminal, a pipe, a terminal without colours, and on a page."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest

from slurm_jobs.report.samples.sample_values import Image, ShownSample, read_sample
from slurm_jobs.report.samples.samples_page import MOST_FINDINGS, SamplesPage, render_samples
from slurm_jobs.report.samples.samples_terminal import choose_marks, print_samples
from slurm_jobs.report.samples.visible_text import image_text, visible
from slurm_jobs.report.values.data_statistics import read_statistics
from tests.slurm_jobs.report import builders
from tests.slurm_jobs.report.fabricate_run import STATISTICS

IMAGE = 9
HOSTILE = "</script><img src=x onerror=alert(1)>\x1b[31m\u202e"
PICTURE = {"uri": "data:image/png;base64,AAAA", "problem": None}


def sample(**changes: Any) -> ShownSample:
    """`<user>`, an image of three tokens, hostile words, a supervised answer of two lines."""
    values = {
        "key": "000000007",
        "shard": "shards/shard-000000.tar",
        "problem": None,
        "row": 7,
        "source": f"x{HOSTILE}",
        "is_truncated": False,
        "images": [{"original": [60, 72], "stored": [[64, 64]]}],
        "input_ids": [1, IMAGE, IMAGE, IMAGE, 2, 3, 4, 5],
        "labels": [-100, -100, -100, -100, -100, 3, 4, 5],
        "pieces": ["<user>", "<image>", "<image>", "<image>", HOSTILE, "Two\nlines", "", "é<end>"],
        **changes,
    }
    return read_sample(values, IMAGE)


def printed(shown: ShownSample, **options: Any) -> str:
    return builders.printed([shown], show=print_samples, **options)


def test_pipe_has_marks_and_whole_lines() -> None:
    lines = printed(sample(), width=30).splitlines()
    assert lines[0] == "supervised tokens are between [[[ and ]]]"
    assert lines[-2:] == [
        "  <user>(<image> x 3)</script><img src=x onerror=alert(1)>\\x1b[31m\\u202e[[[Two\\n",
        "  linesé<end>]]]",
    ]
    assert "8 tokens, 3 supervised, 3 of images; 1 image: 60x72 stored as 64x64" in lines[3]


def test_nothing_of_a_sample_reaches_the_terminal_raw() -> None:
    said = printed(sample(), force_terminal=True, color_system="truecolor", width=400)
    assert "\x1b[31m" not in said  # what the sample would have switched to red
    assert "\u202e" not in said
    assert "\\x1b[31m" in said
    assert "\x1b" not in printed(sample(problem="\x1b[2J gone"))


def test_colours_mark_learned_text_and_no_marks_are_printed() -> None:
    said = printed(sample(), force_terminal=True, color_system="standard", width=400)
    assert "\x1b[1;32mTwo\x1b[0m" in said
    assert "[[[" not in said
    assert "\x1b[36m(<image> x 3)\x1b[0m" in said


def test_terminal_without_colours_has_marks() -> None:
    said = printed(sample(), force_terminal=True, color_system="standard", no_color=True)
    assert "[[[\x1b[1mTwo" in said
    assert "\x1b[1;32m" not in said


def test_terminal_breaks_lines_at_its_width() -> None:
    said = printed(sample(), force_terminal=True, no_color=True, width=40)
    long = sample(pieces=["word " * 8] * 8, input_ids=list(range(8)), labels=[-100] * 8)
    lines = printed(long, force_terminal=True, no_color=True, width=40).splitlines()
    assert max(map(len, lines[2:])) <= 60  # of which codes are a part
    assert len(lines) > 10
    assert said.count("\n") > printed(sample()).count("\n")


@pytest.mark.parametrize(
    ("text", "marks"),
    [("a", ("[[[", "]]]")), ("a[[[", ("{{{", "}}}")), ("]]] }}}", (">>>", "<<<"))],
)
def test_marks_come_in_no_text(text: str, marks: tuple[str, str]) -> None:
    assert choose_marks([sample(pieces=[text] * 8)]) == marks


def test_runs_of_one_image_end_where_supervision_does() -> None:
    half = sample(labels=[-100, -100, IMAGE, IMAGE, -100, 3, 4, 5])
    assert "<image>[[[(<image> x 2)]]]" in printed(half)
    assert half.num_supervised_tokens == 5


def test_an_unreadable_sample_is_printed_with_its_problem() -> None:
    broken = {"images": [], "input_ids": [], "labels": [], "pieces": [], "problem": "cut short"}
    assert printed(sample(**broken)).splitlines()[-1] == "  cut short"


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


# The page of samples, parsed as a browser would.


def render(**changes: Any) -> str:
    values: dict[str, Any] = {
        "folder": f"runs/{HOSTILE}",
        "version": "1",
        "num_samples": 196,
        "num_audited": 196,
        "num_findings": 0,
        "findings": [],
        "statistics": read_statistics(STATISTICS),
        "samples": [sample(pictures=[PICTURE])],
        **changes,
    }
    return render_samples(SamplesPage(**values))


class Elements(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_hostile_text_makes_no_element_and_no_request() -> None:
    finding = {"key": "000000007", "shard": "s.tar", "message": HOSTILE}
    page = render(findings=[finding], num_findings=1)
    elements = Elements(page).found
    assert {tag for tag, _ in elements}.isdisjoint({"script", "link", "iframe"})
    images = [attributes for tag, attributes in elements if tag == "img"]
    assert [image["src"] for image in images] == [PICTURE["uri"]]
    assert not any(name.startswith("on") for _, attributes in elements for name in attributes)
    assert "\x1b" not in page
    assert "\u202e" not in page
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in page


def test_tokens_say_their_ids_positions_and_whether_they_are_learned() -> None:
    spans = {
        attributes["title"]: attributes["class"]
        for tag, attributes in Elements(render()).found
        if tag == "span" and "title" in attributes and str(attributes["title"]).startswith("id")
    }
    assert spans == {
        "id 1, position 0": "t",
        "id 9, positions 1 to 3": "t i",
        "id 2, position 4": "t",
        "id 3, position 5": "t s",
        "id 4, position 6": "t s",
        "id 5, position 7": "t s",
    }


def test_label_of_another_token_is_shown() -> None:
    wrong = sample(labels=[-100, -100, -100, -100, -100, 3, 99, 5])
    assert 'class="t s w" title="id 4, position 6, label 99"' in render(samples=[wrong])


def test_picture_that_is_not_there_says_why() -> None:
    broken = sample(pictures=[{"uri": None, "problem": "cannot be decoded"}])
    assert "cannot be decoded" in render(samples=[broken])


def test_many_findings_are_cut_and_counted() -> None:
    finding = {"key": "000000007", "shard": "s.tar", "message": "m"}
    findings = [finding] * (MOST_FINDINGS + 5)
    page = render(findings=findings, num_findings=9000)
    assert page.count(">m</td>") == MOST_FINDINGS
    assert f"{9000 - MOST_FINDINGS:,} more: slurm-jobs samples --json" in page
    assert "9,000 problems found" in page


def test_part_that_was_audited_is_reported() -> None:
    assert "of all 196 samples were audited" in render()
    assert "of the first 5 of 196 samples were audited" in render(num_audited=5)
