"""What `tune` refuses before anything runs, and where it puts the new spec."""

from pathlib import Path

import pytest

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.cli.reports.tune import _copy, _is_final, _more_lines, _spec_lines
from slurm_jobs.cli.terminal.shown_paths import command_text
from slurm_jobs.commands.tuned_spec import TunedSpec
from slurm_jobs.commands.tuning_spec import read_tune_run
from slurm_jobs.formats.configs.command_stages import TUNE_RUN
from tests.slurm_jobs.cli.command import run_command
from tests.slurm_jobs.run.fabricate import end, make_run, submit

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
    run_command("tune", *words, code=2)
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
    assert "--out other.yaml: this file exists already; name a new one, or move it away" in said
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


def test_a_spec_with_a_change_is_printed_with_the_command_that_runs_it(spec: Path) -> None:
    new = TunedSpec(path=spec, is_whole=False, why="", overrides=("name=my run",))
    lines = _spec_lines(new, spec.with_name("tuned.yaml"), has_changes=True)
    assert lines[-3:] == [
        "  --set 'name=my run'",
        f"next: {command_text('submit', 'tuned.yaml', '--set', 'name=my run')}",
        "then, next to a run of the old one: slurm-jobs compare OLD_RUN NEW_RUN",
    ]
    assert "next: " not in "".join(_spec_lines(new, None, has_changes=True))  # its paths are others


def test_a_result_is_final_only_while_the_stage_that_made_it_is_complete(tmp_path: Path) -> None:
    paths = make_run(tmp_path / "run", {"train": 1}, scheduler="local")
    stage = {"run": TUNE_RUN, "config": {"phase": None, "train": {"phases": []}}}
    paths.resolved_spec.parent.mkdir()
    write_json_atomic(paths.resolved_spec, {"stages": {"train": stage}})
    write_json_atomic(paths.spec_origin, {"overrides": []})
    tuned = read_tune_run(paths.run_dir)
    assert not _is_final(tuned)
    submit(paths, "train", 1, "1")
    end(paths, "train", [0])
    assert not _is_final(tuned)
    tuned.result_path.parent.mkdir(parents=True)
    tuned.result_path.write_text("{}")
    assert _is_final(tuned)
    submit(paths, "train", 1, "2")  # as a resume with a larger budget does
    assert not _is_final(tuned)


def test_a_change_left_out_by_the_budget_is_printed_with_the_resume(spec: Path) -> None:
    result = {"stage": "train", "more_budget_min": 7}
    sets = ["--set", "stages.train.config.budget_min=7"]
    sets += ["--set", "stages.train.resources.timeout_min=22"]
    (line,) = _more_lines(spec.parent / "my run", result)
    assert line == f"next: {command_text('resume', 'my run', *sets)}"
    result = {"stage": "train", "more_budget_min": None, "closing": None, "is_taken_back": False}
    assert _more_lines(spec.parent, result) == []
    assert _more_lines(spec.parent, {"stage": "train"}) == []  # of an earlier version
