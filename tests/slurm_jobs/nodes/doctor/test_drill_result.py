"""Whether a drill is taken to have worked, and where it failed if not."""

from __future__ import annotations

from typing import Any

import pytest

from slurm_jobs.nodes.doctor.doctor_check import Check
from slurm_jobs.nodes.doctor.drill_result import drill_check

STARTED = {"started": {"attempt": 1, "unix_s": 100.0, "node": "n1"}, "count": 0}
ASKED = {**STARTED, "count": 60, "asked_unix_s": 106.0, "by": "SIGUSR2"}
SAVED = {**ASKED, "saved_unix_s": 106.5}
BACK = {**SAVED, "count": 61, "returned": {"attempt": 2, "unix_s": 126.5, "node": "n2"}}


def judged(*counters: dict[str, Any], **changes: Any) -> Check:
    values: dict[str, Any] = {"status": "completed", "reason": "", "refusal": None}
    values["logs_command"] = "slurm-jobs logs runs/x drill"
    return drill_check(counters, **{**values, **changes})


def test_a_drill_that_came_back_says_how_long_each_part_took() -> None:
    check = judged(BACK, BACK)
    assert check.standing == "ok"
    for part in ("6.00 s after the start", "60 counts", "500 ms", "20.0 s later on n2", "2 ranks"):
        assert part in check.told, check.told


@pytest.mark.parametrize(
    ("counters", "changes", "standing", "said"),
    [
        (({},), {"status": "failed", "reason": "no Python"}, "problem", "before it counted"),
        (({},), {"gave_up": "Resources; cancelled"}, "unknown", "did not start"),
        ((STARTED,), {"status": "failed"}, "problem", "was not asked to stop"),
        ((ASKED,), {"status": "failed"}, "problem", "killed before"),
        ((SAVED,), {"status": "failed"}, "problem", "then the job failed"),
        ((SAVED, STARTED), {"status": "failed"}, "problem", "was not asked to stop"),
        ((SAVED,), {"gave_up": "BeginTime; cancelled"}, "unknown", "had not started again"),
        (
            (SAVED,),
            {
                "status": "failed",
                "refusal": "not requeued: scontrol is missing on this node",
            },
            "problem",
            "not requeued: scontrol is missing",
        ),
        (({**SAVED, "by": "SIGTERM"},), {"status": "failed"}, "problem", "only SIGTERM"),
        ((BACK,), {"status": "failed", "reason": "gone"}, "problem", "came back and then failed"),
    ],
)
def test_the_part_that_failed_is_named(
    counters: tuple[dict[str, Any], ...], changes: dict[str, Any], standing: str, said: str
) -> None:
    check = judged(*counters, **changes)
    assert check.standing == standing
    assert said in check.told
    assert check.remedy
