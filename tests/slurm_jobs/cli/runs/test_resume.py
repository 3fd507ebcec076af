"""What `resume` says. Slurm's programs are the test's own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from slurm_jobs.base.files import read_json, write_json_atomic
from slurm_jobs.cli.runs.resume import notes_of
from slurm_jobs.commands.resume import Resumption
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.commands.submit import submit
from slurm_jobs.plan.planned import Plan
from slurm_jobs.run.submission import Connections
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_run
from tests.slurm_jobs.cli.command import run_command
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm, make_fake_slurm, queue_row

SPEC = """\
name: s
cluster: auto
stages:
  train:
    shell: "true"
    resources: {gpus_per_node: 1, gpu: [a100, v100]}
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    fake = make_fake_slurm(tmp_path / "bin", monkeypatch)
    fake.says("sbatch", "Submitted batch job 1")
    for program in ("scontrol", "sinfo", "sacctmgr"):
        fake.says(program, "")
    return fake


@pytest.fixture
def paths(slurm: FakeSlurm, tmp_path: Path) -> RunPaths:
    """A training that was begun on a v100, and whose job is queued again as job 1."""
    (tmp_path / "spec.yaml").write_text(SPEC)
    paths = submit(load(tmp_path / "spec.yaml")).paths
    (stage,) = read_json(paths.plan(1))["stages"]
    record = {"started_unix_s": 1.0, "fingerprint": stage["fingerprint"], "gpu": "v100"}
    attempt = paths.attempt("train", 0, 1)
    attempt.parent.mkdir(parents=True)
    write_json_atomic(attempt, record)
    return paths


def name_in(paths: RunPaths) -> str:
    """What the run's job is called."""
    (name,) = read_run(paths.run_dir).jobs
    return name


def resume(paths: RunPaths) -> None:
    run_command("resume", str(paths.run_dir), "--dry-run")


def test_a_resume_of_an_active_run_says_that_all_is_queued_or_running(
    slurm: FakeSlurm, paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.says("squeue", queue_row("1", "PENDING", name=name_in(paths)))
    resume(paths)
    said = capsys.readouterr().out
    assert "all that is missing is queued or running" in said
    assert "nothing is missing" not in said
    assert "requests changed" not in said


def test_a_resume_says_what_a_job_that_it_submits_asks_for_instead(
    slurm: FakeSlurm, paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.says("squeue", queue_row("1", "FAILED", name=name_in(paths)))
    resume(paths)
    said = capsys.readouterr().out
    assert "requests changed: train: gpu v100 only (started on it)" in said
    assert "all that is missing" not in said


HERE = "WORKING FOLDER"
IN_VAIN = "x: 64 has no effect: ..."
LEFT_OUT = "--set stages.x.retries=... is left out"
GOES_ON = "`fit` continues from its newest checkpoint"


@pytest.mark.parametrize(
    ("values", "note"),
    [
        ({"trainings": {"fit": "requested"}}, "`fit` begins at step 0, as requested; "),
        ({"trainings": {"fit": "changed"}}, "`fit` begins at step 0, because what it learns has "),
        ({"trainings": {"fit": "continues"}}, f"{GOES_ON}: "),
        ({"trainings": {"fit": "depends"}}, f"{GOES_ON}, unless what it learns or its data "),
        ({"left_out": (LEFT_OUT,)}, LEFT_OUT),
        ({"private_note": "code: 1 file or folder is not copied"}, "code: 1 file or folder is"),
        ({"spec_notes": (f"{HERE}/a.yaml:3:1: {IN_VAIN}",)}, f"a.yaml:3:1: {IN_VAIN}"),
        ({"spec_notes": (IN_VAIN,)}, IN_VAIN),
    ],
)
def test_what_to_know_of_a_resume_is_noted(values, note, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notes = values.get("spec_notes", ())
    resumption = Resumption(
        paths=RunPaths(Path("run")),
        plan=Plan(name="run", stages=(), jobs=()),
        preparation=SimpleNamespace(connections=Connections()),
        code_changed=False,
        **{**values, "spec_notes": tuple(n.replace(HERE, str(tmp_path)) for n in notes)},
    )
    (said,) = notes_of(resumption)
    assert said.startswith(note)


def test_jobs_of_an_earlier_version_run_the_current_one_and_a_note_says_so(
    slurm: FakeSlurm, paths: RunPaths, capsys: pytest.CaptureFixture[str]
) -> None:
    """Submitted by an earlier version, whose orders lack keys and whose code knows none of them."""
    (first,) = paths.code_dir.iterdir()
    old = first.rename(paths.code_dir / "old")
    (old / "made_by.json").unlink()
    plan = read_json(paths.plan(1))
    write_json_atomic(paths.plan(1), {**plan, "snapshot": {**plan["snapshot"], "name": "old"}})
    (job,) = paths.job_dir("x").parent.iterdir()
    order = read_json(job / "job.json")
    del order["num_again"], order["resources"]["gpu_kept"]
    write_json_atomic(job / "job.json", order)
    slurm.says("squeue", queue_row("1", "FAILED"))
    for dry in (["--dry-run"], []):
        run_command("resume", str(paths.run_dir), *dry)
        said = capsys.readouterr().out
        assert "run the current slurm-jobs, with your code as the run has it" in said
        assert sorted(paths.code_dir.iterdir()) == ([old] if dry else sorted([old, first]))
    assert read_json(paths.plan(2))["snapshot"] == plan["snapshot"]
    new = next(j for j in job.parent.iterdir() if j != job)
    assert read_json(new / "job.json")["start_script"] == str(first / "start.py")


def test_a_note_says_that_an_edit_of_the_specs_file_is_not_used(
    slurm: FakeSlurm, paths: RunPaths, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.says("squeue", queue_row("1", "FAILED", name=name_in(paths)))
    note = "the spec's file differs from what this run was given, which is used; --update-spec"

    def says(*words: str) -> bool:
        run_command("resume", str(paths.run_dir), "--dry-run", *words)
        return note in capsys.readouterr().out

    assert not says()
    (tmp_path / "spec.yaml").write_text(SPEC.replace('"true"', '"false"'))
    assert says()
    assert says("--json")
    assert not says("--update-spec")
