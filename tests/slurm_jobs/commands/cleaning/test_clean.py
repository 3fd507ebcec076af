"""What a clean removes, and when it removes nothing; squeue and sacct are the test's own."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from slurm_jobs.base.errors import InputError, RunFailedError, SchedulerError
from slurm_jobs.commands.cleaning.clean import clean, last_activity_unix_s, plan_clean
from slurm_jobs.commands.resuming.cleaned_run import refuse_lost_metrics
from slurm_jobs.run.observe import status_of
from slurm_jobs.run_folder.cleanings import cleaned_note
from slurm_jobs.run_folder.ledger import read_ledger
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.submission_lock import open_command, submitting
from tests.slurm_jobs.commands.cleaning.cleaned import (
    CHECKPOINTS,
    DEFAULT,
    PARTS,
    WHOLE,
    keeping,
    paths,
    refusal,
)
from tests.slurm_jobs.run.cleanable import NUM_BYTES, cleanable_run, files_gone
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm, make_fake_slurm, queue_row

__all__ = ["paths"]


@pytest.fixture(autouse=True)
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    return make_fake_slurm(tmp_path / "bin", monkeypatch)


def test_used_up_parts_and_checkpoints_go_and_the_run_stays_readable(paths: RunPaths) -> None:
    (plan,) = plan_clean([paths.run_dir], DEFAULT).plans
    assert files_gone(paths) == set()
    assert plan.num_bytes >= (len(PARTS) + len(CHECKPOINTS)) * NUM_BYTES
    assert plan.kept == ("report", "model", "metrics", "data", "logs")
    (done,) = clean([paths.run_dir], DEFAULT).plans
    assert done.num_bytes == plan.num_bytes
    assert files_gone(paths) == PARTS | CHECKPOINTS
    assert status_of(paths.run_dir).status == "completed"
    note = cleaned_note(paths)
    assert note is not None
    assert note.endswith("removed were: parts of preprocess, checkpoints of train")
    assert plan_clean([paths.run_dir], DEFAULT).plans[0].removed == ()
    assert open_command(read_ledger(paths.ledger_dir)) is None


def test_the_whole_run_goes_and_nothing_beside_it(paths: RunPaths) -> None:
    other = cleanable_run(paths.run_dir.with_name("other"))
    (plan,) = clean([paths.run_dir], WHOLE).plans
    assert plan.is_whole
    assert [path.name for path in paths.run_dir.parent.iterdir()] == ["other"]
    assert files_gone(other) == set()


def test_living_jobs_are_named_and_nothing_goes(paths: RunPaths, slurm: FakeSlurm) -> None:
    slurm.says("squeue", queue_row("4", "COMPLETING"))  # its record is there already
    assert "jobs that have not ended: 4 (COMPLETING)" in refusal(paths, WHOLE)
    assert files_gone(paths) == set()


def test_what_slurm_does_not_say_is_not_ended(paths: RunPaths, slurm: FakeSlurm) -> None:
    slurm.says("squeue", "", exit_code=1)
    assert "it is not known whether jobs of r still live: squeue" in refusal(paths)
    assert isinstance(plan_clean([paths.run_dir], DEFAULT).refused[paths.run_dir], SchedulerError)
    assert files_gone(paths) == set()


def test_jobs_that_the_controller_is_silent_about_may_live(
    tmp_path: Path, slurm: FakeSlurm
) -> None:
    paths = cleanable_run(tmp_path / "runs/r", complete=("preprocess",))
    slurm.controller_is_silent()
    assert "controller did not say whether" in refusal(paths)
    assert files_gone(paths) == set()


def test_many_runs_cost_one_question(tmp_path: Path, slurm: FakeSlurm) -> None:
    runs = [cleanable_run(tmp_path / f"runs/r{n}").run_dir for n in range(5)]
    assert len(plan_clean(runs, DEFAULT).plans) == 5
    assert len(slurm.calls("squeue")) == len(slurm.calls("sacct")) == 1


def test_nothing_goes_while_another_command_submits(paths: RunPaths) -> None:
    with submitting(paths):
        (error,) = clean([paths.run_dir], WHOLE).refused.values()
    assert isinstance(error, RunFailedError)
    assert "is submitting for this run" in str(error)
    assert files_gone(paths) == set()


def test_a_run_folder_that_is_a_link_is_refused(paths: RunPaths, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(paths.run_dir)
    assert f"is a link to {paths.run_dir}" in refusal(RunPaths(link), WHOLE)
    assert files_gone(paths) == set()


def test_another_users_run_is_refused(tmp_path: Path) -> None:
    paths = cleanable_run(tmp_path / "runs/r", uid=os.getuid() + 1)
    assert "run r is ada's" in refusal(paths, WHOLE)
    assert files_gone(paths) == set()
    assert len(read_ledger(paths.ledger_dir)) == 8  # the refused clean took no turn


def test_a_report_without_its_step_records_is_not_made_again(paths: RunPaths) -> None:
    refuse_lost_metrics(paths)
    clean([paths.run_dir], keeping("report"))
    with pytest.raises(InputError, match=r"the one made before is .*report\.html"):
        refuse_lost_metrics(paths)


def test_a_run_whose_submit_was_cut_off_can_be_removed(paths: RunPaths) -> None:
    for folder in (paths.plans_dir, paths.ledger_dir, paths.jobs_dir):
        shutil.rmtree(folder, ignore_errors=True)
    (plan,) = clean([paths.run_dir], WHOLE).plans
    assert plan.status == "not submitted"
    assert not paths.run_dir.exists()


def test_looking_at_a_run_and_cleaning_it_make_it_no_younger(paths: RunPaths) -> None:
    before = last_activity_unix_s(paths)
    status_of(paths.run_dir)
    clean([paths.run_dir], DEFAULT)
    assert last_activity_unix_s(paths) == before
