"""A page of the report as a browser takes it apart, and what no page of ours may have."""

from __future__ import annotations

from html.parser import HTMLParser


class ParsedPage(HTMLParser):
    """Finds tags that are not closed, and the tags and attributes that a page may not have."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str | None] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [v for k, v in attrs if k in {"src", "href", "srcset", "data", "action"}]
        assert not [k for k, _ in attrs if k.startswith("on")]
        if tag not in {"meta", "br", "hr"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)


def parse(page: str) -> ParsedPage:
    """The page taken apart; all that was opened is closed."""
    parser = ParsedPage()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser
