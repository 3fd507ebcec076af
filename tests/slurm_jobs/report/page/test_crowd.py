"""Areas of a large array: they show how many attempts were at work, and miss none."""

from __future__ import annotations

import re

import pytest

from slurm_jobs.report.page.crowd import crowd
from slurm_jobs.report.values.stage_model import Bar


def bar(start: float, end: float, outcome: str = "completed", **times: float) -> Bar:
    return Bar(
        stage="embed", slice_index=0, attempt=1, job_id="12_0", node="n1", start_unix_s=start,
        end_unix_s=end, outcome=outcome, reason="",
        **{"eligible_unix_s": None, **times},
    )  # fmt: skip


def boxes_of(bars: list[Bar], kind: str) -> list[tuple[float, ...]]:
    """Return left, top, width and height of each box of an area, in bins and in percent."""
    html = str(crowd(bars, (0.0, 160.0), "areas"))
    (path,) = re.findall(rf'd="([^"]*)" class="o-{kind}"', html)
    found = re.findall(r"M(\d+),([\d.]+)h(\d+)v([\d.]+)", path)
    return [tuple(map(float, box)) for box in found]


def test_the_height_is_the_number_of_attempts_at_work():
    bars = [bar(0, 160), bar(0, 160), bar(40, 80), bar(40, 80)]
    assert boxes_of(bars, "completed") == [(0, 50, 40, 50), (40, 0, 40, 100), (80, 50, 80, 50)]


def test_an_attempt_shorter_than_a_bin_counts_for_its_share_of_it():
    bars = [bar(0, 160), bar(10.0, 10.5)]
    peak = [box for box in boxes_of(bars, "completed") if box[3] == 100]
    assert peak == [(10, 0, 1, 100)]
    assert boxes_of(bars, "completed")[0][3] == pytest.approx(100 / 1.5, abs=0.1)


@pytest.mark.parametrize("length_s", [0.0, 0.02, 3.0])
def test_a_short_failure_among_hundreds_of_attempts_is_drawn(length_s):
    bars = [bar(0, 160) for _ in range(500)] + [bar(70.0, 70.0 + length_s, "failed")]
    boxes = boxes_of(bars, "failed")
    assert boxes[0][0] == 70
    assert all(box[3] >= 3.8 for box in boxes)


def test_waits_and_start_ups_are_stacked_above_the_attempts():
    bars = [bar(40, 160, eligible_unix_s=0, job_start_unix_s=20) for _ in range(2)]
    assert boxes_of(bars, "queued") == [(0, 0, 20, 100)]
    assert boxes_of(bars, "startup") == [(20, 0, 20, 100)]
    assert boxes_of(bars, "completed") == [(40, 0, 120, 100)]
