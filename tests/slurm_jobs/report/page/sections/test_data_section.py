"""Data of a run on its page: the cost of a stored image, and statistics."""

from __future__ import annotations

from dataclasses import replace

from slurm_jobs.base import units
from slurm_jobs.report.page.report_page import render_html
from tests.slurm_jobs.report.builders import report_from, with_stage


def test_the_cost_of_a_stored_image_is_shown(report_of):
    assert "86.9 KiB, read in 0.8 ms, 39.5 dB" in render_html(report_of())
    assert units.stored_image({"bytes": 512, "decode_ms": 2.345}) == (
        "512 B, read in 2.3 ms, lossless"
    )


def test_the_page_shows_the_statistics(report_of, inputs_of):
    page = render_html(report_of())
    assert "64 to 128 tokens" in page
    assert ">1 image<" in page
    assert "31 % of all tokens" in page
    assert "supervised tokens a sample" in page
    counted = "to 16 tokens"  # the slices' own counts of lengths
    assert counted not in page
    bare = with_stage(inputs_of(), "consolidate", completions=lambda c: replace(c, result={}))
    assert counted in render_html(report_from(bare))
