from __future__ import annotations

import io

import pytest
from rich.console import Console

from slurm_jobs.report.html import render_html
from slurm_jobs.report.report_model import read_statistics, report_to_json
from slurm_jobs.report.sentences import statistics_lines
from slurm_jobs.report.terminal import print_report
from slurm_jobs.shared import units
from tests.slurm_jobs.report.fabricate_statistics import STATISTICS


def test_counts_of_all_slices_are_added_up(report_of):
    data = report_of().data[0]
    assert data.num_rows.value == 10_000
    assert data.num_samples.value == 9_984
    assert data.num_rejects.value == 16
    assert data.rejects == (("truncated_image", 10), ("too_long", 4), ("not_an_image", 2))
    assert data.length_counts[0] == (16, 320)
    assert data.work_s["decode"] == pytest.approx(842.0)
    assert data.mean_tokens.value == pytest.approx(364_006 / 9_984)


def test_stored_image_is_the_mean_over_the_slices_that_measured(report_of):
    price = report_of().data[0].stored_image
    assert price == pytest.approx({"bytes": 89_001.5, "decode_ms": 0.8, "psnr_db": 39.5})
    assert units.stored_image(price) == "86.9 KiB, read in 0.8 ms, 39.5 dB"
    assert units.stored_image({"bytes": 512, "decode_ms": 2.345}) == (
        "512 B, read in 2.3 ms, every pixel kept"
    )


def test_shards_come_from_the_stage_that_consolidates(report_of):
    assert report_of().data[0].num_shards.value == 8


def test_statistics_of_the_whole_set_come_from_the_stage_that_consolidates(report_of):
    statistics = report_of().data[0].statistics
    assert statistics.num_samples == 9_984
    assert statistics.num_tokens["p95"] == 80
    assert statistics.num_tokens_bins == ((9, 63, 9000), (64, 128, 984))
    assert statistics.image_size == (384, 384)


@pytest.mark.parametrize(
    "values",
    [None, {}, {**STATISTICS, "num_tokens": None}, {**STATISTICS, "num_tokens_bins": [[1, 2]]}],
)
def test_statistics_of_another_version_are_none(values):
    assert read_statistics(values) is None


def test_text_alone_has_no_pixels():
    text = read_statistics({**STATISTICS, "num_pixels": None, "image_size": None})
    assert text.num_pixels is None
    assert not any("pixels" in line for line in statistics_lines(text))
    native = read_statistics({**STATISTICS, "image_size": None})
    assert statistics_lines(native)[-1] == (
        "pixels an image: median 147,456, p95 147,456, max 147,456"
    )


def test_terminal_page_and_json_show_the_statistics(report_of):
    report = report_of()
    console = Console(width=100, record=True, file=io.StringIO())
    print_report(report, console)
    text = console.export_text()
    assert "tokens a sample: median 33, p95 80, max 128; 31 % supervised" in text
    assert "images a sample: mean 1.25, max 4; stored at 384x384" in text
    page = render_html(report)
    assert "64 to 128 tokens" in page
    assert ">1 image<" in page
    assert "31 % of all tokens" in page
    assert "supervised tokens a sample" in page
    assert "to 16 tokens" not in page  # the slices' own counts of lengths
    values = report_to_json(report)["data"][0]["statistics"]
    assert values["num_images_bins"] == [[1, 1, 9900], [2, 4, 84]]
