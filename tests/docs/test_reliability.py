"""What docs/explanation/reliability.md names is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanation/reliability.md").read_text()
TESTS = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
FAULTS = (ROOT / "tests/end_to_end/faults/kinds.py").read_text()


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(test_\w+)`", PAGE))))
def test_a_test_that_is_named_exists(name: str) -> None:
    assert f"def {name}(" in TESTS


@pytest.mark.parametrize("name", sorted(set(re.findall(r"`(\w+)` in the table", PAGE))))
def test_a_fault_that_is_named_exists(name: str) -> None:
    assert f"def {name}(" in FAULTS


def test_every_complaint_of_the_neighbours_has_an_answer() -> None:
    rows = [line for line in PAGE.splitlines() if re.match(r"\| [\w-]+#\d+|\| datatrove", line)]
    assert len(rows) == 13
    assert all(len(row.split(" | ")) == 2 for row in rows)
