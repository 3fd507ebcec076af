"""Slurm's programs are the test's own: a controller that nobody reaches cannot be had otherwise."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from slurm_jobs.base.errors import InputError
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.commands.submit import submit
from slurm_jobs.run.observe import status_of
from slurm_jobs.run_folder.ledger import Intent, intents, is_superseded, read_ledger
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_meta
from tests.slurm_jobs.cli.command import run_command
from tests.slurm_jobs.commands.submitted_spec import SPEC, slurm, spec
from tests.slurm_jobs.run.closed import close
from tests.slurm_jobs.schedulers.fake_slurm import NAMES_HEADER, FakeSlurm, queue_row

__all__ = ["slurm", "spec"]


def test_submit_warns_of_settings_without_effect(slurm: FakeSlurm, spec: Path) -> None:
    slurm.says("sinfo", "")
    slurm.says("sbatch", "Submitted batch job 12")
    (spec.parent / "dataset.json").write_text("{}")
    config = "{device: cpu, strategy: single, num_steps: 1, dataset: ., memory_share: 0.8}"
    spec.write_text(f"name: s\ncluster: auto\nstages: {{t: {{run: train, config: {config}}}}}\n")
    note = submit(load(spec)).notes[0]
    assert note.startswith(f"{spec}:3:")
    assert "stages.t.config.memory_share: `0.8` has no effect" in note


def test_a_run_remembers_the_cluster_and_the_user_that_have_its_jobs(
    slurm: FakeSlurm, spec: Path
) -> None:
    slurm.says("scontrol", "MaxArraySize            = 1001\nClusterName             = sprint-2\n")
    slurm.says("sbatch", "Submitted batch job 12")
    meta = read_meta(submit(load(spec)).paths)
    assert (meta.cluster_name, meta.uid) == ("sprint-2", os.getuid())


def test_check_cluster_says_where_the_environment_names_the_partition(
    slurm: FakeSlurm,
    spec: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SBATCH_PARTITION", "gpu")
    for program in ("scontrol", "sinfo", "squeue"):
        slurm.says(program, "")
    run_command("check", "--cluster", str(spec))
    assert "SBATCH_PARTITION=gpu of this shell applies to" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["check", "plan", "submit"])
def test_code_that_cannot_be_copied_is_refused_before_the_run_is_created(
    spec: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    verb: str,
) -> None:
    (tmp_path / "helpers" / "deep").mkdir(parents=True)
    spec.write_text(SPEC.replace("auto", "local") + "code: [helpers]\n")
    close(tmp_path / "helpers" / "deep", monkeypatch)
    run_command(verb, str(spec), code=2)
    assert f"{tmp_path}/helpers/deep: Permission denied" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("step", ["take_snapshot", "write_plan"])
@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt()])
def test_a_submit_that_fails_before_its_plan_is_written_leaves_no_run(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, error: BaseException
) -> None:
    def fails(*_: object) -> None:
        raise error

    spec.write_text(SPEC.replace("auto", "local"))
    monkeypatch.setattr(f"slurm_jobs.commands.submit.{step}", fails)
    with pytest.raises(type(error)):
        submit(load(spec))
    assert list((tmp_path / "runs").iterdir()) == []


def test_a_submit_that_fails_after_its_plan_is_written_keeps_its_run(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise InputError

    spec.write_text(SPEC.replace("auto", "local"))
    monkeypatch.setattr("slurm_jobs.commands.submit.submit_plan", fails)
    with pytest.raises(InputError):
        submit(load(spec))
    (run_dir,) = (tmp_path / "runs").iterdir()
    assert (run_dir / "plans" / "0001.json").is_file()


NONSENSE = "Thank you for computing.\n\tCome again\n"


@pytest.fixture
def nonsense(slurm: FakeSlurm, spec: Path) -> FakeSlurm:
    """Its sbatch ends well and names no job; its squeue knows the jobs that `in_queue` says."""
    for program in ("scontrol", "sinfo", "squeue", "sacct"):
        slurm.says(program, "")
    slurm.says("sbatch", NONSENSE)
    return slurm


def in_queue(slurm: FakeSlurm, job_id: str, name: str) -> None:
    """What squeue says of a job that waits, when asked for it by its name and when for all."""
    row = queue_row(job_id, "PENDING", "Priority", name=name)
    slurm.controller_says(row)
    (slurm.folder / "squeue").write_text(
        f'#!/bin/bash\nprintf "%s\\n" "squeue $*" >> "{slurm.folder}/calls"\n'
        f'case " $* " in *" --name {name} "*) echo "{NAMES_HEADER}{job_id}|PENDING||{name}" ;;\n'
        f'  *" --name "*) echo "{NAMES_HEADER}" ;; *) printf "%s" "{row.strip()}" ;; esac\n'
    )


def submit_in_vain(spec: Path, capsys: pytest.CaptureFixture[str]) -> tuple[RunPaths, str, str]:
    """The run, the token of its one job, and what was said."""
    run_command("submit", str(spec), code=3)
    (run_dir,) = (spec.parent / "runs").iterdir()
    paths = RunPaths(run_dir)
    (intent,) = intents(read_ledger(paths.ledger_dir))
    assert (intent.job_id, intent.refused, intent.cancelled) == (None, None, False)
    return paths, intent.token, capsys.readouterr().err


def resumed(paths: RunPaths, code: int = 0) -> list[Intent]:
    run_command("resume", str(paths.run_dir), code=code)
    return intents(read_ledger(paths.ledger_dir))


def test_an_sbatch_that_answers_nonsense_is_reported_and_the_intent_kept(
    nonsense: FakeSlurm, spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths, token, said = submit_in_vain(spec, capsys)
    first, second = said.splitlines()
    assert first == (
        "slurm-jobs: the job of stage `a` may or may not have been submitted: sbatch exited with "
        "0, but printed no job id, only: Thank you for computing. Come again"
    )
    assert second == (
        f"Its name is s.a.{token}. To look it up and continue: slurm-jobs resume {paths.run_dir}"
    )
    (part,) = status_of(paths.run_dir).stage("a").slices
    assert (part.status, part.reason) == (
        "unknown",
        "its submission was cut off; `resume` looks for the job and continues",
    )


@pytest.mark.parametrize(
    ("answer", "told"),
    [("printf ''", "only: nothing"), (r"printf '\xff\n'", "printed no job id, only: \ufffd")],
)
def test_an_sbatch_that_says_nothing_or_no_text_is_no_crash(
    nonsense: FakeSlurm, spec: Path, capsys: pytest.CaptureFixture[str], answer: str, told: str
) -> None:
    (nonsense.folder / "sbatch").write_text(f"#!/bin/bash\n{answer}\n")
    assert told in submit_in_vain(spec, capsys)[2]


def test_a_job_accepted_with_a_nonsense_answer_is_adopted_by_a_resume(
    nonsense: FakeSlurm, spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths, token, _ = submit_in_vain(spec, capsys)
    in_queue(nonsense, "77", f"s.a.{token}")
    (intent,) = resumed(paths)
    assert (intent.token, intent.job_id) == (token, "77")
    assert sum(" --version" not in call for call in nonsense.calls("sbatch")) == 1
    assert "found the job of a again, whose id was not recorded: 77" in capsys.readouterr().out


def test_a_job_refused_with_a_nonsense_answer_is_submitted_by_a_resume(
    nonsense: FakeSlurm, spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths, token, _ = submit_in_vain(spec, capsys)
    again = resumed(paths, 3)  # sbatch is as before: nothing is lost, and nothing runs twice
    nonsense.says("sbatch", "Submitted batch job 78")
    *older, newest = resumed(paths)
    assert [intent.token for intent in (*older, newest)][:2] == [i.token for i in again]
    assert ([intent.job_id for intent in older], newest.job_id) == ([None, None], "78")
    assert is_superseded([*older, newest], token, 0)


def test_a_job_that_squeue_names_at_once_needs_no_sensible_answer(
    nonsense: FakeSlurm, spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_jobs.run.submission.secrets.token_hex", lambda _bytes: "abcd1234")
    in_queue(nonsense, "79", "s.a.abcd1234")
    assert [job.job_id for job in submit(load(spec)).jobs] == ["79"]
