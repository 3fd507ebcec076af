"""squeue, sacct and scancel are programs of the test's own, so that questions can be counted."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurm_jobs.base.errors import InputError, RunFailedError, SchedulerError
from slurm_jobs.commands.cancel import cancel, is_anything_to_cancel
from slurm_jobs.run.observe import status_of
from slurm_jobs.run_folder.ledger import append_entry
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_run
from tests.slurm_jobs.run.fabricate import end, make_run, submit, submitted_run
from tests.slurm_jobs.schedulers.fake_slurm import (
    DATABASE_DOWN,
    FakeSlurm,
    account_row,
    make_fake_slurm,
    queue_row,
)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    fake = make_fake_slurm(tmp_path / "bin", monkeypatch)
    fake.says("scancel", "")
    return fake


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return submitted_run(tmp_path / "r", 1)


def test_an_answer_that_was_kept_for_looking_is_not_acted_upon(
    slurm: FakeSlurm, paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slurm_jobs.run.kept_answers.FRESH_S", 3600.0)
    slurm.says("squeue", queue_row("1", "FAILED"))
    assert status_of(paths.run_dir, fresh=False).status == "failed"
    slurm.says("squeue", queue_row("1", "PENDING"))  # requeued since
    assert status_of(paths.run_dir, fresh=False).status == "failed"
    assert cancel(paths.run_dir) == ["1"]
    assert len(slurm.calls("scancel")) == 1


def test_what_lives_is_cancelled_while_the_accounts_are_down(
    slurm: FakeSlurm, paths: RunPaths
) -> None:
    slurm.says("squeue", queue_row("1", "RUNNING"))
    slurm.says("sacct", "", errors=DATABASE_DOWN, exit_code=1)
    assert cancel(paths.run_dir) == ["1"]
    assert status_of(paths.run_dir, fresh=False).problems


def test_a_run_without_live_jobs_has_nothing_to_cancel_whatever_sacct_says(
    slurm: FakeSlurm, paths: RunPaths
) -> None:
    end(paths, "a", [0], "failed", reason="it broke")
    slurm.says("sacct", "", errors=DATABASE_DOWN, exit_code=1)
    assert cancel(paths.run_dir) == []
    slurm.says("squeue", "", exit_code=1)
    with pytest.raises(SchedulerError, match="squeue"):
        cancel(paths.run_dir)


def test_a_strangers_job_that_got_the_id_of_ours_is_not_ended(
    slurm: FakeSlurm, paths: RunPaths
) -> None:
    """desispec#2049: ids are given again."""
    slurm.says("squeue", queue_row("1", "RUNNING", name="a-strangers"))
    assert cancel(paths.run_dir) == []
    assert slurm.calls("scancel") == []
    assert status_of(paths.run_dir).status == "cancelled"  # should ours still come, it does nothing


def test_a_job_that_was_renamed_is_ended(slurm: FakeSlurm, paths: RunPaths) -> None:
    script = f"{paths.job_dir('t1')}/submission_file_9.sh"
    slurm.says("squeue", queue_row("1", "RUNNING", name="mine", command=script))
    assert cancel(paths.run_dir) == ["1"]


def test_a_job_of_unknown_state_is_not_cancelled_by_its_id(
    slurm: FakeSlurm, paths: RunPaths
) -> None:
    slurm.says("squeue", "", exit_code=1)
    with pytest.raises(SchedulerError, match="It is unknown whether 1 still run"):
        cancel(paths.run_dir)
    assert slurm.calls("scancel") == []
    assert [intent.cancelled for intent in read_run(paths.run_dir).intents] == [True]
    slurm.says("sacct", account_row("1", "RUNNING"))  # with its name, which proves it ours
    assert cancel(paths.run_dir) == ["1"]


def test_of_stranded_jobs_that_slurm_has_forgotten_nothing_is_written_down(
    slurm: FakeSlurm, tmp_path: Path
) -> None:
    made = make_run(tmp_path / "s", {"a": 1, "b": 1}, after={"b": {"a": "afterok"}})
    submit(made, "a", 1, "1")
    submit(made, "b", 1, "2")
    end(made, "a", [0], "failed", reason="it broke")
    assert status_of(made.run_dir).stage("b").status == "stranded"
    assert cancel(made.run_dir) == []
    assert not any(intent.cancelled_slices for intent in read_run(made.run_dir).intents)
    slurm.says("squeue", queue_row("2", "PENDING", "DependencyNeverSatisfied"))
    assert cancel(made.run_dir) == ["2"]


def test_a_misspelt_stage_is_refused_with_the_nearest(tmp_path: Path) -> None:
    made = make_run(tmp_path / "m", {"train": 1, "report": 1})
    with pytest.raises(InputError, match="no stage `trian`; did you mean `train`"):
        cancel(made.run_dir, stage="trian")


def test_a_matrix_stages_own_name_means_all_its_combinations(
    slurm: FakeSlurm, tmp_path: Path
) -> None:
    stages = ("a-1", "a-2", "z")
    made = make_run(tmp_path / "m", dict.fromkeys(stages, 1), origins={"a-1": "a", "a-2": "a"})
    for number, stage in enumerate(stages, start=1):
        submit(made, stage, 1, str(number))
    slurm.says("squeue", "".join(queue_row(job_id, "RUNNING") for job_id in "123"))
    assert cancel(made.run_dir, stage="a") == ["1", "2"]
    assert cancel(made.run_dir, stage="z") == ["3"]


def test_a_job_that_is_held_is_cancelled(slurm: FakeSlurm, paths: RunPaths) -> None:
    slurm.says("squeue", queue_row("1", "PENDING", "JobHeldAdmin"))
    assert is_anything_to_cancel(paths.run_dir)
    assert cancel(paths.run_dir) == ["1"]


@pytest.mark.parametrize("shift_s", [0.0, 3600.0, -3600.0])
def test_a_submit_on_another_host_can_be_cancelled_whatever_its_clock_says(
    slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shift_s: float
) -> None:
    other = make_run(tmp_path / "other", {"a": 1})
    assert not is_anything_to_cancel(other.run_dir)
    now_s = time.time() + shift_s
    who = {"pid": 1, "host": "elsewhere", "process_start": None}
    with monkeypatch.context() as there:
        there.setattr("slurm_jobs.run_folder.ledger.time", SimpleNamespace(time=lambda: now_s))
        append_entry(other.ledger_dir, "begin", "there", who)
    assert is_anything_to_cancel(other.run_dir)
    slurm.says("squeue", "")
    with pytest.raises(RunFailedError, match="pid 1 on elsewhere"):
        cancel(other.run_dir)
