"""Every regular expression reads a character of a text a bounded number of times.

Texts come from rows, logs, specs and records that others wrote. A pattern that goes back over what
it has read takes hours for a line of some hundred thousand characters.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import pipeline
import slurm_jobs
from tests.regex_work import TooManyStepsError, attacks, count_steps

NUM_CHARACTERS = 400
MOST_STEPS = 100
"""Steps for each character: some patterns try 60 words. A quadratic one needs 200 and more."""
ROOT = Path(slurm_jobs.__file__).parents[1]
METHODS = {"findall": "sub", "finditer": "sub", "split": "sub", "subn": "sub"}
METHODS |= {method: method for method in ("match", "fullmatch", "search", "sub")}
Used = tuple[re.Pattern[str], str]
"""A pattern and the method by which it is used."""


def sources() -> Iterator[ast.Module]:
    for package in (slurm_jobs, pipeline):
        for path in sorted(Path(package.__file__).parent.rglob("*.py")):
            yield ast.parse(path.read_text())


def patterns_in(value: Any, depth: int = 0) -> Iterator[re.Pattern[str]]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth < 3 and isinstance(value, (list, tuple, set, frozenset, dict)):
        parts = value.values() if isinstance(value, dict) else value
        for part in parts:
            yield from patterns_in(part, depth + 1)


def named_patterns() -> dict[str, list[re.Pattern[str]]]:
    """The patterns of all modules, by the names that hold them."""
    patterns: dict[str, list[re.Pattern[str]]] = {}
    for package in (slurm_jobs, pipeline):
        for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not info.name.endswith("__main__"):
                for name, value in vars(importlib.import_module(info.name)).items():
                    patterns.setdefault(name, []).extend(patterns_in(value))
    return {name: found for name, found in patterns.items() if found}


def used() -> dict[str, Used]:
    """Patterns and methods by a text that names both; patterns in tables match as a whole."""
    methods: dict[str, set[str]] = {}
    uses: list[Used] = []
    for tree in sources():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Attribute) or node.attr not in METHODS:
                continue
            holder = node.value.value if isinstance(node.value, ast.Subscript) else node.value
            if isinstance(holder, ast.Name):
                methods.setdefault(holder.id, set()).add(METHODS[node.attr])
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                is_re = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
                constant = node.args[0] if node.args else None
                if is_re and node.func.attr in METHODS and isinstance(constant, ast.Constant):
                    uses.append((re.compile(constant.value), METHODS[node.func.attr]))
    for name, found in named_patterns().items():
        for method in methods.get(name, {"fullmatch"}):
            uses += [(pattern, method) for pattern in found]
    return {f"{method} {pattern.pattern[:40]} {len(pattern.pattern)}": (pattern, method)
            for pattern, method in uses if isinstance(pattern.pattern, str)}  # fmt: skip


def bound_problem(pattern: re.Pattern[str], method: str) -> str | None:
    for text in attacks(pattern, NUM_CHARACTERS):
        try:
            count_steps(pattern, text, method, MOST_STEPS * NUM_CHARACTERS)
        except TooManyStepsError:
            return f"{method} of {pattern.pattern!r} goes back over {text[:40]!r}.."
    return None


@pytest.mark.parametrize(
    ("pattern", "method"),
    [("a+$", "search"), (r"(a|aa)+b", "match"), (r"\s*\s*x", "match"), (r"\(.*\)", "sub")],
)
def test_a_pattern_that_goes_back_over_its_text_is_found(pattern, method):
    assert bound_problem(re.compile(pattern), method) is not None


@pytest.mark.parametrize(
    ("pattern", "method"),
    [("a+", "search"), (r"(?:a|b)+c", "match"), (r"\s*x", "match"), (r"\([^()]*\)", "sub")],
)
def test_a_pattern_that_reads_its_text_once_is_none(pattern, method):
    assert bound_problem(re.compile(pattern), method) is None


@pytest.mark.slow
def test_no_pattern_goes_back_over_its_text():
    problems = [bound_problem(*use) for use in used().values()]
    assert len(problems) > 100
    assert [problem for problem in problems if problem] == []
