"""The memory of a slice does not grow with its bad images."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.slow


def measure(kind: str, *, num_bad: int, num_rows: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.pipeline.preprocess.memory", kind]
    options = ["--num-bad", str(num_bad), "--num-rows", str(num_rows)]
    done = subprocess.run([*command, *options], check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    assert sum(found["rejects_by_reason"].values()) == num_bad
    return found


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("truncated", "truncated_image"),
        ("ico", "too_many_pixels"),
        ("icns", "not_an_image"),
        ("png", "too_many_pixels"),
    ],
)
def test_memory_is_flat_in_the_number_of_rejects(kind: str, reason: str) -> None:
    few = measure(kind, num_bad=50, num_rows=100)
    many = measure(kind, num_bad=500, num_rows=550)
    assert set(many["rejects_by_reason"]) == {reason}
    assert many["peak_mb"] < 1.2 * few["peak_mb"]
    assert many["peak_mb"] < 1500
