"""Names and texts of strangers, on their way to the report's page and to the terminal."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from slurm_jobs.cli.terminal.console import page_console, table_of
from slurm_jobs.report.page.markup import el
from slurm_jobs.report.samples.visible_text import visible
from tests.fuzz.budget import examples

EVIL = st.one_of(
    st.text(max_size=60),
    st.lists(
        st.sampled_from(
            [
                *(
                    "<script>",
                    "</td>",
                    "&lt;",
                    '"',
                    "'",
                    "`",
                    "<!--",
                    "]]>",
                    "javascript:",
                    "\x1b[2J",
                ),
                *(
                    "\x1b]8;;x\x07",
                    "\x9b",
                    "\u202e",
                    "\r",
                    "\n",
                    "$(x)",
                    "[red]",
                    "[/]",
                    "[link=x]",
                    "\x00",
                ),
            ]
        ),
        max_size=6,
    ).map("".join),
)
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, object]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.found.append((tag, attrs))

    def handle_comment(self, data: str) -> None:
        self.found.append(("comment", data))

    def handle_data(self, data: str) -> None:
        self.text += data


@examples(200)
@given(EVIL)
def test_no_text_becomes_a_tag_or_leaves_its_attribute(text: str) -> None:
    parser = _Tags()
    parser.feed(str(el("p", text, title=text)))
    parser.close()
    assert [tag for tag, _ in parser.found] == ["p"]
    ((_, attributes),) = parser.found
    assert len(attributes) == 1
    assert not CONTROLS.search(parser.text)


@examples(200)
@given(EVIL, EVIL)
def test_no_cell_of_a_table_steers_the_terminal_or_is_markup(first: str, second: str) -> None:
    console = page_console(width=100)
    with console.capture() as capture:
        console.print(table_of(("a", "b"), [(first, second)]))
    assert not CONTROLS.search(re.sub(r"\x1b\[[0-9;]*m", "", capture.get()))


@examples(200)
@given(EVIL)
def test_visible_text_is_printable(text: str) -> None:
    assert not CONTROLS.search(visible(text))
