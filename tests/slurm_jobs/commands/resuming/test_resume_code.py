"""Whether the code that a resume runs has the functions that its spec names."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.base.errors import InputError
from slurm_jobs.commands.resume import ResumeRequest, Resumption, resume
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.commands.submit import submit
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.schedulers.fake_slurm import make_fake_slurm

SPEC = """\
name: s
cluster: auto
stages:
  a: {run: "mine:work"}
"""
WORK = "def work(config, context): ...\n"


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunPaths:
    """A run whose snapshot has `mine`; its job is unknown to Slurm."""
    fake = make_fake_slurm(tmp_path / "bin", monkeypatch)
    fake.says("sbatch", "Submitted batch job 1")
    for program in ("scontrol", "sinfo", "sacctmgr", "squeue"):
        fake.says(program, "")
    (tmp_path / "spec.yaml").write_text(SPEC)
    (tmp_path / "mine.py").write_text(WORK)
    return submit(load(tmp_path / "spec.yaml")).paths


def try_resume(paths: RunPaths, run: str, *others: str, update_code: bool = False) -> Resumption:
    overrides = [f"stages.a.run={run}", *others]
    request = ResumeRequest(overrides=overrides, update_code=update_code, dry_run=True)
    return resume(paths.run_dir, request)


@pytest.mark.parametrize(
    ("files", "run", "words"),
    [
        ({}, "mine:wrok", "user/mine.py defines no `wrok`; did you mean `work`?"),
        ({}, "mien:work", "no module `mien` in the code of this run .*did you mean `mine`?"),
        (
            {"mine.py": f"{WORK}def more(config, context): ...\n"},
            "mine:more",
            "user/mine.py defines no `more`.*; --update-code takes your code as it is now$",
        ),
        (
            {"other.py": WORK},
            "other:work",
            "your code that this run has lacks the module `other`, .*; --update-code takes your",
        ),
        ({"other.py": "def work(): ..."}, "other:work", "lacks the module `other`.* this copy$"),
    ],
)
def test_a_function_that_the_runs_copy_of_the_code_lacks_is_refused(
    paths: RunPaths, tmp_path: Path, files: dict[str, str], run: str, words: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=f"^`run: {run}`: .*{words}"):
        try_resume(paths, run)


def test_a_function_of_the_snapshot_is_accepted_whatever_todays_code_is(
    paths: RunPaths, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text("def work(config): ...\n")
    (job,) = try_resume(paths, "mine:work").plan.jobs
    assert job.stage == "a"
    with pytest.raises(InputError, match=r"mine.py:1: `work\(config\)` takes 1 value"):
        try_resume(paths, "mine:work", update_code=True)


@pytest.mark.parametrize("run", ["elsewhere.package:work", "json:dumps", "preprocess_tools:run"])
def test_a_module_of_the_stages_python_is_not_looked_for(paths: RunPaths, run: str) -> None:
    assert try_resume(paths, run).plan.jobs


def test_a_similar_module_may_be_in_another_python(paths: RunPaths) -> None:
    assert try_resume(paths, "mien:work", "stages.a.setup.0='module load x'").plan.jobs


@pytest.mark.parametrize("place", ["other.py", "lib/other.py", "lib/other/__init__.py"])
def test_new_code_is_checked_next_to_the_spec_and_under_code(
    paths: RunPaths, tmp_path: Path, place: str
) -> None:
    file = tmp_path / place
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(WORK)
    listed = {"lib/other.py": "lib/other.py", "lib/other/__init__.py": "lib/other"}.get(place)
    overrides = [] if listed is None else [f"code.0={listed}"]
    with pytest.raises(InputError, match=r"lacks the module `other`.*--update-code"):
        try_resume(paths, "other:work", *overrides)
    assert try_resume(paths, "other:work", *overrides, update_code=True).plan.jobs
    with pytest.raises(InputError, match="defines no `wrok`"):
        try_resume(paths, "other:wrok", *overrides, update_code=True)


def test_an_updated_spec_is_checked_against_the_code_that_runs(
    paths: RunPaths, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text("def more(config, context): ...\n")
    (tmp_path / "spec.yaml").write_text(SPEC.replace("work", "more"))
    request = ResumeRequest(update_spec=True, dry_run=True)
    with pytest.raises(InputError, match=r"user/mine.py defines no `more`.*--update-code takes"):
        resume(paths.run_dir, request)
    request = ResumeRequest(update_spec=True, update_code=True, dry_run=True)
    assert resume(paths.run_dir, request).plan.jobs


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_resume_that_copies_the_code_again_notes_the_private_files(
    paths: RunPaths, tmp_path: Path, dry_run: bool
) -> None:
    (tmp_path / "mine.py").unlink()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "__init__.py").write_text(WORK)
    (tmp_path / "mine" / ".env").write_text("HF_TOKEN=x")
    assert resume(paths.run_dir, ResumeRequest(dry_run=True)).private_note is None
    resumption = resume(paths.run_dir, ResumeRequest(update_code=True, dry_run=dry_run))
    assert resumption.private_note is not None
    assert "mine/.env (hidden)" in resumption.private_note
