"""How Sphinx builds the site: `make docs`, into build/docs/html.

The pages are those that GitHub shows: plain Markdown with relative links. What only the site needs
is made here, as it is built: the navigation from the lists of index.md, and the addresses of files
outside docs/, which have no page here.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))

from pygments.lexers.special import TextLexer  # noqa: E402

from slurm_jobs import __version__  # noqa: E402 (found by the line above)

project = "slurm-jobs"
version = release = __version__
smartquotes = False  # what is written is what stands there, as on GitHub
html_title = f"slurm-jobs {release}"
language = "en"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
nitpicky = True
# An apostrophe in what a command printed is no open quote: highlighting is then done leniently.
suppress_warnings = ["misc.highlighting_failure"]
myst_heading_anchors = 4

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = False
html_show_sphinx = html_show_copyright = False
pygments_style = "a11y-high-contrast-light"  # of accessible-pygments, which furo brings
pygments_dark_style = "a11y-high-contrast-dark"
highlight_language = "text"

REPOSITORY = "https://github.com/slurm-jobs/slurm-jobs/blob/main/"
"""Where files outside docs/ are shown."""
_UPWARDS = re.compile(r"\]\(((?:\.\./)+[^)#\s]+)(#[^)\s]*)?\)")
_ENTRY = re.compile(r"\]\(([\w/-]+)\.md\)")


def with_navigation(text: str) -> str:
    """index.md, and of each of its headings with a list of pages a group of the navigation."""
    groups = []
    for part in text.split("\n## ")[1:]:
        caption, _, body = part.partition("\n")
        pages = "\n".join(_ENTRY.findall(body))
        groups.append(f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}\n```\n")
    return "\n".join([text, *groups])


def with_addresses(text: str, page: str) -> str:
    """Links to files outside docs/ as addresses of the repository.

    `page` is the page's name below docs/: of `recipes/guide`, `../../` leads out.

    Raises:
        FileNotFoundError: there is no such file.
    """

    def address(link: re.Match[str]) -> str:
        target = ((DOCS / page).parent / link[1]).resolve()
        if not target.exists():
            message = f"docs/{page}.md: {link[1]} is not there"
            raise FileNotFoundError(message)
        if target.is_relative_to(DOCS):
            return link[0]
        return f"]({REPOSITORY}{target.relative_to(ROOT)}{link[2] or ''})"

    return _UPWARDS.sub(address, text)


def write_redirects(folder: Path) -> None:
    """Write a page at each earlier address, which leads to the page of today.

    Args:
        folder: the built site.
    """
    for line in (DOCS / "moved-pages.txt").read_text().splitlines():
        earlier, page = line.split()
        (folder / f"{earlier}.html").write_text(
            f'<!doctype html><meta charset="utf-8"><title>{page}</title>'
            f'<script>location.replace("{page}.html" + location.hash)</script>'  # keeps #section
            f'<meta http-equiv="refresh" content="0; url={page}.html">'
            f'<a href="{page}.html">This page has moved.</a>\n'
        )


def _on_built(app: Any, error: Exception | None) -> None:
    if error is None:
        write_redirects(Path(app.outdir))


def _on_read(_app: Any, page: str, source: list[str]) -> None:
    text = with_navigation(source[0]) if page == "index" else source[0]
    source[0] = with_addresses(text, page)


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _on_read)
    app.connect("build-finished", _on_built)
    app.add_lexer("csv", TextLexer)  # GitHub colours it, Pygments has none
