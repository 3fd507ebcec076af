"""Commands that meet jobs of which it is open whether they live; see `fake_slurm`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slurm_jobs.base.errors import SchedulerError
from slurm_jobs.commands import cancel as commands
from slurm_jobs.run.observe import answers, status_of
from slurm_jobs.run.prepare_resume import prepare_resume
from slurm_jobs.run_folder.ledger import append_entry, intents, read_ledger
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.run_records import read_run
from slurm_jobs.schedulers.slurm import SlurmScheduler
from tests.slurm_jobs.run.fabricate import make_run, submit, submitted_run
from tests.slurm_jobs.schedulers.fake_slurm import (
    ACCOUNTS_OFF,
    FakeSlurm,
    account_row,
    make_fake_slurm,
    queue_row,
)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    fake = make_fake_slurm(tmp_path / "bin", monkeypatch)
    fake.says("sacct", "", errors=ACCOUNTS_OFF, exit_code=1)
    fake.says("scancel", "")
    return fake


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    """A run whose array of three was submitted a moment ago as job 1; squeue lists nothing."""
    return submitted_run(tmp_path / "r", 3)


def prepare(paths: RunPaths) -> None:
    prepare_resume(paths, SlurmScheduler(), {"a": "f"}, again={}, act=True)


def test_a_silent_controller_stops_a_resume_and_leaves_the_job_waiting(
    slurm: FakeSlurm, paths: RunPaths
) -> None:
    slurm.controller_is_silent()
    status = status_of(paths.run_dir)
    assert {part.status for part in status.stage("a").slices} == {"waiting"}
    assert status.status == "waiting"
    with pytest.raises(SchedulerError, match=r"cannot resume yet: .* jobs 1 still live"):
        prepare(paths)


def test_an_attempt_of_such_a_job_counts_as_running(slurm: FakeSlurm, paths: RunPaths) -> None:
    slurm.controller_is_silent()
    paths.attempts_dir("a").mkdir(parents=True)
    paths.attempt("a", 1, 1).write_text("{}")
    words = [part.status for part in status_of(paths.run_dir).stage("a").slices]
    assert words == ["waiting", "running", "waiting"]


def test_a_fresh_job_that_only_the_accounting_has_alive_is_not_replaced(
    slurm: FakeSlurm, paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    slurm.says("sacct", "".join(account_row(f"1_{index}", "RUNNING") for index in range(3)))
    status = status_of(paths.run_dir)
    assert {part.status for part in status.stage("a").slices} == {"running"}
    (note,) = [note for note in status.notes if "sacct lists jobs 1 as alive" in note]
    assert re.search(r"They count as alive until \d\d:\d\d:\d\d, ", note)
    with pytest.raises(SchedulerError, match=r"by sacct, jobs 1 are queued or running.* after "):
        prepare(paths)
    monkeypatch.setattr("slurm_jobs.schedulers.agreement.AGREE_S", 0.0)
    prepare(paths)
    status = status_of(paths.run_dir)
    assert {part.status for part in status.stage("a").slices} == {"unknown"}
    assert not any("sacct lists" in note for note in status.notes)


def test_jobs_that_the_controller_forgot_are_noted_for_their_own_run_alone(
    slurm: FakeSlurm, paths: RunPaths, tmp_path: Path
) -> None:
    slurm.says("sacct", "".join(account_row(f"1_{index}", "RUNNING") for index in range(3)))
    other = make_run(tmp_path / "other", {"b": 1})
    submit(other, "b", 1, "2")
    runs = {each.run_dir: read_run(each.run_dir) for each in (paths, other)}
    own, others = (answers(runs, fresh=True)[each.run_dir] for each in (paths, other))
    assert [note for note in own.notes if "sacct lists jobs 1 as alive" in note]
    assert not [note for note in others.notes if "sacct lists" in note]
    assert answers(runs, fresh=False)[other.run_dir].notes == others.notes


def test_an_answer_with_doubts_is_kept_whole(slurm: FakeSlurm, paths: RunPaths) -> None:
    slurm.controller_is_silent()
    runs = {paths.run_dir: read_run(paths.run_dir)}
    first = answers(runs, fresh=True)
    assert first[paths.run_dir].doubts
    assert answers(runs, fresh=False) == first


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_cancel_ends_no_job_that_the_controller_does_not_confirm(
    slurm: FakeSlurm, paths: RunPaths, *, is_listed: bool
) -> None:
    slurm.says("squeue", queue_row("1_0", "RUNNING") if is_listed else "")
    slurm.controller_is_silent()
    with pytest.raises(SchedulerError, match="unknown whether 1 still run"):
        commands.cancel(paths.run_dir)
    assert slurm.calls("scancel") == []
    assert intents(read_ledger(paths.ledger_dir))[0].cancelled


def test_a_cancel_ends_no_stranger_that_has_the_id_by_now(
    slurm: FakeSlurm, paths: RunPaths
) -> None:
    """squeue's cache is from before the controller lost its state."""
    slurm.says("squeue", queue_row("1_0", "RUNNING"))
    slurm.controller_says(queue_row("1", "RUNNING", name="a-strangers"))
    commands.cancel(paths.run_dir)
    assert slurm.calls("scancel") == []


def test_a_resume_cancels_only_what_the_controller_confirms(
    slurm: FakeSlurm, paths: RunPaths
) -> None:
    append_entry(paths.ledger_dir, "cancelled", "t-a-1", {})
    listed = "".join(queue_row(f"1_{index}", "RUNNING") for index in range(3))
    slurm.says("squeue", listed)
    found = prepare_resume(paths, SlurmScheduler(), {"a": "f"}, again={}, act=True)
    assert [job.job_id for job in found.cancel] == ["1"]
    slurm.controller_says("")
    found = prepare_resume(paths, SlurmScheduler(), {"a": "f"}, again={}, act=True)
    assert found.cancel == ()
