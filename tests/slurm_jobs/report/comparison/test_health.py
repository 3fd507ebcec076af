"""What makes runs no sound base to measure scaling against."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from slurm_jobs.report.compare import HELD_SHARE, problems


def _run(share_held: float | None) -> Any:
    return SimpleNamespace(
        run_id="r",
        num_allocator_retries=0,
        memory_capacity_bytes=None,
        memory_peak_bytes=0.0,
        token_stretches=(),
        start_share=None,
        cards=(),
        cpus=(),
        share_held=share_held,
    )


def test_a_base_whose_cores_others_held_is_not_sound() -> None:
    assert problems([_run(0.42)], []) == (
        "processes of others held 42 % of the cores that it had asked for (r)",
    )


@pytest.mark.parametrize("share_held", [None, 0.0, HELD_SHARE - 0.01])
def test_a_base_that_had_its_cores_is_sound(share_held: float | None) -> None:
    assert problems([_run(share_held)], []) == ()
