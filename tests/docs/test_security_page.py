"""What security.md names as proof is there. (Files are looked up by test_docs.py.)"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/explanation/security.md").read_text()
NAMED = sorted(set(re.findall(r"`(test_\w+)`", PAGE)))
TESTS = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))


@pytest.mark.parametrize("name", NAMED)
def test_a_proof_that_is_named_exists(name: str) -> None:
    assert f"def {name}(" in TESTS


def test_every_boundary_has_a_proof_or_says_that_it_has_none() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| ") and ": `" in line]
    bare = [row for row in rows if "`test_" not in row and "none of its own" not in row]
    assert rows
    assert bare == []


def test_every_group_of_boundaries_says_what_is_not_protected() -> None:
    groups = PAGE.partition("## Boundaries")[2].partition("\n## ")[0].split("\n### ")[1:]
    assert [group.splitlines()[0] for group in groups if "**Not protected**" not in group] == []
