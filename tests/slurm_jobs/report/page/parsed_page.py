"""A page of a report as a browser takes it apart."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from slurm_jobs.base.shipped_files import shipped_path
from slurm_jobs.report.page.report_page import render_html


class ParsedPage(HTMLParser):
    """A page as a browser takes it apart; all that is opened is closed, and nothing loads."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.feed(page)
        self.close()
        assert self.open == []
        assert not self.tags & {
            "script", "link", "img", "iframe", "object", "embed", "form", "base", "a"
        }  # fmt: skip

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        loading = {"src", "href", "srcset", "data", "action"}
        assert not [key for key, _ in attrs if key in loading or key.startswith("on")]
        if tag not in {"meta", "br", "hr"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)


@pytest.fixture(scope="module")
def page(report_of) -> str:
    return render_html(report_of())


@pytest.fixture(scope="module")
def style() -> str:
    return shipped_path("templates", "report", "page.css").read_text()
