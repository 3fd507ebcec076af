"""The folders of runs that commands remember, in the folder that `XDG_STATE_HOME` names."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from slurm_jobs.commands.run_search import remembered_dirs as remembering
from slurm_jobs.commands.run_search.remembered_dirs import (
    remember,
    remembered_dirs,
    searchable_dirs,
)
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.commands.submit import submit
from tests.slurm_jobs.commands.unmounted import remember_unmounted
from tests.slurm_jobs.schedulers.fake_slurm import make_fake_slurm


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state/slurm-jobs/runs-dirs"


def set_age(folder: Path, age_s: float) -> None:
    """Let the entry of a folder of runs be so old."""
    for entry in remembered_dirs():
        if entry.runs_dir == folder:
            os.utime(entry.record, (time.time() - age_s,) * 2)


def remembered() -> list[Path]:
    return [entry.runs_dir for entry in remembered_dirs()]


def test_the_folder_of_the_last_submit_comes_first(state: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder, age_s in ((first, 20), (second, 10)):
        assert remember(folder, tmp_path) is None
        set_age(folder, age_s)
    assert remembered() == [second, first]
    assert remember(first, tmp_path) is None
    assert remembered() == [first, second]
    modes = {stat.S_IMODE(path.stat().st_mode) for path in state.iterdir()}
    assert (modes, stat.S_IMODE(state.stat().st_mode)) == ({0o600}, 0o700)


def test_only_the_newest_entries_are_kept(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remembering, "MAX_REMEMBERED", 3)
    for number in range(5):
        remember(tmp_path / str(number), tmp_path)
        set_age(tmp_path / str(number), 100 - number)
    assert [path.name for path in remembered()] == ["4", "3", "2"]
    assert len(list(state.iterdir())) == 3


def test_login_nodes_that_write_at_once_lose_no_entry(state: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; "
        "from slurm_jobs.commands.run_search.remembered_dirs import remember; "
        "[remember(Path('/runs', sys.argv[1], str(n)), Path('/specs')) for n in range(10)]"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    writers = [
        subprocess.Popen([sys.executable, "-c", code, str(number)], env=environment)
        for number in range(4)
    ]
    assert [writer.wait() for writer in writers] == [0] * 4
    assert len(remembered()) == 40


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"runs_dir": 1, "spec_dir": 2}'])
def test_a_damaged_entry_is_passed_over(state: Path, tmp_path: Path, content: str) -> None:
    remember(tmp_path / "runs", tmp_path)
    (state / "0123.json").write_text(content)
    assert remembered() == [tmp_path / "runs"]
    remembered_dirs()[0].record.write_text(content)
    assert remembered() == []
    remember(tmp_path / "runs", tmp_path)  # the next submit mends it
    assert remembered() == [tmp_path / "runs"]


def test_a_removed_folder_is_forgotten_and_an_unmounted_one_is_kept(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, removed, unmounted = (tmp_path / name for name in ("a/runs", "gone/runs", "b/runs"))
    for folder in (there, unmounted.parent):
        folder.mkdir(parents=True)
    dangling = tmp_path / "a/link"
    dangling.symlink_to("/scratch-away/runs")
    for folder in (there, removed, dangling):
        remember(folder, tmp_path)
    remember_unmounted(unmounted, tmp_path, monkeypatch)
    known = searchable_dirs(remembered_dirs())
    assert known.there == (there,)
    assert set(known.away) == {unmounted, dangling}
    assert set(remembered()) == {there, unmounted, dangling}


def test_a_file_server_that_does_not_answer_holds_up_no_command(
    state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, silent = tmp_path / "runs", tmp_path / "silent"
    for folder in (there, silent):
        folder.mkdir()
        remember(folder, tmp_path)
    answered, real = threading.Event(), os.listdir

    def listdir(path: Path) -> list[str]:
        if path == silent:
            answered.wait(60)
        return real(path)

    monkeypatch.setattr(os, "listdir", listdir)
    try:
        known = searchable_dirs(remembered_dirs(), limit_s=0.2)
    finally:
        answered.set()
    assert (known.there, dict(known.away)) == (
        (there,),
        {silent: "its file system does not answer"},
    )
    assert silent in remembered()


SPEC = "name: s\nruns_dir: {runs}\nstages: {{a: {{shell: 'true'}}}}\n"


@pytest.fixture
def spec(state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A spec in the working folder whose runs are elsewhere; Slurm accepts its jobs."""
    monkeypatch.delenv("SLURM_JOBS_RUNS_DIR", raising=False)
    fake = make_fake_slurm(tmp_path / "bin", monkeypatch)
    fake.says("sbatch", "Submitted batch job 1")
    for program in ("scontrol", "sinfo", "sacctmgr", "squeue"):
        fake.says(program, "")
    file = tmp_path / "spec.yaml"
    file.write_text(SPEC.format(runs=tmp_path / "scratch"))
    return file


def test_a_submit_remembers_its_folder_of_runs(spec: Path, tmp_path: Path) -> None:
    assert not any("remembered" in note for note in submit(load(spec)).notes)
    assert remembered() == [tmp_path / "scratch"]
    submit(load(spec), is_remembered=False)
    assert len(remembered()) == 1


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EACCES])
def test_a_home_that_cannot_be_written_costs_a_note_at_most(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(path: Path, *_: object) -> None:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(remembering, "make_private_dir", refuse)
    submission = submit(load(spec))
    assert len(submission.jobs) == 1
    (note,) = (note for note in submission.notes if "remembered" in note)
    assert str(tmp_path / "scratch") in note
    assert os.strerror(number) in note
    spec.write_text(SPEC.format(runs="runs"))  # where commands look anyway
    assert not any("remembered" in note for note in submit(load(spec)).notes)


def test_a_home_that_does_not_exist_is_not_made(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "relative")  # ignored, as its specification has it
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    assert any("nobody does not exist" in note for note in submit(load(spec)).notes)
    assert remembered() == []
    assert not (tmp_path / "nobody").exists()
    (tmp_path / "nobody").mkdir()
    submit(load(spec))
    assert remembered() == [tmp_path / "scratch"]
    assert (tmp_path / "nobody/.local/state/slurm-jobs").is_dir()
