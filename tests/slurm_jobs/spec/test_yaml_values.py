import time

import pytest

from slurm_jobs.spec.yaml_values import MAX_CHARACTERS, Place, YamlDocument, read_yaml


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
        ("no", "truth value"),
        ("Yes", "truth value"),
        ("off", "truth value"),
        ("n", "truth value"),
        ("1:30", "base 60"),
        ("12:30:45.5", "base 60"),
        ("0755", "octal"),
        ("08", "octal"),
        ("00", "octal"),
        ("0x1f", "another base"),
        ("0b11", "another base"),
        ("0o17", "another base"),
        ("1_000", "underscores"),
        ("1_0.5", "underscores"),
        ("2024-01-02", "date"),
        ("2024-1-2 10:00:00", "date"),
        (".inf", "finite"),
        ("-.INF", "finite"),
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
    assert str(problem) == "f:3:1: key `a` is repeated; it stands on line 1 already"


def test_a_repeated_key_inside_is_refused() -> None:
    (problem,) = read("a:\n  b: {c: 1, d: 2, c: 3}\n").problems
    assert (problem.line, problem.column) == (2, 19)


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system ['touch x']",
        "a: !!python/object:slurm_jobs.spec.model.Stage {run: train}",
        "a: !!python/name:os.system",
        "a: !!omap [b: 1]",
        "a: !!set {b, c}",
        "a: !!binary aGk=",
        "a: !own 3",
        "a: !!float 3",
        "a: !!str 3",
        "!!python/name:os.system a: 3",
        "!own\na: 1",
    ],
)
def test_tags_are_refused(text: str) -> None:
    assert any("tag" in p.message and "not allowed" in p.message for p in read(text).problems)


def test_merge_keys_are_refused() -> None:
    (problem,) = read("x: &x {a: 1}\ny:\n  <<: *x\n").problems
    assert (problem.line, problem.column) == (3, 3)
    assert "merge keys" in problem.message


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
