"""The data of a run on the page: counts, rejects, lengths and images: PURE."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_jobs.report import words
from slurm_jobs.report.html.charts import count_bars
from slurm_jobs.report.html.markup import Html, definitions, el, table
from slurm_jobs.report.model.run import DataNumbers
from slurm_jobs.report.model.statistics import SUMMARY, Bin, DataStatistics
from slurm_jobs.report.model.values import Quantity
from slurm_jobs.report.words_statistics import bin_text


def data_section(numbers: DataNumbers) -> Html:
    """Return counts, rejects, lengths and images of one stage's rows."""
    part = words.of_slices(numbers.num_slices_reported, numbers.num_slices)
    more = f", {part}" if part else ""
    counts = {
        "rows": numbers.num_rows,
        "samples": numbers.num_samples,
        "rejected": numbers.num_rejects,
        "of these too long": numbers.num_too_long,
        "truncated": numbers.num_truncated,
        "tokens": numbers.num_tokens,
        "mean length": numbers.mean_tokens,
    }
    statistics = numbers.statistics
    share = None if statistics is None else statistics.supervised_share
    facts = [
        *((name, _count(count, more)) for name, count in counts.items()),
        ("shards", words.with_reason(numbers.num_shards)),
        ("slices that reported", f"{numbers.num_slices_reported} of {numbers.num_slices}"),
        *([] if share is None else [("supervised", f"{words.percent(share)} of all tokens")]),
        *((f"{name} time", words.seconds(s) + more) for name, s in numbers.work_s.items()),
    ]
    if numbers.stored_image:
        facts.append(("stored image", words.stored_image(numbers.stored_image)))
    return el(
        "section",
        el("h2", f"Data: {numbers.stage}"),
        definitions(facts),
        el("div", _rejects(numbers, more), _charts(numbers, more), class_="charts"),
        None if statistics is None else el("h3", "Distribution over all samples"),
        None if statistics is None else statistics_table(statistics),
        id="data",
    )


def _rejects(numbers: DataNumbers, more: str) -> Html | None:
    rejects = [(reason, float(count)) for reason, count in numbers.rejects[:20]]
    if not rejects:
        return None
    return el("div", el("h3", f"Rejects by reason{more}"), count_bars(rejects, "rejects"))


def _charts(numbers: DataNumbers, more: str) -> list[Html]:
    """Return charts of the finished data set, else the lengths that the slices counted."""
    if numbers.statistics is not None:
        return statistics_charts(numbers.statistics)
    lengths = [(f"to {most:,} tokens", float(count)) for most, count in numbers.length_counts]
    if not lengths:
        return []
    return [el("div", el("h3", f"Samples by length{more}"), count_bars(lengths, "lengths"))]


def _count(count: Quantity, more: str) -> str:
    """Return a count with its slices; a missing count has its reason instead."""
    return words.with_reason(count) + ("" if count.value is None else more)


def statistics_table(numbers: DataStatistics) -> Html:
    """Return a table of means, extremes and percentiles."""
    summaries = {
        "tokens a sample": numbers.num_tokens,
        "supervised tokens a sample": numbers.num_supervised_tokens,
        "stored images a sample": numbers.num_images,
        "pixels of a stored image": numbers.num_pixels,
    }
    rows = [
        (name, *(_number(summary[column]) for column in SUMMARY))
        for name, summary in summaries.items()
        if summary is not None
    ]
    return table(("", *SUMMARY), rows)


def _number(value: float) -> str:
    return words.count(value) if float(value).is_integer() else words.significant(value)


def length_bars(bins: Sequence[Bin], unit: str) -> Html:
    """Return bars of samples by length, or by number of images."""
    one = unit.removesuffix("s")
    rows = [(f"{bin_text(b)} {one if b[:2] == (1, 1) else unit}", float(b[2])) for b in bins]
    return count_bars(rows, f"samples by {unit}")


def statistics_charts(numbers: DataStatistics) -> list[Html]:
    """Return two charts to place next to each other."""
    by_images = length_bars(numbers.num_images_bins, "images")
    return [
        el("div", el("h3", "Samples by length"), length_bars(numbers.num_tokens_bins, "tokens")),
        el("div", el("h3", "Samples by stored images"), by_images),
    ]
