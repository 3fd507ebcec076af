"""Tabs where YAML 1.2 allows them."""

import json
from typing import Any

import pytest

from slurm_jobs.spec.yaml.reader import read_yaml
from tests.slurm_jobs.spec.yaml.read_text import NBSP


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: b\t\nc: d\t# x\n", {"a": "b", "c": "d"}),
        ("a: 1\t", {"a": 1}),
        ("a:\tb\n", {"a": "b"}),
        ("a:\t\n  b: 1\n", {"a": {"b": 1}}),
        ("a\t: 1\n", {"a": 1}),
        ("a: 'x'\t\nb: \"z\"\t# c\n", {"a": "x", "b": "z"}),
        ("-\tx\n- z\t\n", ["x", "z"]),
        ("a: two\twords\t\n", {"a": "two\twords"}),
        ("a: two\t\n  lines\n", {"a": "two lines"}),
        ("a: 1\n\t\nb: 2\n\t# c\n", {"a": 1, "b": 2}),
        ("a:\t1\r\n\t\r\nb: 2\t\r\n", {"a": 1, "b": 2}),
        ("a: {b: 1,\tc: 2}\t\n", {"a": {"b": 1, "c": 2}}),
        ("a: [1,\n\t2]\n", {"a": [1, 2]}),
        ("a: |\t\n  text\n", {"a": "text\n"}),
        ("a: >-\t# c\n  text\n", {"a": "text"}),
        (f"a:\tone{NBSP}word\n", {"a": f"one{NBSP}word"}),
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
