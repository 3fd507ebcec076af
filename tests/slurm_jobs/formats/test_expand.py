"""Paths in configs and on the command line."""

import pwd
from pathlib import Path

import pytest

from slurm_jobs.base.errors import PathExpansionError
from slurm_jobs.cli.main import main
from slurm_jobs.formats.expand import expand_path, expand_typed, literal_path

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
