"""Paths of a spec that cannot be used are problems at their place."""

from pathlib import Path

import pytest

from slurm_jobs.base.errors import SpecError
from slurm_jobs.commands.spec_reading.read_spec import load
from tests.slurm_jobs.spec.path_specs import folder, loaded, spec

__all__ = ["folder"]


def problem(folder: Path, text: str, *overrides: str) -> str:
    """Return the message of the one problem."""
    (folder / "spec.yaml").write_text(text)
    with pytest.raises(SpecError) as caught:
        load(folder / "spec.yaml", overrides=overrides)
    (found,) = caught.value.problems
    return found.message


def test_a_missing_python_is_refused_when_the_jobs_run_on_this_machine(
    folder: Path,
) -> None:
    text = spec().replace("    config:", "    python: /no/python\n    config:")
    with pytest.raises(SpecError, match="nothing at /no/python, and the jobs run on this machine"):
        loaded(folder, text)
    (folder / "ours.yaml").write_text("scheduler: slurm\n")
    elsewhere = text.replace("cluster: local", "cluster: ours.yaml")
    assert loaded(folder, elsewhere).spec.stages["prep"].python == "/no/python"


@pytest.mark.parametrize("processor", ["./Org/Model-2B", "models", "a/b/c"])
def test_what_is_no_name_on_a_hub_is_not_taken_for_one(folder: Path, processor: str) -> None:
    message = problem(folder, spec(processor=processor))
    assert "nothing at" in message
    assert "names on a hub" not in message


@pytest.mark.parametrize("name", ["x" * 5000, '"a\\x1bb"', "~nobody-here/x", "a//../b"])
def test_a_path_that_no_file_can_have_is_a_plain_problem(folder: Path, name: str) -> None:
    assert problem(folder, spec(manifest=name))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("file:///tmp/x", "is an address, and a path is needed: write `/tmp/x`"),
        ("file://localhost/tmp/x", "write `/tmp/x`"),
        ("file:/tmp/x", "write `/tmp/x`"),
        ("s3://bucket/x", "write a path of a file system that the nodes have"),
        ("GS://bucket", "is an address"),
        ("hf://datasets/a/b", "is an address"),
        ("ada@login:/scratch", "is an address"),
    ],
)
@pytest.mark.parametrize(
    "line",
    [
        "runs_dir: {}",
        "code: [{}]",
        "stages.prep.node_local_dir: {}",
        "stages.prep.python: {}",
        "stages.prep.config.manifest: {}",
        "stages.prep.config.image_root: {}",
    ],
)
def test_an_address_where_a_path_is_needed_is_refused(
    folder: Path, given: str, words: str, line: str
) -> None:
    key, value = line.format(given).split(": ")
    if value.startswith("["):
        value = f"['{value[1:-1]}']"
    assert words in problem(folder, spec(), f"{key}={value}")


def test_a_variable_that_holds_an_address_is_refused_in_a_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUCKET", "s3://bucket")
    said = "in `$BUCKET/x` holds an address (s3://...)"
    assert said in problem(folder, spec(), "runs_dir=$BUCKET/x")


@pytest.mark.parametrize(
    "placeholder", ["%u", "%j", "{user}", "{{ user }}", "<user>", "%USER%", "{run.name}"]
)
def test_an_unknown_placeholder_is_refused_unless_its_folder_exists(
    folder: Path, placeholder: str
) -> None:
    given = f"runs_dir='{folder}/{placeholder}'"
    assert "would be part of the folder's name" in problem(folder, spec(), given)
    (folder / placeholder).mkdir()
    load(folder / "spec.yaml", overrides=(given,))


def test_a_path_that_is_not_relative_is_not_called_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    for given in ("~/no.jsonl", "$HOME/no.jsonl"):
        said = f"nothing at {folder}/no.jsonl (written as `{given}`)"
        assert said in problem(folder, spec(manifest=given))
