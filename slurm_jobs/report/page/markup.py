"""HTML builder that escapes all text except `Html`. PURE.

Values cannot hide a part of themselves or change the direction of writing:
`slurm_jobs/base/errors.py`.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

from slurm_jobs.base.texts.control_characters import plain


class Html(str):
    """Text that is already HTML."""

    __slots__ = ()


Child = str | None | Iterable["Child"]
"""`Html` is inserted unchanged, other text is escaped, None is omitted."""

# Templates of jinja2 save no lines: three sections of 115 lines took 69 of Python and 61 of
# templates, because 78 % of the page's code computes what is drawn. A login node needs 170 ms to
# import it and 70 ms to compile them, and each text would still need `plain`.
_VOID = frozenset({"br", "hr", "img", "line", "meta", "polyline", "path", "rect"})


def el(tag: str, *children: Child, **attributes: str | float | None) -> Html:
    """Return an element; `class_` is `class`, `_` in a name becomes `-`, None is omitted."""
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{_escaped(str(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    if tag in _VOID and not children:
        return Html(f"<{tag}{written}/>")
    return Html(f"<{tag}{written}>{join(children)}</{tag}>")


def join(children: Iterable[Child]) -> Html:
    """Concatenate the children."""
    parts: list[str] = []
    for child in children:
        if isinstance(child, Html):
            parts.append(child)
        elif isinstance(child, str):
            parts.append(_escaped(child))
        elif child is not None:
            parts.append(join(child))
    return Html("".join(parts))


def _escaped(text: str) -> str:
    return html.escape(plain(text.replace("\r\n", "\n")))


def prose(text: str) -> list[Child]:
    """Convert `backticks` to code elements."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # an unclosed one
        return [text]
    return [el("code", piece) if number % 2 else piece for number, piece in enumerate(pieces)]


def table(header: Iterable[Child], rows: Iterable[Iterable[Child]], num_text: int = 1) -> Html:
    """Return a table; columns after `num_text` are numbers.

    A table that is too wide scrolls separately. On a phone each row becomes a card, for which every
    cell has its column's name as `data-label`.
    """
    columns = [(name, None if place < num_text else "num") for place, name in enumerate(header)]
    head = [el("th", name, class_=kind, scope="col") for name, kind in columns]
    body = []
    for row in rows:
        cells = []
        for cell, (name, kind) in zip(row, columns, strict=True):
            label = name if isinstance(name, str) else None
            cells.append(el("td", cell, class_=kind, data_label=label))
        body.append(el("tr", cells))
    return el("div", el("table", el("thead", el("tr", head)), el("tbody", body)), class_="scroll")


def titled_table(
    title: str, header: Iterable[Child], rows: Iterable[Iterable[Child]], num_text: int = 1
) -> Html:
    """Return a table below its title; see `table`."""
    return join([el("h3", title), table(header, rows, num_text)])


def definitions(pairs: Iterable[tuple[str, Child]]) -> Html:
    """Return names and values as a compact grid."""
    items = [el("div", el("dt", name), el("dd", value)) for name, value in pairs]
    return el("dl", items, class_="facts")


def bullets(lines: Iterable[str]) -> Html:
    """Return a list with a bullet for each line."""
    return el("ul", [el("li", line) for line in lines])
