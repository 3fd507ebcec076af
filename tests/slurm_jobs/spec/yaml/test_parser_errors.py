"""What the parser refuses is one problem at its place, with what to write instead."""

import pytest

from tests.slurm_jobs.spec.yaml.read_text import BOM, NARROW, NBSP, ZERO, read

SHELL = "name: a\nstages:\n  s:\n    "
OUT_OF_LINE = "same column as the key or item above it"
ITEM = "a list goes below its key, with all its items in one column"
TAB = "indent with spaces, not tabs"
DASH_TAB = "a tab between the dash and the key or item after it; type a space"


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
        (SHELL + "shell: x\n   retries: 1\n", (5, 4), OUT_OF_LINE),
        (SHELL + "shell: x\n     retries: 1\n", (5, 13), "begin this line in the same column"),
        (" name: a\nlimit: 1\n", (2, 1), "same column as the first key"),
        ('name: "a\nlimit: 1\n', (1, 7), "the quote that opens here is never closed"),
        ("name: a\nlimit 1\ncode: []\n", (2, 1), "write `key: value`"),
        ("name:a\nlimit: 1\n", (1, 1), "this line is not `key: value`"),
        ("name: a\n- b\n", (2, 1), ITEM),
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
        ("a: [b, c\nd: 2\ne: 3\n", (1, 4), "close [ with ]"),
        ("a: {b: 1,\nd: 2\ne: 3\n", (1, 4), "close { with }"),
        ("a: [b,\n", (2, 1), "close the bracket that is still open"),
        ("x: {a: 2,, b: 1}\n", (1, 10), "there is one , too many: remove it"),
        ("x: [a, , b]\n", (1, 8), "there is one , too many: remove it"),
        ("x: {a: 1}}\ny: 2\n", (1, 10), "there is one } too many: remove it"),
        ("x: [a, b]]\n", (1, 10), "there is one ] too many: remove it"),
        ("x: [\n  a]\n]\n", (3, 1), "there is one ] too many: remove it"),
        ("{a: 1}}\n", (1, 7), "there is one } too many: remove it"),
        ("x: {a: 1},\ny: 1\n", (1, 10), "there is one , too many: remove it"),
        ("x: *,\n", (1, 4), "put quotes around the text"),
        # an item that is not below the one above it
        ("x:\n    - a\n  - b\n", (3, 3), OUT_OF_LINE),
        ("x:\n - a\n  - b: 1\n", (3, 6), OUT_OF_LINE),
        # tabs
        ("a:\n\tb: 1\n", (2, 1), TAB),
        ("a:\n  b: 1\n\tc: 2\n", (3, 1), TAB),
        ("a:\r  b: 1\r\tc: 2\r", (3, 1), TAB),
        ("a: |\n  x\n\ty\n", (3, 1), TAB),
        ("\ta: 1\n", (1, 1), TAB),
        ("-\tb: 1\n", (1, 2), DASH_TAB),
        ("- a: 1\n-\tb: 1\n", (2, 2), DASH_TAB),
        ("-\t- b\n", (1, 2), DASH_TAB),
        # characters that only look like a space or a colon
        (f"a:{NBSP}1\nb: 2\n", (1, 3), "U+00A0"),
        (f"a:\n  b:{NARROW}1\n  c: 2\n", (2, 5), "U+202F"),
        (f"x: 1\ny:{NBSP}\n  z: 1\n", (2, 3), "U+00A0"),
        (f"a:\n {NBSP}b: 1\n  c: 1\n", (2, 2), "U+00A0"),
        (f"a:\n  - {NBSP}x\n", (2, 5), "U+00A0"),
        (f"-{NBSP}x\n- z\n", (1, 2), "U+00A0"),
        (f"a: 4{NBSP}\n", (1, 5), "U+00A0"),
        (f"{ZERO}a: 1\n", (1, 1), "U+200B"),
        (f"a: 1\nb{ZERO}: 2\n", (2, 2), "U+200B"),
        (f"{BOM}a: 1\nb:{NBSP}2\nc: 3\n", (2, 3), "U+00A0"),
    ],
)
def test_what_is_wrong_is_one_problem_at_its_place(
    text: str, place: tuple[int, int], said: str
) -> None:
    (problem,) = read(text).problems
    assert (problem.line, problem.column) == place
    assert said in problem.message


@pytest.mark.parametrize("text", ["[" * 5000, "- " * 2000, "{a: " * 60, "[" * 60 + "]" * 60])
def test_deep_nesting_is_a_problem_and_no_crash(text: str) -> None:
    assert read(text).problems


def test_messages_carry_no_control_characters() -> None:
    problems = read('"a\\e[31m": 1\n"a\\e[31m": 2').problems
    assert "\x1b" not in problems[0].message
