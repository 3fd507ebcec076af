"""Which runs a spec file means, where others have its name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.files import read_json
from slurm_jobs.commands.resume import ResumeRequest, resume
from slurm_jobs.commands.run_search.find_run import find_run
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.commands.submit import submit
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.schedulers.fake_slurm import make_fake_slurm

SPEC = "name: words\nruns_dir: {runs}\nstages:\n  a:\n    shell: {shell}\n"


@pytest.fixture(autouse=True)
def no_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm's programs accept jobs and know none."""
    fake = make_fake_slurm(tmp_path / "bin", monkeypatch)
    fake.says("sbatch", "Submitted batch job 1")
    for program in ("scontrol", "sinfo", "sacctmgr", "squeue"):
        fake.says(program, "")


def write(file: Path, *, shell: str = "'true'", runs: str | Path = "runs") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(SPEC.format(runs=runs, shell=shell))
    return file


def submitted(file: Path) -> Path:
    return submit(load(file)).paths.run_dir


def test_two_specs_with_one_name_mean_each_its_own_runs(tmp_path: Path) -> None:
    first, second = (write(tmp_path / name, shell=name) for name in ("a.yaml", "b.yaml"))
    of_first, of_second = submitted(first), submitted(second)
    assert (find_run(str(first)), find_run(str(second))) == (of_first, of_second)


def test_a_run_of_another_spec_is_refused_and_both_are_named(tmp_path: Path) -> None:
    first, second = write(tmp_path / "a.yaml"), write(tmp_path / "b.yaml")
    run = submitted(first)
    with pytest.raises(InputError, match="another `name`") as caught:
        find_run(str(second))
    for name in (str(first), str(second), str(run)):
        assert name in str(caught.value)


@pytest.mark.parametrize("link", ["link.yaml", "folder-link/a.yaml"])
def test_a_link_to_the_spec_is_the_spec(tmp_path: Path, link: str) -> None:
    run = submitted(write(tmp_path / "project/a.yaml", runs=tmp_path / "runs"))
    (tmp_path / "link.yaml").symlink_to("project/a.yaml")
    (tmp_path / "folder-link").symlink_to("project")
    assert find_run(str(tmp_path / link)) == run


def test_a_spec_that_was_moved_with_its_runs_means_them_even_when_edited(tmp_path: Path) -> None:
    run = submitted(write(tmp_path / "before/a.yaml"))
    shutil.move(tmp_path / "before", tmp_path / "after")
    write(tmp_path / "after/a.yaml", shell="other")
    moved = tmp_path / "after/runs" / run.name
    assert find_run(str(tmp_path / "after/a.yaml")) == moved
    other = write(tmp_path / "after/b.yaml", shell="other")
    with pytest.raises(InputError, match=r"before/a.yaml, which does not exist any more"):
        find_run(str(other))


def test_a_moved_spec_means_its_runs_while_its_text_is_the_same(tmp_path: Path) -> None:
    file = write(tmp_path / "home/a.yaml", runs=tmp_path / "scratch")
    run = submitted(file)
    moved = tmp_path / "elsewhere.yaml"
    file.rename(moved)
    assert find_run(str(moved)) == run
    write(moved, runs=tmp_path / "scratch", shell="other")
    with pytest.raises(InputError, match=r"had another text. If both are the same spec") as caught:
        find_run(str(moved))
    assert f"{file}, which does not exist" in str(caught.value)
    assert f"name the run: {run}; `resume` takes the file as `--spec`" in str(caught.value)


def test_a_copy_of_a_spec_is_another_spec(tmp_path: Path) -> None:
    file = write(tmp_path / "a.yaml")
    submitted(file)
    shutil.copy(file, tmp_path / "copy.yaml")
    with pytest.raises(InputError, match="another `name`"):
        find_run(str(tmp_path / "copy.yaml"))


def test_a_run_that_took_a_moved_spec_belongs_to_it_from_then_on(tmp_path: Path) -> None:
    file = write(tmp_path / "home/a.yaml", runs=tmp_path / "scratch")
    run = submitted(file)
    moved = tmp_path / "elsewhere/a.yaml"
    moved.parent.mkdir()
    file.rename(moved)
    resume(run, ResumeRequest(update_spec=True, spec_file=moved))
    write(moved, runs=tmp_path / "scratch", shell="other")
    assert find_run(str(moved)) == run
    assert read_json(RunPaths(run).spec_origin)["spec_dir"] == str(moved.parent)


@pytest.mark.parametrize("text", ["{}", "[", '{"spec_file": 1}'])
def test_a_run_that_does_not_record_its_spec_is_not_taken(tmp_path: Path, text: str) -> None:
    file = write(tmp_path / "a.yaml")
    run = submitted(file)
    for record in (RunPaths(run).spec_origin, RunPaths(run).run_json):
        record.write_text(text)
    with pytest.raises(InputError, match="does not record the file"):
        find_run(str(file))
