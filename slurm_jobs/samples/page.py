"""Samples as one HTML file that opens offline: pictures, tokens, problems. PURE.

The style is the report's. `visible` removes unprintable characters from all text of the data set,
then `report.markup` escapes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_jobs.report.html.data import statistics_charts, statistics_table
from slurm_jobs.report.html.markup import Html, el, join, table
from slurm_jobs.report.html.page import render_page
from slurm_jobs.report.model.statistics import DataStatistics
from slurm_jobs.samples.model import Image, ShownSample, TokenRun
from slurm_jobs.samples.visible import image_text, visible

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
    legend = el(
        "p",
        el("span", "supervised tokens", class_="t s"),
        " are what the model learns. Thin lines separate tokens; rest the pointer "
        "on one for its id and position.",
        class_="dim",
    )
    statistics = page.statistics
    return render_page(
        title=f"samples of {visible(page.folder)}",
        header=_header(page),
        sections=[
            _findings(page),
            el("section", el("h2", "Samples"), legend, [_sample(s) for s in page.samples])
            if page.samples
            else None,
            None if statistics is None else _statistics(statistics),
        ],
        version=page.version,
        more_style="samples.css",
    )


def problems_text(num: int) -> str:
    """Return `no problems`, `1 problem`, `1,234 problems`."""
    return f"{num:,} problem{'' if num == 1 else 's'}" if num else "no problems"


def _header(page: SamplesPage) -> Html:
    is_wrong = page.num_findings > 0
    part = "all" if page.num_audited == page.num_samples else f"the first {page.num_audited:,} of"
    found = f"{problems_text(page.num_findings)} found"
    pill = el("span", found, class_=f"pill p-{'failed' if is_wrong else 'completed'}")
    return el(
        "header",
        el("p", pill, f" {visible(page.folder)}"),
        el("h1", f"{len(page.samples)} of {page.num_samples:,} samples"),
        el("p", f"Labels, tokens and images of {part} {page.num_samples:,} samples were audited."),
    )


def _findings(page: SamplesPage) -> Html | None:
    if not page.findings:
        return None
    shown = page.findings[:MOST_FINDINGS]
    rows = [
        (el("span", f["key"], " ", el("span", f["shard"], class_="dim")), visible(f["message"]))
        for f in shown
    ]
    more = page.num_findings - len(shown)
    return el(
        "section",
        el("h2", "What is wrong"),
        table(("sample", "what"), rows, num_text=2),
        el("p", f"{more:,} more: slurm-jobs samples --json", class_="dim") if more else None,
    )


def _statistics(numbers: DataStatistics) -> Html:
    return el(
        "section",
        el("h2", f"All {numbers.num_samples:,} samples"),
        statistics_table(numbers),
        el("div", statistics_charts(numbers), class_="charts"),
    )


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
        _pictures(sample) if sample.pictures else None,
        el("div", [_token(run) for run in sample.runs], class_="tokens"),
        class_="sample",
    )


def _pictures(sample: ShownSample) -> Html:
    """Return each image of the row with all that is stored of it."""
    figures, start = [], 0
    for image in sample.images:
        end = start + len(image.stored)
        figures.append(_figure(image, sample, range(start, end)))
        start = end
    return el("div", figures, class_="pictures")


def _figure(image: Image, sample: ShownSample, places: range) -> Html:
    shown = []
    for place in places:
        picture = sample.pictures[place] if place < len(sample.pictures) else None
        if picture is None or picture.uri is None:
            why = "not stored" if picture is None else picture.problem or ""
            shown.append(el("p", visible(why), class_="note"))
        else:
            shown.append(el("img", src=picture.uri, alt=f"stored image {place}", loading="lazy"))
    return el(
        "figure",
        el("div", shown, class_="tiles-of"),
        el("figcaption", image_text(image), class_="cap"),
    )


def _token(run: TokenRun) -> Html:
    place = f"position {run.first:,}"
    if run.num > 1:
        place = f"positions {run.first:,} to {run.first + run.num - 1:,}"
    label = f", label {run.label}" if run.is_supervised and run.label != run.token_id else ""
    kinds = [("s", run.is_supervised), ("i", run.is_image), ("w", bool(label))]
    names = " ".join(["t", *(name for name, holds in kinds if holds)])
    text: list[str] = [_shown(run.text)]
    if run.num > 1:
        text.append(f" x {run.num}")
    return el("span", text, class_=names, title=f"id {run.token_id}, {place}{label}")


def _shown(text: str) -> Html:
    """Return the text with visible line breaks; a token that only begins a character is a dot."""
    if not text:
        return el("span", "·", class_="c")
    lines = text.split("\n")
    parts = [visible(line) for line in lines]
    brk = join([el("span", "↵", class_="c"), "\n"])
    return join([*(join([part, brk]) for part in parts[:-1]), parts[-1]])
