"""A run that was cut short, or still runs, is told as such."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from slurm_jobs.report.run_measures import made_of_planned


@pytest.mark.parametrize(
    ("planned", "expected"), [(1100, (239, 1100)), (239, None), (None, None), (0, None)]
)
def test_steps_that_are_lacking_are_told(planned: int | None, expected: Any) -> None:
    steps = np.zeros(39, [("step", "i8")])
    steps["step"] = np.arange(200, 239)
    file = SimpleNamespace(metadata={"num_steps": planned})
    attempt: Any = SimpleNamespace(ranks=[SimpleNamespace(steps=file)], records=[steps], longest=0)
    assert made_of_planned([attempt]) == expected
