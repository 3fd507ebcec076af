"""Which run the message names where the folder of runs has none."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from slurm_jobs.commands.find_run import find_run
from slurm_jobs.shared.errors import InputError
from tests.slurm_jobs.cli.command import run_command

RUN, OLDER = "words-20250102-000000-bbbb", "words-20250101-000000-aaaa"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two runs in `runs`, and a spec that keeps its one run elsewhere."""
    monkeypatch.delenv("SLURM_JOBS_RUNS_DIR", raising=False)
    for number, name in enumerate((OLDER, RUN)):
        make_run(tmp_path / "project/runs" / name, "s.yaml", 1e9 + number)
    spec = tmp_path / "specs/far.yaml"
    spec.parent.mkdir()
    spec.write_text(f"name: far\nruns_dir: {tmp_path}/scratch\nstages: {{a: {{shell: x}}}}\n")
    (spec.parent / "data.yaml").write_text("[")
    make_run(tmp_path / "scratch/far-20250101-000000-cccc", str(spec), 1e9)
    make_run(tmp_path / f"scratch/{RUN}", "/elsewhere.yaml", 2e9)
    for folder in ("project/data/raw", "project/empty"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path


def make_run(folder: Path, spec: str, time_s: float) -> None:
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({"spec_file": spec}))
    os.utime(folder / "run.json", (time_s, time_s))


@pytest.mark.parametrize(
    ("here", "run"),
    [
        ("project/data", f"project/runs/{RUN}"),
        ("project/data/raw", f"project/runs/{RUN}"),
        ("project/runs", f"project/runs/{RUN}"),
        (f"project/runs/{OLDER}", f"project/runs/{OLDER}"),
        ("specs", "scratch/far-20250101-000000-cccc"),
    ],
)
@pytest.mark.parametrize("text", [None, "wor"])
def test_the_message_names_the_newest_run_near_the_working_folder(
    project: Path, monkeypatch: pytest.MonkeyPatch, here: str, run: str, text: str | None
) -> None:
    monkeypatch.chdir(project / here)
    folder = re.escape(str((project / run).parent))
    words = f"{project / here}/runs, .*near this folder is {project / run}: .* `export "
    with pytest.raises(InputError, match=f"{words}SLURM_JOBS_RUNS_DIR={folder}`$"):
        find_run(text)


def test_runs_in_the_working_folder_are_named_if_the_variable_lacks_them(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project / "project")
    monkeypatch.setenv("SLURM_JOBS_RUNS_DIR", "empty")
    with pytest.raises(InputError, match=f"{project}/project/runs/{RUN}: name it"):
        find_run(None)


def test_the_command_in_the_message_finds_the_run(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project / "project/data")
    with pytest.raises(InputError) as caught:
        find_run(None)
    (value,) = re.findall(r"`export SLURM_JOBS_RUNS_DIR=(.*)`", str(caught.value))
    monkeypatch.setenv("SLURM_JOBS_RUNS_DIR", value)
    assert find_run(None).name == RUN


def test_runs_names_a_folder_only_where_the_user_named_none(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project / "project/data")
    run_command("runs", code=2)
    assert RUN in capsys.readouterr().err
    run_command("runs", "--dir", "raw")
    assert capsys.readouterr().out == "no run in raw\n"
