"""The figures of statistics.md are those that `make bench` wrote into performance.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs/explanation"
ROWS = re.findall(r"^\| (.+) \| ([\d.]+) \|$", (DOCS / "statistics.md").read_text(), re.MULTILINE)
MEASURED = (DOCS / "performance.md").read_text()


def test_the_page_has_its_tables() -> None:
    assert len(ROWS) == 15


@pytest.mark.parametrize(("case", "share"), ROWS)
def test_a_share_is_the_one_that_was_measured(case: str, share: str) -> None:
    """Ours is behind its unit, a peer's behind its name."""
    assert f"| {case} | share | {share} |" in MEASURED or f"| {case} | {share} |" in MEASURED
