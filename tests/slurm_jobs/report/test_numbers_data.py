from __future__ import annotations

import pytest

from slurm_jobs.report import words


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
    assert words.stored_image(price) == "86.9 KiB, read in 0.8 ms, 39.5 dB"
    assert words.stored_image({"bytes": 512, "decode_ms": 2.345}) == (
        "512 B, read in 2.3 ms, every pixel kept"
    )


def test_shards_come_from_the_stage_that_consolidates(report_of):
    assert report_of().data[0].num_shards.value == 8
