"""Statistics of a data set in lines: what it does not have has no line."""

from __future__ import annotations

from dataclasses import replace

from slurm_jobs.base.quantities import known
from slurm_jobs.report.text.data_lines import counts_of_rows, statistics_lines
from slurm_jobs.report.values.data_statistics import read_statistics
from tests.slurm_jobs.report.fabricate_run import STATISTICS


def test_text_alone_has_no_pixels():
    text = read_statistics({**STATISTICS, "num_pixels": None, "image_size": None})
    assert text.num_pixels is None
    assert not any("pixels" in line for line in statistics_lines(text))
    native = read_statistics({**STATISTICS, "image_size": None})
    assert statistics_lines(native)[-1] == (
        "pixels an image: median 147,456, p95 147,456, max 147,456"
    )


def test_data_without_images_has_no_size_of_images():
    none = dict.fromkeys(STATISTICS["num_images"], 0)
    lines = statistics_lines(read_statistics({**STATISTICS, "num_images": none}))
    assert lines[-1] == "images a sample: mean 0, max 0"


def test_held_out_rows_are_counted_where_there_are_some(report_of):
    data = report_of(num_steps=1, stopped_at=None).data[0]
    assert "held out" not in counts_of_rows(data)
    with_some = replace(data, num_held_out=known(7, "count"))
    assert counts_of_rows(with_some)["held out"].value == 7
