"""Tabs where YAML allows them, and characters that are like a space."""

import json
from typing import Any

import pytest

from slurm_jobs.spec.yaml.reader import read_yaml
from tests.slurm_jobs.spec.yaml.read_text import BOM, COLON, NBSP


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
