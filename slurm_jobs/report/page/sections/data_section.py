"""Data of a run: counts, rejects, lengths and images. PURE."""

from __future__ import annotations

from collections.abc import Sequence

from slurm_jobs.base import units
from slurm_jobs.formats.manifests.row_notes import note_name
from slurm_jobs.report.page.charts import count_bars
from slurm_jobs.report.page.markup import Html, definitions, el, table, titled_table
from slurm_jobs.report.text import data_lines
from slurm_jobs.report.values.data_model import DataNumbers
from slurm_jobs.report.values.data_statistics import SUMMARY, Bin, DataStatistics


def data_section(numbers: DataNumbers) -> Html:
    """Return counts, rejects, lengths and images of one stage's rows."""
    part = units.of_slices(numbers.num_slices_reported, numbers.num_slices)
    more = f", {part}" if part else ""
    facts = []
    for name, count in data_lines.counts_of_rows(numbers).items():
        # A missing count has its reason instead of its slices.
        slices = "" if count.value is None else more
        facts.append((name, f"{units.with_reason(count)}{slices}"))
    facts += [
        ("shards", units.with_reason(numbers.num_shards)),
        ("slices that reported", f"{numbers.num_slices_reported} of {numbers.num_slices}"),
    ]
    facts += [
        (note_name(note), units.number_of("row", count) + more) for note, count in numbers.row_notes
    ]
    statistics = numbers.statistics
    if statistics is not None:
        share = units.percent(statistics.supervised_share)
        facts.append(("supervised", f"{share} of all tokens"))
    facts += [(f"{name} time", units.seconds(s) + more) for name, s in numbers.work_s.items()]
    if numbers.stored_image:
        facts.append(("stored image", units.stored_image(numbers.stored_image)))
    charts = []
    if rejects := [(reason, float(count)) for reason, count in numbers.rejects[:20]]:
        title = el("h3", f"Rejects by reason{more}")
        charts.append(el("div", title, count_bars(rejects, "rejects")))
    lengths = [(f"to {most:,} tokens", float(count)) for most, count in numbers.length_counts]
    distribution = None
    if statistics is not None:  # of the finished data set
        charts += statistics_charts(statistics)
        distribution = [el("h3", "Distribution over all samples"), statistics_table(statistics)]
    elif lengths:
        title = el("h3", f"Samples by length{more}")
        charts.append(el("div", title, count_bars(lengths, "lengths")))
    mixture = None
    if numbers.mixture:
        rows = data_lines.mixture_rows(numbers.mixture)
        mixture = titled_table("Data set by manifest", data_lines.MIXTURE_COLUMNS, rows)
    return el(
        "section",
        el("h2", f"Data: {numbers.stage}"),
        definitions(facts),
        mixture,
        el("div", charts, class_="charts"),
        distribution,
        id="data",
    )


def statistics_table(numbers: DataStatistics) -> Html:
    """Return a table of means, extremes and percentiles."""
    summaries = {
        "tokens a sample": numbers.num_tokens,
        "supervised tokens a sample": numbers.num_supervised_tokens,
        "stored images a sample": numbers.num_images,
        "pixels of a stored image": numbers.num_pixels,
    }
    rows = []
    for name, summary in summaries.items():
        if summary is not None:
            values = [summary[column] for column in SUMMARY]
            cells = [
                units.count(v) if float(v).is_integer() else units.significant(v) for v in values
            ]
            rows.append((name, *cells))
    return table(("", *SUMMARY), rows)


def statistics_charts(numbers: DataStatistics) -> list[Html]:
    """Return two charts to place next to each other."""

    def chart(title: str, bins: Sequence[Bin], unit: str) -> Html:
        singular = unit.removesuffix("s")
        rows = [
            (f"{data_lines.bin_text(b)} {singular if b[:2] == (1, 1) else unit}", float(b[2]))
            for b in bins
        ]
        return el("div", el("h3", title), count_bars(rows, f"samples by {unit}"))

    return [
        chart("Samples by length", numbers.num_tokens_bins, "tokens"),
        chart("Samples by stored images", numbers.num_images_bins, "images"),
    ]
