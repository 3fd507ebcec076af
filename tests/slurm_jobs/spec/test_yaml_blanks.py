"""Tabs and characters that look like spaces."""

from __future__ import annotations

import json
from typing import Any

import pytest

from slurm_jobs.spec.yaml import read_yaml

NBSP, NARROW, WIDE, ZERO, BOM = "\u00a0", "\u202f", "\u3000", "\u200b", "\ufeff"
COLON = "\uff1a"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: b\t\nc: d\t# x\n", {"a": "b", "c": "d"}),
        ("a:\tb\n", {"a": "b"}),
        ("a\t: 1\n", {"a": 1}),
        ("a: 'x'\t\nb: \"z\"\t# c\n", {"a": "x", "b": "z"}),
        ("-\tx\n- z\t\n", ["x", "z"]),
        ("a: two\twords\t\n", {"a": "two\twords"}),
        ("a: 1\n\t\nb: 2\n\t# c\n", {"a": 1, "b": 2}),
        ("a: {b: 1,\tc: 2}\t\n", {"a": {"b": 1, "c": 2}}),
        ("a: [1,\n\t2]\n", {"a": [1, 2]}),
        ("a: |\t\n  text\n", {"a": "text\n"}),
        ("a: >-\t# c\n  text\n", {"a": "text"}),
    ],
)
def test_tabs_after_values_and_inside_brackets_are_blanks(text: str, value: Any) -> None:
    document = read_yaml(text, "f")
    assert (document.value, document.problems) == (value, ())


def test_json_that_is_indented_with_tabs_is_read_and_its_places_are_right() -> None:
    value = {"name": "n", "stages": {"a": {"shell": "printf '\t'", "retries": 2}}, "l": [1, {}]}
    document = read_yaml(json.dumps(value, indent="\t"), "f")
    assert (document.value, document.problems) == (value, ())
    place = document.value_places["stages", "a", "retries"]
    assert (place.line, place.column) == (6, 15)


@pytest.mark.parametrize(
    ("text", "line"),
    [("a:\n\tb: 1\n", 2), ("a:\n  b: 1\n\tc: 2\n", 3), ("a: |\n  x\n\ty\n", 3), ("\ta: 1\n", 1)],
)
def test_a_tab_in_the_indentation_of_a_block_is_refused_where_it_is(text: str, line: int) -> None:
    (problem,) = read_yaml(text, "f").problems
    assert (problem.line, problem.column) == (line, 1)
    assert "indent with spaces, not tabs" in problem.message


@pytest.mark.parametrize("text", ["-\tb: 1\n", "-\t1\n-\tb: 1\n", "- a: 1\n-\tb: 1\n"])
def test_a_tab_between_a_dash_and_a_key_is_named_where_it_is(text: str) -> None:
    (problem,) = read_yaml(text, "f").problems
    assert (problem.line, problem.column) == (text.count("\n"), 2)
    assert "there is a tab between the dash and a key; type a space" in problem.message


@pytest.mark.parametrize(
    ("text", "place", "character"),
    [
        (f"a:{NBSP}1\nb: 2\n", (1, 3), NBSP),
        (f"a:{NBSP}1\n", (1, 3), NBSP),
        (f"a:\n  b:{NARROW}1\n  c: 2\n", (2, 5), NARROW),
        (f"a:{WIDE}1\n  b: 2\n", (1, 3), WIDE),
        (f"x: 1\ny:{NBSP}\n  z: 1\n", (2, 3), NBSP),
        (f"a:\n{NBSP}{NBSP}b: 1\n", (2, 1), NBSP),
        (f"a:\n {NBSP}b: 1\n  c: 1\n", (2, 2), NBSP),
        (f"a:\n  - {WIDE}x\n", (2, 5), WIDE),
        (f"-{NBSP}x\n- z\n", (1, 2), NBSP),
        (f"a: 4{NBSP}\n", (1, 5), NBSP),
        (f"a: {NBSP}4\n", (1, 4), NBSP),
        (f"a: 1{NBSP}# c\n", (1, 5), NBSP),
        (f"a: {{b:{NBSP}1}}\n", (1, 7), NBSP),
        (f"{ZERO}a: 1\n", (1, 1), ZERO),
        (f"a: 1\nb{ZERO}: 2\n", (2, 2), ZERO),
        (f"a: 1\n{BOM}b: 2\n", (2, 1), BOM),
        (f"{BOM}a: 1\nb:{NBSP}2\nc: 3\n", (2, 3), NBSP),
        (f"a: 1\nb{COLON} 2\nc: 3\n", (2, 2), COLON),
    ],
)
def test_a_character_that_only_looks_like_a_space_is_named_where_it_is(
    text: str, place: tuple[int, int], character: str
) -> None:
    (problem,) = read_yaml(text, "f").problems
    assert (problem.line, problem.column) == place
    assert f"U+{ord(character):04X}" in problem.message


@pytest.mark.parametrize(
    "text",
    [
        f"a: Note:{NBSP}text\n",
        f"a: 10{NBSP}km\n",
        f"a: '{NBSP}quoted:{NBSP}'\n",
        f"a: |\n  b:{NBSP}c\n  {NBSP}d\n",
        f"{BOM}a: one{NBSP}word\n",
        f"# b:{NBSP}c\na: 1\n",
        f"a:\n  - b{COLON} c\n  - d{COLON}\n",
    ],
)
def test_such_characters_in_texts_and_between_words_are_meant(text: str) -> None:
    assert read_yaml(text, "f").problems == ()
