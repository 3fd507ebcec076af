"""Which run a command takes if the user names none, and which run a message names."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from slurm_jobs.base.errors import InputError
from slurm_jobs.commands.run_search.find_run import find_run
from slurm_jobs.commands.run_search.newest_run import NewestRun, newest_run
from slurm_jobs.commands.run_search.remembered_dirs import remember
from tests.slurm_jobs.cli.command import run_command
from tests.slurm_jobs.commands.unmounted import remember_unmounted
from tests.slurm_jobs.run.closed import close

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
def test_the_newest_run_near_the_working_folder_is_taken_or_named(
    project: Path, monkeypatch: pytest.MonkeyPatch, here: str, run: str
) -> None:
    monkeypatch.chdir(project / here)
    assert newest_run() == NewestRun(run_dir=project / run, scope="near")
    folder = re.escape(str((project / run).parent))
    words = f"{project / here}/runs, .*near this folder is {project / run}: .* `export "
    with pytest.raises(InputError, match=f"{words}SLURM_JOBS_RUNS_DIR={folder}`$"):
        find_run("wor")


def test_a_working_folder_that_cannot_be_listed_hides_no_run_above_it(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project / "project/data")
    close(project / "project/data", monkeypatch, may_enter=True)
    assert newest_run() == NewestRun(run_dir=project / f"project/runs/{RUN}", scope="near")


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
        find_run("words-20250102")
    (value,) = re.findall(r"`export SLURM_JOBS_RUNS_DIR=(.*)`", str(caught.value))
    monkeypatch.setenv("SLURM_JOBS_RUNS_DIR", value)
    assert find_run("words-20250102").name == RUN


def test_runs_names_a_folder_only_where_the_user_named_none(
    project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(project / "project/data")
    run_command("runs", code=2)
    assert RUN in capsys.readouterr().err
    run_command("runs", "--dir", "raw")
    assert capsys.readouterr().out == "no run in raw\n"


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of runs that the specs of two projects share; the user stands in `a`."""
    monkeypatch.delenv("SLURM_JOBS_RUNS_DIR", raising=False)
    for number, name in enumerate(("a", "b"), start=1):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        spec = tmp_path / name / "specs/s.yaml"
        make_run(tmp_path / f"scratch/{name}-2025010{number}-000000-aaaa", str(spec), 1e9 + number)
        remember(tmp_path / "scratch", spec.parent)
    monkeypatch.chdir(tmp_path / "a")
    return tmp_path / "scratch"


def test_the_newest_run_is_the_one_of_a_spec_in_the_working_folder(scratch: Path) -> None:
    run = scratch / "a-20250101-000000-aaaa"
    assert newest_run() == NewestRun(run_dir=run, scope="from here")
    make_run(scratch.parent / "a/runs/old-20250101-000000-aaaa", "/x.yaml", 2e9)
    assert newest_run().run_dir == run


def test_specs_that_share_the_folder_runs_keep_their_own_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "runs/a-20250101-000000-aaaa"
    make_run(own, str(tmp_path / "a.yaml"), 1e9)
    other = tmp_path / "runs/b-20250102-000000-aaaa"
    make_run(other, "/elsewhere/b.yaml", 2e9)
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path / "data")
    assert newest_run() == NewestRun(run_dir=own, scope="near")
    monkeypatch.chdir(tmp_path)
    assert newest_run() == NewestRun(run_dir=own, scope="from here")
    (own / "run.json").unlink()
    assert newest_run() == NewestRun(run_dir=other, scope="usual")


def test_a_run_belongs_to_the_folder_in_which_submit_was_typed(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = scratch.parent / "c"
    project.mkdir()
    run = scratch / "c-20250103-000000-aaaa"
    make_run(run, "/elsewhere/c.yaml", 1e9)
    (run / "provenance").mkdir()
    (run / "provenance/0001.json").write_text(json.dumps({"working_dir": str(project)}))
    monkeypatch.chdir(project)
    remember(scratch, Path("/elsewhere"))
    assert newest_run() == NewestRun(run_dir=run, scope="from here")


def test_elsewhere_the_newest_run_of_this_user_is_taken(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (scratch.parent / "empty").mkdir()
    monkeypatch.chdir(scratch.parent / "empty")
    run = scratch / "b-20250102-000000-aaaa"
    assert newest_run() == NewestRun(run_dir=run, scope="anywhere")
    own = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: own + 1)  # the runs are a colleague's
    with pytest.raises(InputError, match=r"there is no run here yet: .* `slurm-jobs submit SPEC`"):
        newest_run()


def test_a_folder_of_runs_that_is_not_mounted_is_reported(
    scratch: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    away = scratch.parent / "unmounted/ada/runs"
    remember_unmounted(away, Path.cwd(), monkeypatch)
    assert list(newest_run().away) == [away]
    run_command("report", code=3)
    shown = capsys.readouterr().err
    assert f"note: {scratch}/a-20250101-000000-aaaa is the newest run that was submitted" in shown
    assert f"note: {away} may have a newer run, but cannot be read: No such file" in shown


def test_the_variable_names_the_only_folder_that_is_searched(
    scratch: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = scratch.parent / "mine/b-20240101-000000-aaaa"
    make_run(run, "/b.yaml", 1e9)
    monkeypatch.setenv("SLURM_JOBS_RUNS_DIR", str(run.parent))
    assert newest_run() == NewestRun(run_dir=run, scope="usual")
    with pytest.raises(InputError, match="no run `a`"):
        find_run("a")
