"""Commands are quoted for a shell."""

from pathlib import Path

import pytest

from slurm_jobs.cli.terminal.shown_paths import command_text
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.cli.run_view.offered_resumes import failed, lines_of


@pytest.fixture(autouse=True)
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    """The folder of the run, in the working folder."""
    monkeypatch.chdir(tmp_path)
    return RunPaths(tmp_path / "run")


@pytest.mark.parametrize("name", ["my run", "it's", 'so "called"'])
def test_the_command_is_quoted_for_a_shell(tmp_path: Path, name: str) -> None:
    paths = RunPaths(tmp_path / name)
    settings = ("stages.a.config.budget_min=6", "stages.a.shell=echo 'a b'")
    words = [word for setting in settings for word in ("--set", setting)]
    made = failed(paths, reasons=[{"kind": "wrong config", "resumes": [words]}])
    assert lines_of(paths, made)[-1] == f"next: {command_text('resume', name, *words)}"
