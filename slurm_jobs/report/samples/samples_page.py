"""Samples as one HTML file that opens offline: pictures, tokens, problems.

The style is the report's. `visible` removes unprintable characters from all text of the data set,
then `report.page.markup` escapes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_jobs.report.page.markup import Child, Html, el, table
from slurm_jobs.report.page.page_file import render_page
from slurm_jobs.report.page.sections.data_section import statistics_charts, statistics_table
from slurm_jobs.report.samples.sample_values import ShownSample, TokenRun
from slurm_jobs.report.samples.visible_text import image_text, visible
from slurm_jobs.report.values.data_statistics import DataStatistics

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
