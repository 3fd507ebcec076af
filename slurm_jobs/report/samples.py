"""Samples as an HTML page and in the terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.text import Text

from slurm_jobs.report.markup import Child, Html, el, render_page, table
from slurm_jobs.report.page.data_section import statistics_charts, statistics_table
from slurm_jobs.report.values.data_statistics import DataStatistics

# Values of the answer of `pipeline.tools.show_samples`.


IGNORED_LABEL = -100
"""Label of a token that is not learned."""

Size = tuple[int, int]
"""Width and height in pixels."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """Stored image as a page has it."""

    uri: str | None
    problem: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """Image of a row."""

    original: Size
    """Size after applying the EXIF orientation."""
    stored: tuple[Size, ...]
    """Sizes of the arrays that were stored for it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenRun:
    """Consecutive tokens that are shown as one: a single token, or equal tokens of an image."""

    first: int
    """Position of the first token, from 0."""
    token_id: int
    label: int
    text: str
    """Text of one of the tokens."""
    num: int
    is_image: bool

    @property
    def is_supervised(self) -> bool:
        """True if the loss includes it."""
        return self.label != IGNORED_LABEL


@dataclass(frozen=True, kw_only=True, slots=True)
class ShownSample:
    """One sample; fields of an unreadable sample are empty."""

    key: str
    shard: str
    problem: str | None
    row: int
    source: str
    is_truncated: bool
    images: tuple[Image, ...]
    runs: tuple[TokenRun, ...]
    pictures: tuple[Picture, ...]
    """All stored images, in order; empty if none were requested."""

    @property
    def num_tokens(self) -> int:
        """Number of tokens, image tokens included."""
        return sum(run.num for run in self.runs)

    @property
    def num_supervised_tokens(self) -> int:
        """Number of tokens with a label."""
        return sum(run.num for run in self.runs if run.is_supervised)

    @property
    def num_image_tokens(self) -> int:
        """Number of tokens that represent images."""
        return sum(run.num for run in self.runs if run.is_image)


def read_sample(values: Mapping[str, Any], image_token_id: int) -> ShownSample:
    """Convert a sample from the JSON of `pipeline.tools`."""
    ids, labels = values.get("input_ids", ()), values.get("labels", ())
    pieces = values.get("pieces", ())

    def kind(position: int) -> tuple[int, int]:
        """Return equal keys for tokens of one run; a token that represents no image is a run."""
        is_image = ids[position] == image_token_id
        return (-1, labels[position]) if is_image else (position, 0)

    runs = []
    for _, group in groupby(range(len(ids)), key=kind):
        first, *others = group
        run = TokenRun(
            first=first,
            token_id=ids[first],
            label=labels[first],
            text=pieces[first],
            num=1 + len(others),
            is_image=ids[first] == image_token_id,
        )
        runs.append(run)
    images = [
        Image(original=tuple(image["original"]), stored=tuple(map(tuple, image["stored"])))
        for image in values.get("images", ())
    ]
    return ShownSample(
        key=values["key"],
        shard=values["shard"],
        problem=values["problem"],
        row=values.get("row", int(values["key"])),
        source=values.get("source", ""),
        is_truncated=values.get("is_truncated", False),
        images=tuple(images),
        runs=tuple(runs),
        pictures=tuple(Picture(**picture) for picture in values.get("pictures", ())),
    )


# Untrusted text, made safe to display.
#
# The text of a data set comes from its manifest. It must not move a terminal's cursor, set its
# title, change the direction of writing or hide words: such characters are written as their codes.


_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Control, format (bidirectional marks, joiners), surrogates, unassigned; line separators."""


def visible(text: str) -> str:
    r"""Replace every invisible character by its code: `\x1b`, `\u202e`."""
    characters = []
    for char in text:
        code = ord(char)
        if not is_hidden(char):
            shown = char
        elif char in _ESCAPES:
            shown = _ESCAPES[char]
        elif code < 0x100:
            shown = f"\\x{code:02x}"
        else:
            shown = f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
        characters.append(shown)
    return "".join(characters)


def is_hidden(char: str) -> bool:
    """Check whether `visible` replaces it."""
    return unicodedata.category(char) in _HIDDEN_CATEGORIES


def image_text(image: Image) -> str:
    """Return the sizes of an image: `640x480 stored as 4 of 384x384, 384x288`."""
    counts: dict[str, int] = {}
    for width, height in image.stored:
        size = f"{width}x{height}"
        counts[size] = counts.get(size, 0) + 1
    stored = ", ".join(size if num == 1 else f"{num} of {size}" for size, num in counts.items())
    return f"{image.original[0]}x{image.original[1]} stored as {stored or 'nothing'}"


# Samples as one HTML file that opens offline: pictures, tokens, problems.
#
# The style is the report's. `visible` removes unprintable characters from all text of the data
# set, then `report.markup` escapes it.


MOST_FINDINGS = 200
"""Limit on the page; --json has more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplesPage:
    """Content of the page."""

    folder: str
    version: str
    num_samples: int
    num_audited: int
    num_findings: int
    findings: Sequence[Mapping[str, Any]]
    statistics: DataStatistics | None
    samples: Sequence[ShownSample]


def render_samples(page: SamplesPage) -> str:
    """Return the whole page."""
    count_text = f"{problems_text(page.num_findings)} found"
    pill = el("span", count_text, class_=f"pill p-{'failed' if page.num_findings else 'completed'}")
    part = "all" if page.num_audited == page.num_samples else f"the first {page.num_audited:,} of"
    header = el(
        "header",
        el("p", pill, f" {visible(page.folder)}"),
        el("h1", f"{len(page.samples)} of {page.num_samples:,} samples"),
        el("p", f"Labels, tokens and images of {part} {page.num_samples:,} samples were audited."),
    )
    sections = []
    if page.findings:
        shown = page.findings[:MOST_FINDINGS]
        rows = [
            (el("span", f["key"], " ", el("span", f["shard"], class_="dim")), visible(f["message"]))
            for f in shown
        ]
        more = page.num_findings - len(shown)
        findings = el(
            "section",
            el("h2", "What is wrong"),
            table(("sample", "what"), rows, num_text=2),
            el("p", f"{more:,} more: slurm-jobs samples --json", class_="dim") if more else None,
        )
        sections.append(findings)
    if page.samples:
        legend = el(
            "p",
            el("span", "supervised tokens", class_="t s"),
            " are what the model learns. Thin lines separate tokens; rest the pointer "
            "on one for its id and position.",
            class_="dim",
        )
        articles = [_sample(s) for s in page.samples]
        sections.append(el("section", el("h2", "Samples"), legend, articles))
    if page.statistics is not None:
        statistics = el(
            "section",
            el("h2", f"All {page.statistics.num_samples:,} samples"),
            statistics_table(page.statistics),
            el("div", statistics_charts(page.statistics), class_="charts"),
        )
        sections.append(statistics)
    return render_page(
        title=f"samples of {visible(page.folder)}",
        header=header,
        sections=sections,
        version=page.version,
        more_style="samples.css",
    )


def problems_text(num: int) -> str:
    """Return `no problems`, `1 problem`, `1,234 problems`."""
    return f"{num:,} problem{'' if num == 1 else 's'}" if num else "no problems"


def _sample(sample: ShownSample) -> Html:
    title = el("h3", f"{sample.key} ", el("span", visible(sample.source), class_="dim"))
    if sample.problem is not None:
        problem = el("p", visible(sample.problem), class_="note")
        return el("article", title, el("p", sample.shard, class_="dim"), problem, class_="sample")
    facts = (
        f"{sample.num_tokens:,} tokens{', cut' if sample.is_truncated else ''}, "
        f"{sample.num_supervised_tokens:,} supervised, {sample.num_image_tokens:,} of images; "
        f"row {sample.row:,}, {sample.shard}"
    )
    return el(
        "article",
        title,
        el("p", facts, class_="dim"),
        el("div", _figures(sample), class_="pictures") if sample.pictures else None,
        el("div", [_token(run) for run in sample.runs], class_="tokens"),
        class_="sample",
    )


def _figures(sample: ShownSample) -> Iterator[Html]:
    """Yield each image of the row with all that is stored of it."""
    place = 0
    for image in sample.images:
        shown = []
        for _ in image.stored:
            picture = sample.pictures[place] if place < len(sample.pictures) else None
            if picture is not None and picture.uri is not None:
                alt = f"stored image {place}"
                shown.append(el("img", src=picture.uri, alt=alt, loading="lazy"))
            else:
                why = "not stored" if picture is None else picture.problem or ""
                shown.append(el("p", visible(why), class_="note"))
            place += 1
        caption = el("figcaption", image_text(image), class_="cap")
        yield el("figure", el("div", shown, class_="tiles-of"), caption)


def _token(run: TokenRun) -> Html:
    place = f"position {run.first:,}"
    if run.num > 1:
        place = f"positions {run.first:,} to {run.first + run.num - 1:,}"
    label = f", label {run.label}" if run.is_supervised and run.label != run.token_id else ""
    kinds = [("t", True), ("s", run.is_supervised), ("i", run.is_image), ("w", bool(label))]
    line_break = [el("span", "↵", class_="c"), "\n"]
    first, *others = run.text.split("\n")
    text: list[Child] = [visible(first), *([line_break, visible(line)] for line in others)]
    if not run.text:  # a token that only begins a character
        text = [el("span", "·", class_="c")]
    if run.num > 1:
        text.append(f" x {run.num}")
    return el(
        "span",
        text,
        class_=" ".join(name for name, holds in kinds if holds),
        title=f"id {run.token_id}, {place}{label}",
    )


# Samples in a terminal: their text, with supervised tokens in colour or between marks.


_MARKS = (("[[[", "]]]"), ("{{{", "}}}"), (">>>", "<<<"), ("(((", ")))"))
_SUPERVISED = "bold green"
_WRONG = "bold red"
_IMAGE = "cyan"
_ESCAPE = "dim"
_INDENT = 2


def print_samples(samples: Sequence[ShownSample], console: Console) -> None:
    """Print the samples, each after an empty line.

    A terminal with colours shows supervised tokens in green. Without colours they are between two
    marks that occur in none of the texts. Lines are wrapped only on a terminal.
    """
    has_colours = console.color_system is not None and not console.no_color
    marks = None if has_colours else choose_marks(samples)
    if samples:
        how = "in green" if marks is None else f"between {marks[0]} and {marks[1]}"
        _print(console, Text(f"supervised tokens are {how}", style="dim"))
    for sample in samples:
        console.print()
        for line in _head(sample):
            _print(console, line)
        for line in text_lines(sample.runs, marks):
            _print(console, line, indent=_INDENT)


def _print(console: Console, line: Text, *, indent: int = 0) -> None:
    """Print a line; on a terminal, wrap it to the width and indent it as a whole."""
    wrapped = [line]
    if console.is_terminal:
        wrapped = list(line.wrap(console, max(20, console.width - indent), tab_size=1))
    for part in wrapped:
        row = Text(" " * indent)
        row.append_text(part)
        row.rstrip()
        console.print(row, soft_wrap=True, highlight=False)


def choose_marks(samples: Iterable[ShownSample]) -> tuple[str, str]:
    """Return two marks that no sample contains; the first ones, if all are used."""
    texts = ["".join(run.text for run in sample.runs) for sample in samples]
    for marks in _MARKS:
        if not any(mark in text for mark in marks for text in texts):
            return marks
    return _MARKS[0]


def _head(sample: ShownSample) -> list[Text]:
    title = Text(f"sample {sample.key}", style="bold")
    title.append(f"  {visible(sample.source)}  ({sample.shard})", style="not bold")
    if sample.problem is not None:
        return [title, Text(f"  {visible(sample.problem)}", style=_WRONG)]
    images = "; ".join(image_text(image) for image in sample.images)
    num = len(sample.images)
    counts = (
        f"  {sample.num_tokens:,} tokens, {sample.num_supervised_tokens:,} supervised, "
        f"{sample.num_image_tokens:,} of images{', cut' if sample.is_truncated else ''}; "
        f"{num or 'no'} image{'' if num == 1 else 's'}{': ' + images if images else ''}"
    )
    return [title, Text(counts, style="dim")]


def text_lines(runs: Sequence[TokenRun], marks: tuple[str, str] | None) -> list[Text]:
    """Return the sample's text line by line; `marks` replace colours if given."""
    lines = [Text()]
    was_supervised = False
    for run in runs:
        if marks is not None and run.is_supervised != was_supervised:
            lines[-1].append(marks[0] if run.is_supervised else marks[1])
        was_supervised = run.is_supervised
        style = _SUPERVISED if run.is_supervised else ""
        if run.is_image:
            style = _WRONG if run.is_supervised else _IMAGE
            pieces = [f"({run.text} x {run.num})" if run.num > 1 else run.text]
        else:
            *whole, last = run.text.split("\n")
            pieces = [*(f"{line}\n" for line in whole), last]
        for number, piece in enumerate(pieces):
            if number:
                lines.append(Text())
            for is_code, chars in groupby(piece, key=is_hidden):
                shown = visible("".join(chars))
                lines[-1].append(shown, style=f"{style} {_ESCAPE}".strip() if is_code else style)
    if marks is not None and was_supervised:
        lines[-1].append(marks[1])
    return lines if lines[-1].plain else lines[:-1]
