"""The page of samples, parsed as a browser would."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

from slurm_jobs.report.samples.samples_page import MOST_FINDINGS, SamplesPage, render_samples
from slurm_jobs.report.values.data_statistics import read_statistics
from tests.slurm_jobs.report.fabricate_run import STATISTICS
from tests.slurm_jobs.report.samples.shown_samples import HOSTILE, sample

PICTURE = {"uri": "data:image/png;base64,AAAA", "problem": None}


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
