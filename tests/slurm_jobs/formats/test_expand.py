"""References and paths in configs and on the command line."""

import pwd
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.base.errors import PathExpansionError, StageConfigError
from slurm_jobs.cli.main import main
from slurm_jobs.formats.configs.output_references import (
    output_dir_variable,
    referenced_stage,
    substitute_references,
)
from slurm_jobs.formats.expand import expand_path, expand_typed, literal_path

DIRS = {"a": "/run/data/a", "render-2": "/run/data/render-2"}


def test_only_output_dir_can_be_referred_to() -> None:
    assert referenced_stage("a-b_1.output_dir") == "a-b_1"
    assert referenced_stage("a.log_dir") is None
    assert referenced_stage("HOME") is None


def test_the_variable_of_a_folder_is_a_name_that_a_shell_can_hold() -> None:
    assert output_dir_variable("count") == "SLURM_JOBS_COUNT_OUTPUT_DIR"
    assert output_dir_variable("my-first_2") == "SLURM_JOBS_MY_FIRST_2_OUTPUT_DIR"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${a.output_dir}", "/run/data/a"),
        ("${a.output_dir}/x.jsonl", "/run/data/a/x.jsonl"),
        ("${a.output_dir}:${render-2.output_dir}", "/run/data/a:/run/data/render-2"),
        ({"k": ["${a.output_dir}", {"n": 1}]}, {"k": ["/run/data/a", {"n": 1}]}),
        (("x", ("${a.output_dir}",)), ["x", ["/run/data/a"]]),  # as JSON would have it
        ([1, 2.5, None, True, "plain"], [1, 2.5, None, True, "plain"]),
        ("$HOME ${HOME} $${x} ${a.outputs}", "$HOME ${HOME} $${x} ${a.outputs}"),
        ({"${a.output_dir}": 1}, {"${a.output_dir}": 1}),
    ],
)
def test_references_in_strings_become_the_stages_folders(value: Any, expected: Any) -> None:
    assert substitute_references(value, DIRS) == expected


def test_special_characters_of_a_folder_name_are_taken_literally() -> None:
    dirs = {"a": r"/run\1/${b.output_dir}"}
    assert substitute_references("${a.output_dir}/x", dirs) == r"/run\1/${b.output_dir}/x"


def test_the_given_value_stays_as_it_was() -> None:
    value = {"k": ["${a.output_dir}"]}
    substitute_references(value, DIRS)
    assert value == {"k": ["${a.output_dir}"]}


@pytest.mark.parametrize(("dirs", "known"), [(DIRS, "a, render-2"), ({}, "none")])
def test_a_stage_that_does_not_come_before_is_refused_with_those_that_do(
    dirs: dict[str, str], known: str
) -> None:
    with pytest.raises(StageConfigError, match=rf"later\.output_dir.*those: {known}\)"):
        substitute_references(["${later.output_dir}"], dirs)


VARIABLES = {"A": "x", "AB": "/y", "HOME": "/home/me", "TILDE": "~/z", "PRICE": "$A"}


def exit_code(words: list[str]) -> object:
    with pytest.raises(SystemExit) as caught:
        main(words)
    return caught.value.code


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/s/$A/r", "/s/x/r"),
        ("/s/${A}b/$AB", "/s/xb//y"),
        ("$AB/$A$A", "/y/xx"),
        ("~", "/home/me"),
        ("~/r", "/home/me/r"),
        ("~root", pwd.getpwnam("root").pw_dir),
        ("$TILDE", "/home/me/z"),
        ("$PRICE", "$A"),
        ("a$$A", "a$A"),
        ("/a/~/b~", "/a/~/b~"),
        ("${s.output_dir}/$A", "${s.output_dir}/x"),
    ],
)
def test_a_path_is_expanded(path: str, expected: str) -> None:
    assert expand_path(path, VARIABLES) == expected


@pytest.mark.parametrize("path", ["$B", "${}", "$1", "a$", "${A", "${A-b}", "$(A)", "~no\0body"])
def test_what_names_nothing_is_refused(path: str) -> None:
    with pytest.raises(PathExpansionError):
        expand_path(path, VARIABLES)


@pytest.mark.parametrize("path", ["a$A/$$b", "~x", "/p/${A}", "$", "${s.output_dir}/x"])
def test_a_path_written_into_a_spec_is_read_back(path: str) -> None:
    assert expand_path(literal_path(path), VARIABLES).removeprefix("./") == path


def test_a_path_that_exists_as_typed_is_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A", "x")
    monkeypatch.chdir(tmp_path)
    assert expand_typed("$A") == "x"
    (tmp_path / "$A").touch()
    assert expand_typed("$A") == "$A"


def test_paths_on_the_command_line_are_expanded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "spec.yaml").write_text("name: a\ncluster: local\nstages: {s: {shell: 'true'}}\n")
    assert exit_code(["check", "~/spec.yaml"]) == 0
    assert exit_code(["plan", "~/spec.yaml", "--set", "runs_dir=~/$NOT_SET_HERE"]) == 2
    assert "--set runs_dir=~/$NOT_SET_HERE: runs_dir: no environment variable" in (
        capsys.readouterr().err
    )
    assert exit_code(["check", "$NOT_SET_HERE/spec.yaml"]) == 2
    assert "no environment variable `NOT_SET_HERE` is set here" in capsys.readouterr().err
    assert exit_code(["status", "~nobody-here/run"]) == 2
    assert "no user `nobody-here`" in capsys.readouterr().err
