from __future__ import annotations

import re


def tile(report, label):
    return next(t for t in report.tiles if t.label == label)


def test_the_data_wait_tile_is_the_quotient_that_stands_under_it(report_of):
    """Steps with a checkpoint make the mean step longer than the median one."""
    wait = tile(report_of(data_wait_s=0.1), "data wait")
    mean_wait, mean_step = map(float, re.findall(r"([\d.]+) m?s", wait.note))
    assert wait.value == f"{100 * mean_wait / mean_step:.0f} %"
    assert wait.note.endswith("a mean step")


def test_tiles_agree_on_why_a_single_step_has_no_rate(report_of):
    report = report_of(num_steps=1, stopped_at=None)
    notes = {tile(report, label).note for label in ("tokens/s", "data wait")}
    assert notes == {"no step is left after the warm-up"}
