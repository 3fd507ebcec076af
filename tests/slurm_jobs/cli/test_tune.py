"""What `tune` refuses before anything runs, and where it puts the new spec."""

from pathlib import Path

import pytest

from slurm_jobs import cli
from slurm_jobs.cli.tune import _copy, _spec_lines
from slurm_jobs.common.errors import InputError
from slurm_jobs.operations.tuned_spec import TunedSpec

SPEC = """\
name: small
cluster: local
stages:
  train: {run: train, config: {device: cpu, num_steps: 5}}
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "small.yaml"
    file.write_text(SPEC)
    return file


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        cli.main(["tune", *words])
    assert ended.value.code == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("name", ["small.yaml", "./small.yaml", "link.yaml"])
def test_the_spec_itself_is_never_written_over(
    spec: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    (spec.parent / "link.yaml").symlink_to(spec)
    said = refused(capsys, "small.yaml", "--out", name)
    assert "this is the spec itself" in said
    assert spec.read_text() == SPEC
    assert not (spec.parent / "runs").exists()


def test_a_file_that_is_there_is_refused_before_anything_runs(
    spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = spec.with_name("other.yaml")
    other.write_text("mine")
    said = refused(capsys, "small.yaml", "--out", "other.yaml")
    assert "--out other.yaml: this file is there already; name a new one, or move it away" in said
    assert other.read_text() == "mine"
    assert not (spec.parent / "runs").exists()


def test_a_file_that_was_made_while_the_tuning_ran_is_left_as_it_is(spec: Path) -> None:
    out = spec.with_name("tuned.yaml")
    _copy(spec, out)
    assert out.read_text() == SPEC
    out.write_text("mine")
    with pytest.raises(InputError, match=r"made while the tuning ran.*small\.yaml: copy"):
        _copy(spec, out)
    assert out.read_text() == "mine"


def test_a_spec_without_a_change_is_called_the_same_as_the_old_one(spec: Path) -> None:
    same = TunedSpec(path=spec, is_whole=False, why="", overrides=())
    (line,) = _spec_lines(same, None, has_changes=False)
    assert line == "new spec: small.yaml (the same as the old one: nothing is changed)"


def test_what_the_new_spec_lacks_of_the_command_line_is_to_be_given_again(spec: Path) -> None:
    lacks = TunedSpec(path=spec, is_whole=False, why="", overrides=("runs_dir=elsewhere",))
    assert _spec_lines(lacks, None, has_changes=False)[1:] == [
        "the new spec does not have what was set on the command line; give it again:",
        "  --set runs_dir=elsewhere",
    ]
