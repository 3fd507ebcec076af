import time

import pytest

from slurm_jobs.spec.yaml import MAX_CHARACTERS, Place, YamlDocument, read_yaml


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
            "truth value in YAML 1.1 and text in YAML 1.2; quote it; a switch",
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


def test_a_repeated_key_is_refused_and_names_the_first() -> None:
    (problem,) = read("a: 1\nb: 2\na: 3\n").problems
    assert str(problem) == "f:3:1: key `a` is repeated; it is already on line 1"


def test_a_repeated_key_inside_is_refused() -> None:
    (problem,) = read("a:\n  b: {c: 1, d: 2, c: 3}\n").problems
    assert (problem.line, problem.column) == (2, 19)


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


def test_merge_keys_are_refused_and_yet_read_so_that_nothing_is_called_missing() -> None:
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


def test_tabs_are_refused_with_the_remedy() -> None:
    (problem,) = read("a:\n\tb: 1\n").problems
    assert (problem.line, problem.column) == (2, 1)
    assert "spaces, not tabs" in problem.message


@pytest.mark.parametrize(
    ("text", "place", "word"),
    [
        ('a: 1\nb: "x', (2, 4), "quoted"),
        ("a: b: c", (1, 5), "mapping values"),
        ("a: *x", (1, 4), "undefined alias"),
        ("a: 1\n---\nb: 1", (2, 1), "one document"),
        ("a: @x", (1, 4), "quotes"),
        ("a: 1\nb: \x00", (2, 4), "not allowed"),
        ('a: "\\UFFFFFFFF"', (1, 1), "not valid YAML"),
    ],
)
def test_broken_yaml_is_one_problem_at_its_place(
    text: str, place: tuple[int, int], word: str
) -> None:
    (problem,) = read(text).problems
    assert (problem.line, problem.column) == place
    assert word in problem.message


SHELL = "name: a\nstages:\n  s:\n    "


@pytest.mark.parametrize(
    ("text", "place", "remedy"),
    [
        (SHELL + "shell: echo a: b\n", (4, 18), "put quotes around a value that holds a colon"),
        ("name: 'it's'\n", (1, 11), "write '' for a quote inside '...'"),
        (SHELL + "shell: x\n   retries: 1\n", (5, 4), "begin this line in the same column"),
        (SHELL + "shell: x\n     retries: 1\n", (5, 13), "begin this line in the same column"),
        (" name: a\nlimit: 1\n", (2, 1), "same column as the first key"),
        ('name: "a\nlimit: 1\n', (1, 7), "the quote that opens here is never closed"),
        ("name: a\nlimit 1\ncode: []\n", (2, 1), "write `key: value`"),
        ("name:a\nlimit: 1\n", (1, 1), "this line is no `key: value`"),
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
    ],
)
def test_a_mistake_in_the_yaml_comes_with_its_remedy(
    text: str, place: tuple[int, int], remedy: str
) -> None:
    (problem,) = read(text).problems
    assert (problem.line, problem.column) == place
    assert remedy in problem.message


@pytest.mark.parametrize(
    ("text", "place", "remedy"),
    [
        (SHELL + "shell:echo\n    retries: 2\n", (4, 5), "a blank follows the colon"),
        (SHELL + "shell:echo\n      more\n    retries: 2\n", (4, 5), "a blank follows the colon"),
        ("a:\n  - b:c\n    d: 1\n", (2, 3), "a blank follows the colon"),
        (SHELL + 'shell: "x\n    retries: 2\n    python: "x"\n', (4, 12), "closed only on line 6"),
        (SHELL + "shell: 'x\n    retries: 2\n    python: 'x'\n", (4, 12), "closed only on line 6"),
        ('a: "x\nb: ""\n', (1, 4), "closed only on line 2"),
        ("a: [b, c\nd: 2\ne: 3\n", (1, 4), "still open on line 2; close [ with ]"),
        ("a: {b: 1,\nd: 2\ne: 3\n", (1, 4), "still open on line 3; close { with }"),
        ("a: [b,\n", (1, 4), "still open on line 2; close [ with ]"),
    ],
)
def test_a_mistake_on_an_earlier_line_is_shown_there(
    text: str, place: tuple[int, int], remedy: str
) -> None:
    (problem,) = read(text).problems
    assert (problem.line, problem.column) == place
    assert remedy in problem.message


@pytest.mark.parametrize(
    ("text", "place", "extra"),
    [
        ("x: {a: 2,, b: 1}\n", (1, 10), ","),
        ("x: [a, , b]\n", (1, 8), ","),
        ("x: {a: 1}}\ny: 2\n", (1, 10), "}"),
        ("x: [a, b]]\n", (1, 10), "]"),
        ("{a: 1}}\n", (1, 7), "}"),
        ("x: {a: 1},\ny: 1\n", (1, 10), ","),
    ],
)
def test_an_extra_comma_or_bracket_is_called_that(
    text: str, place: tuple[int, int], extra: str
) -> None:
    (problem,) = read(text).problems
    assert (problem.line, problem.column) == place
    assert f"there is one {extra} too many: remove it" in problem.message


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("x:\n    - a\n  - b\n", (3, 3)),
        ("x:\n - a\n  - b: 1\n", (3, 6)),
        ("x:\n  - a: 1\n    - b\n", (3, 5)),
        ("x:\n  - {a: 1}\n   - b\n", (3, 4)),
        ("x:\n  - a: 1\n    b: 2\n   - c: 2\n", (4, 4)),
    ],
)
def test_an_item_out_of_line_is_sent_to_the_item_above(text: str, place: tuple[int, int]) -> None:
    (problem,) = read(text).problems
    assert (problem.line, problem.column) == place
    assert "in the same column as the item above it" in problem.message


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
            "write 90 for hours and minutes, 1.5 for minutes and seconds",
        ),
    ],
)
def test_a_time_is_told_in_the_unit_of_its_key(text: str, remedy: str) -> None:
    (problem,) = read(text).problems
    key, _, value = text.partition(": ")
    unit = "minutes" if key.endswith("_min") else "seconds"
    assert problem.message == f"`{value}` is no number; `{key}` counts {unit}: {remedy}"


@pytest.mark.parametrize("text", ["name: 1:30", "timeout_min: 12:30:45.5", "every_min: 1:2:3:4"])
def test_a_time_without_a_unit_is_left_to_its_author(text: str) -> None:
    (problem,) = read(text).problems
    assert "is a number to base 60 in YAML 1.1 (1:30 would be 90)" in problem.message
