"""Checks as text: the worst comes first, and what is well is named at the end."""

from __future__ import annotations

from slurm_jobs.nodes.doctor.check_text import lines_of
from tests.slurm_jobs.cli.nodes.found_checks import OK, PROBLEM, UNKNOWN, WARNING


def test_the_worst_comes_first_and_what_is_well_is_named_at_the_end() -> None:
    lines = lines_of([OK, UNKNOWN, WARNING, PROBLEM], 80)
    heads = [line[:11].strip() for line in lines if line[:1].strip()]
    assert heads[:4] == ["PROBLEM", "warning", "not known", "ok"]
    assert lines[0].startswith("PROBLEM    torch (v1, v2): torch 2.15 has no code")
    assert "ok         requeue" in lines
    assert lines[-1] == "1 problem, 1 warning, 1 unknown, 1 ok"
    assert max(map(len, lines)) <= 80


def test_all_says_in_words_what_is_well() -> None:
    assert "ok         requeue: jobs may be requeued" in lines_of([OK], 80, in_words=True)
    assert lines_of([OK], 80)[-1] == "no problems, 1 ok"
