"""YAML as it is read: values, places, and problems with their remedies."""

import json
import time
from typing import Any

import pytest

from slurm_jobs.spec.yaml.document import Place, YamlDocument
from slurm_jobs.spec.yaml.flow_style import flow_text
from slurm_jobs.spec.yaml.reader import MAX_CHARACTERS, read_yaml

NBSP, NARROW, WIDE, ZERO, BOM = "\u00a0", "\u202f", "\u3000", "\u200b", "\ufeff"
COLON = "\uff1a"
SHELL = "name: a\nstages:\n  s:\n    "


def read(text: str) -> YamlDocument:
    return read_yaml(text, "f")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1.5E+3", 1500.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("-7", -7),
        ("+7", 7),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'no'", "no"),
        ('"1:30"', "1:30"),
        ("'0755'", "0755"),
        ("1,000", "1,000"),
        ("0.1.2", "0.1.2"),
        ("a100", "a100"),
        ("00:30:00h", "00:30:00h"),
    ],
)
def test_plain_text_means_what_yaml_1_2_says(text: str, value: object) -> None:
    document = read(f"a: {text}")
    assert document.problems == ()
    assert document.value == {"a": value}
    assert type(document.value["a"]) is type(value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "off",
            "truth value in YAML 1.1 and text in YAML 1.2; write true or false, a number",
        ),
        ("n", "truth value"),
        ("08", "octal"),
        ("00", "octal"),
        ("0o17", "another base"),
        ("1_0.5", "underscores"),
        (".nan", "finite"),
        ("1e999", "finite"),
        ("9" * 5000, "finite"),
    ],
)
def test_silent_conversions_are_errors_at_their_place(text: str, reason: str) -> None:
    (problem,) = read(f"a:\n  b: {text}").problems
    assert (problem.line, problem.column) == (2, 6)
    assert reason in problem.message
    assert text[:50] in problem.message
    assert len(problem.message) < 250


OUT_OF_LINE = "in the same column as the item above it"
TAB, DASH_TAB = "indent with spaces, not tabs", "a tab between the dash and a key; type a space"


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        # keys that are repeated
        ("a: 1\nb: 2\na: 3\n", (3, 1), "key `a` is repeated; it is already on line 1"),
        ("a:\n  b: {c: 1, d: 2, c: 3}\n", (2, 19), "key `c` is repeated"),
        ('a: 1\nb: "x', (2, 4), "quoted"),
        ("a: b: c", (1, 5), "mapping values"),
        ("a: *x", (1, 4), "undefined alias"),
        ("a: 1\n---\nb: 1", (2, 1), "one document"),
        ("a: @x", (1, 4), "quotes"),
        ("a: 1\nb: \x00", (2, 4), "not allowed"),
        ('a: "\\UFFFFFFFF"', (1, 1), "not valid YAML"),
        # with the remedy
        (SHELL + "shell: echo a: b\n", (4, 18), "put quotes around a value that holds a colon"),
        ("name: 'it's'\n", (1, 11), "write '' for a quote inside '...'"),
        (SHELL + "shell: x\n   retries: 1\n", (5, 4), "begin this line in the same column"),
        (SHELL + "shell: x\n     retries: 1\n", (5, 13), "begin this line in the same column"),
        (" name: a\nlimit: 1\n", (2, 1), "same column as the first key"),
        ('name: "a\nlimit: 1\n', (1, 7), "the quote that opens here is never closed"),
        ("name: a\nlimit 1\ncode: []\n", (2, 1), "write `key: value`"),
        ("name:a\nlimit: 1\n", (1, 1), "this line is not `key: value`"),
        ("name: a\n- b\n", (2, 1), "a list goes below its key"),
        ("setup: - a\n", (1, 8), "begin the list on the next line"),
        ("shell: | echo\n", (1, 10), "begins on the next line"),
        ("shell: [ -f x ] && y\n", (1, 17), "put quotes around the text"),
        ("shell: *.txt\n", (1, 8), "put quotes around the text"),
        ("shell: ]\n", (1, 8), "put quotes around the text"),
        ("shell: [a\n", (1, 8), "close [ with ]"),
        ("a: {b: 1 c: 2}\n", (1, 11), "put a comma between values"),
        ("a: {b: ${c.output_dir}/l.jsonl}\n", (1, 9), "put quotes around a value with `${...}`"),
        ("a: [${HOME}/x]\n", (1, 6), "put quotes around a value with `${...}`"),
        ('a: "\\d"\n', (1, 6), "write \\\\ for a backslash"),
        # on an earlier line
        (SHELL + "shell:echo\n    retries: 2\n", (4, 5), "a blank follows the colon"),
        (SHELL + "shell:echo\n      more\n    retries: 2\n", (4, 5), "a blank follows the colon"),
        ("a:\n  - b:c\n    d: 1\n", (2, 3), "a blank follows the colon"),
        (SHELL + 'shell: "x\n    retries: 2\n    python: "x"\n', (4, 12), "closed only on line 6"),
        (SHELL + "shell: 'x\n    retries: 2\n    python: 'x'\n", (4, 12), "closed only on line 6"),
        ('a: "x\nb: ""\n', (1, 4), "closed only on line 2"),
        ("a: [b, c\nd: 2\ne: 3\n", (1, 4), "still open on line 2; close [ with ]"),
        ("a: {b: 1,\nd: 2\ne: 3\n", (1, 4), "still open on line 3; close { with }"),
        ("a: [b,\n", (1, 4), "still open on line 2; close [ with ]"),
        ("x: {a: 2,, b: 1}\n", (1, 10), "there is one , too many: remove it"),
        ("x: [a, , b]\n", (1, 8), "there is one , too many: remove it"),
        ("x: {a: 1}}\ny: 2\n", (1, 10), "there is one } too many: remove it"),
        ("x: [a, b]]\n", (1, 10), "there is one ] too many: remove it"),
        ("{a: 1}}\n", (1, 7), "there is one } too many: remove it"),
        ("x: {a: 1},\ny: 1\n", (1, 10), "there is one , too many: remove it"),
        # an item that is not below the one above it
        ("x:\n    - a\n  - b\n", (3, 3), OUT_OF_LINE),
        ("x:\n - a\n  - b: 1\n", (3, 6), OUT_OF_LINE),
        ("x:\n  - a: 1\n    - b\n", (3, 5), OUT_OF_LINE),
        ("x:\n  - {a: 1}\n   - b\n", (3, 4), OUT_OF_LINE),
        ("x:\n  - a: 1\n    b: 2\n   - c: 2\n", (4, 4), OUT_OF_LINE),
        # tabs
        ("a:\n\tb: 1\n", (2, 1), TAB),
        ("a:\n  b: 1\n\tc: 2\n", (3, 1), TAB),
        ("a: |\n  x\n\ty\n", (3, 1), TAB),
        ("\ta: 1\n", (1, 1), TAB),
        ("-\tb: 1\n", (1, 2), DASH_TAB),
        ("-\t1\n-\tb: 1\n", (2, 2), DASH_TAB),
        ("- a: 1\n-\tb: 1\n", (2, 2), DASH_TAB),
        # characters that only look like a space or a colon
        (f"a:{NBSP}1\nb: 2\n", (1, 3), "U+00A0"),
        (f"a:{NBSP}1\n", (1, 3), "U+00A0"),
        (f"a:\n  b:{NARROW}1\n  c: 2\n", (2, 5), "U+202F"),
        (f"a:{WIDE}1\n  b: 2\n", (1, 3), "U+3000"),
        (f"x: 1\ny:{NBSP}\n  z: 1\n", (2, 3), "U+00A0"),
        (f"a:\n{NBSP}{NBSP}b: 1\n", (2, 1), "U+00A0"),
        (f"a:\n {NBSP}b: 1\n  c: 1\n", (2, 2), "U+00A0"),
        (f"a:\n  - {WIDE}x\n", (2, 5), "U+3000"),
        (f"-{NBSP}x\n- z\n", (1, 2), "U+00A0"),
        (f"a: 4{NBSP}\n", (1, 5), "U+00A0"),
        (f"a: {NBSP}4\n", (1, 4), "U+00A0"),
        (f"a: 1{NBSP}# c\n", (1, 5), "U+00A0"),
        (f"a: {{b:{NBSP}1}}\n", (1, 7), "U+00A0"),
        (f"{ZERO}a: 1\n", (1, 1), "U+200B"),
        (f"a: 1\nb{ZERO}: 2\n", (2, 2), "U+200B"),
        (f"a: 1\n{BOM}b: 2\n", (2, 1), "U+FEFF"),
        (f"{BOM}a: 1\nb:{NBSP}2\nc: 3\n", (2, 3), "U+00A0"),
        (f"a: 1\nb{COLON} 2\nc: 3\n", (2, 2), "U+FF1A"),
    ],
)
def test_what_is_wrong_is_one_problem_at_its_place(
    text: str, place: tuple[int, int], said: str
) -> None:
    (problem,) = read(text).problems
    assert (problem.line, problem.column) == place
    assert said in problem.message


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object:slurm_jobs.spec.model.Stage {run: train}",
        "a: !!python/name:os.system",
        "a: !!str 3",
        "!!python/name:os.system a: 3",
        "!own\na: 1",
    ],
)
def test_tags_are_refused(text: str) -> None:
    assert any("tag" in p.message and "not allowed" in p.message for p in read(text).problems)


def test_refused_merge_keys_are_still_read_so_that_no_key_is_missing() -> None:
    document = read("x: &x {a: 1, b: 2}\ny:\n  <<: *x\n  b: 3\n")
    (problem,) = document.problems
    assert (problem.line, problem.column) == (3, 3)
    assert "merge keys" in problem.message
    assert document.value["y"] == {"b": 3, "a": 1}


def test_a_merge_of_what_contains_it_ends() -> None:
    assert "merge keys" in read("a: &x {<<: *x, b: {<<: *x}}").problems[0].message


def test_a_key_that_is_no_text_is_refused() -> None:
    (problem,) = read("? [a, b]\n: 1\n").problems
    assert "key must be plain text" in problem.message


def test_an_alias_that_contains_itself_is_refused() -> None:
    assert "contains itself" in read("a: &x [1, *x]").problems[0].message


def test_honest_aliases_work() -> None:
    assert read("a: &x {b: 1}\nc: *x").value == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.parametrize("leaf", ["[1, 2]", f"'{'x' * 5000}'"])
def test_an_alias_bomb_ends_quickly_with_one_problem(leaf: str) -> None:
    lines = [f"a0: &a0 {leaf}"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    start = time.process_time()
    document = read("\n".join(lines))
    assert time.process_time() - start < 5
    (problem,) = document.problems
    assert "aliases make this file larger" in problem.message


@pytest.mark.parametrize("text", ["[" * 5000, "- " * 2000, "{a: " * 60, "[" * 60 + "]" * 60])
def test_deep_nesting_is_a_problem_and_no_crash(text: str) -> None:
    assert read(text).problems


def test_a_file_too_large_for_a_spec_is_not_parsed() -> None:
    (problem,) = read("a: 1\n" * MAX_CHARACTERS).problems
    assert "characters" in problem.message


@pytest.mark.parametrize("escape", ["\\0", "\\ud800"])
def test_text_that_no_file_or_shell_can_hold_is_refused(escape: str) -> None:
    (problem,) = read(f'a: "x{escape}"').problems
    assert (problem.line, problem.column) == (1, 4)


def test_messages_carry_no_control_characters() -> None:
    problems = read('"a\\e[31m": 1\n"a\\e[31m": 2').problems
    assert "\x1b" not in problems[0].message


def test_an_empty_file_has_no_value() -> None:
    assert read("").value is None
    assert read("# nothing\n").value is None


def test_places_are_those_of_keys_and_values() -> None:
    document = read("a:\n  b:   1\n  c: [x,\n      y]\n")
    assert document.key_places["a", "b"] == Place(line=2, column=3)
    assert document.value_places["a", "b"] == Place(line=2, column=8)
    assert document.value_places["a", "c", 1] == Place(line=4, column=7)


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("timeout_min: 12:00:00", "write 720"),
        ("timeout_min: 0:00:30", "write 0.5"),
        ("every_s: 0:02:00", "write 120"),
        (
            "timeout_min: 1:30",
            "write 90 if it is hours:minutes, 1.5 if minutes:seconds",
        ),
    ],
)
def test_a_time_is_converted_to_the_unit_of_its_key(text: str, remedy: str) -> None:
    (problem,) = read(text).problems
    key, _, value = text.partition(": ")
    unit = "minutes" if key.endswith("_min") else "seconds"
    assert problem.message == f"`{value}` is not a number; `{key}` counts {unit}: {remedy}"


@pytest.mark.parametrize("text", ["name: 1:30", "timeout_min: 12:30:45.5", "every_min: 1:2:3:4"])
def test_a_time_without_a_unit_is_left_to_its_author(text: str) -> None:
    (problem,) = read(text).problems
    assert "is a number to base 60 in YAML 1.1 (1:30 would be 90)" in problem.message


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


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("gpu", "gpu"),
        ("data/{000..099}.tar", '"data/{000..099}.tar"'),
        ("off", '"off"'),
        ("1e-4", '"1e-4"'),
        ("", '""'),
        ("a: b # c\n", r'"a: b # c\n"'),
        ([1, None, True, 0.5], "[1, null, true, 0.5]"),
        ({"use": ["tensorboard", "a, b"]}, '{use: [tensorboard, "a, b"]}'),
    ],
)
def test_what_is_shown_is_read_back_and_has_quotes_where_it_needs_them(
    value: Any, text: str
) -> None:
    assert flow_text(value) == text
    read = read_yaml(f"[{text}]", "f")
    assert (read.value, read.problems) == ([value], ())
