"""YAML as it is read: plain values, tags, merges and aliases, and files that are refused."""

import time

import pytest

from slurm_jobs.spec.yaml.reader import MAX_CHARACTERS
from tests.slurm_jobs.spec.yaml.read_text import read


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


def test_merge_keys_are_refused() -> None:
    (problem,) = read("x: &x {a: 1}\ny:\n  <<: *x\n  b: 3\n").problems
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


def test_a_file_too_large_for_a_spec_is_not_parsed() -> None:
    (problem,) = read("a: 1\n" * MAX_CHARACTERS).problems
    assert "characters" in problem.message


@pytest.mark.parametrize("escape", ["\\0", "\\ud800"])
def test_text_that_no_file_or_shell_can_hold_is_refused(escape: str) -> None:
    (problem,) = read(f'a: "x{escape}"').problems
    assert (problem.line, problem.column) == (1, 4)


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
