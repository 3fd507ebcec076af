"""A submit where Slurm does not answer, or only in part."""

from __future__ import annotations

from pathlib import Path

import pytest

from slurm_jobs.base.errors import SchedulerError
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.commands.submit import submit
from tests.slurm_jobs.cli.command import run_command
from tests.slurm_jobs.commands.submitted_spec import slurm, spec
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm

__all__ = ["slurm", "spec"]


def test_a_submit_that_reaches_no_controller_leaves_no_run(
    slurm: FakeSlurm, spec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_command("submit", str(spec), code=3)
    said = capsys.readouterr().err
    assert "nothing was created or submitted" in said
    assert "Unable to contact slurm controller (connect failure)" in said
    assert "--set cluster=local" in said
    assert not (tmp_path / "runs").exists()
    assert slurm.calls("sbatch") == []


@pytest.mark.parametrize("program", ["scontrol", "sinfo", "squeue"])
def test_a_submit_goes_on_where_any_question_is_answered(
    slurm: FakeSlurm, spec: Path, program: str
) -> None:
    slurm.says(program, "")
    slurm.says("sbatch", "Submitted batch job 12")
    submission = submit(load(spec))
    assert [job.job_id for job in submission.jobs] == ["12"]
    assert all("Slurm did not answer a query for" in note for note in submission.notes)
    assert submission.notes


def test_where_slurm_has_no_programs_here_nothing_is_made_either(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ours.yaml").write_text("scheduler: slurm\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SchedulerError, match="is this a login node"):
        submit(load(spec, overrides=["cluster=ours.yaml"]))
    assert not (tmp_path / "runs").exists()
