"""Nodes of a Slurm host list are counted."""

from __future__ import annotations

import pytest

from slurm_jobs.nodes.probe.host_list_size import num_named


@pytest.mark.parametrize(
    ("text", "number"),
    [("n1", 1), ("n1,n2", 2), ("gpu[01-04,7],fat1", 6), ("r[1-2]n[1-3]", 6), ("a-b.c_d", 1)],
)
def test_a_host_list_is_counted(text, number) -> None:
    assert num_named(text) == number


@pytest.mark.parametrize("text", ["", "n[1-", "n[4-1]", "n1,,n2", "n 1", "n[a]"])
def test_what_is_no_host_list_is_refused(text) -> None:
    with pytest.raises(ValueError, match=r"is neither|is not"):
        num_named(text)
