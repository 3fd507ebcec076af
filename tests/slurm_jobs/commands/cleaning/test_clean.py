"""What a clean removes, and when it removes nothing; squeue and sacct are the test's own."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Collection
from multiprocessing import get_context
from pathlib import Path

import pytest

from slurm_jobs.base.errors import InputError, RunFailedError, SchedulerError
from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.commands.cleaning.clean import CleanRequest, clean, last_activity_unix_s, plan_clean
from slurm_jobs.commands.resuming.cleaned_run import refuse_lost_metrics, refuse_unfinished_clean
from slurm_jobs.run.observe import status_of
from slurm_jobs.run_folder.cleanings import Kind, cleaned_note, read_cleanings
from slurm_jobs.run_folder.ledger import read_ledger
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.submission_lock import open_command, submitting
from tests.slurm_jobs.run.cleanable import FILES, NUM_BYTES, cleanable_run, files_gone
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm, make_fake_slurm, queue_row

DEFAULT = CleanRequest()
WHOLE = CleanRequest(is_whole=True)
PARTS = {name for name in FILES if "/preprocess/" in name}
CHECKPOINTS = {name for name in FILES if "/checkpoints" in name}


@pytest.fixture(autouse=True)
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    return make_fake_slurm(tmp_path / "bin", monkeypatch)


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    return cleanable_run(tmp_path / "runs/r")


def keeping(*kinds: Kind) -> CleanRequest:
    return CleanRequest(keep=frozenset(kinds))


def refusal(paths: RunPaths, request: CleanRequest = DEFAULT) -> str:
    """Why the run is refused, which it is when it is planned and when it is done."""
    (error,) = plan_clean([paths.run_dir], request).refused.values()
    result = clean([paths.run_dir], request)
    assert list(result.refused) == [paths.run_dir]
    assert result.plans == ()
    return str(error)


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


@pytest.mark.parametrize(
    ("complete", "gone"),
    [
        (("preprocess",), set()),
        (("preprocess", "consolidate"), PARTS),
        (("preprocess", "consolidate", "train"), PARTS),  # `own` may still read a checkpoint
        ((), set()),
    ],
)
def test_what_an_unfinished_stage_needs_stays(
    tmp_path: Path, complete: tuple[str, ...], gone: Collection[str]
) -> None:
    paths = cleanable_run(tmp_path / "runs/r", complete=complete)
    clean([paths.run_dir], DEFAULT)
    assert files_gone(paths) == set(gone)


def test_the_spec_says_how_many_checkpoints_stay(tmp_path: Path) -> None:
    paths = cleanable_run(tmp_path / "runs/r", keep_after_end=1)
    clean([paths.run_dir], DEFAULT)
    newest = {name for name in CHECKPOINTS if "step-00000008" in name}
    assert files_gone(paths) == PARTS | CHECKPOINTS - newest
    assert plan_clean([paths.run_dir], DEFAULT).plans[0].removed == ()


@pytest.mark.parametrize(
    ("kinds", "stays"),
    [
        (("report", "model", "metrics"), ("report/", "timing/", "/model/", "adapters", "eval")),
        (("checkpoints", "logs"), ("/checkpoints", "logs/")),
        (("data", "parts"), ("/consolidate/", "/own/", "/preprocess/")),
        ((), ()),
    ],
)
def test_keep_names_what_stays_and_all_else_but_the_records_goes(
    tmp_path: Path, kinds: tuple[Kind, ...], stays: tuple[str, ...]
) -> None:
    paths = cleanable_run(tmp_path / "runs/r", complete=("preprocess",))
    before = status_of(paths.run_dir).stages
    clean([paths.run_dir], keeping(*kinds))
    left = {name for name in FILES if any(part in name for part in stays)}
    assert files_gone(paths) == set(FILES) - left
    assert status_of(paths.run_dir).stages == before


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


@pytest.mark.parametrize("name", ["data", "data/train", "data/train/checkpoints", "logs"])
@pytest.mark.parametrize("wish", [keeping(), WHOLE], ids=["keep", "all"])
def test_links_are_never_followed(
    paths: RunPaths, tmp_path: Path, name: str, wish: CleanRequest
) -> None:
    target = tmp_path / "scratch"
    (paths.run_dir / name).rename(target)
    (paths.run_dir / name).symlink_to(target)
    before = sorted(target.rglob("*"))
    (plan,) = clean([paths.run_dir], wish).plans
    assert sorted(target.rglob("*")) == before
    assert any(link.endswith(f"{name} -> {target}") for link in plan.links)
    assert paths.run_dir.exists() is not wish.is_whole


def test_a_link_in_what_goes_is_removed_alone(paths: RunPaths, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.mkdir()
    (target / "file").touch()
    (paths.run_dir / "data/train/checkpoints/link").symlink_to(target)
    clean([paths.run_dir], DEFAULT)
    assert files_gone(paths) == PARTS | CHECKPOINTS
    assert (target / "file").exists()


def _clean_and_be_killed(run_dir: Path, wish: CleanRequest, num_removed: int) -> None:
    """Clean until so many folders are removed; for a process of its own."""
    remove, calls = shutil.rmtree, []

    def killing(path: Path) -> None:
        calls.append(path)
        if len(calls) > num_removed:
            next(path.rglob("*.*")).unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        remove(path)

    shutil.rmtree = killing  # type: ignore[assignment]
    clean([run_dir], wish)


@pytest.mark.parametrize("wish", [DEFAULT, WHOLE], ids=["default", "all"])
@pytest.mark.parametrize("num_removed", [0, 1])
def test_a_killed_clean_is_finished_by_the_next(
    paths: RunPaths, wish: CleanRequest, num_removed: int
) -> None:
    arguments = (paths.run_dir, wish, num_removed)
    process = get_context("fork").Process(target=_clean_and_be_killed, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    with pytest.raises(InputError, match="a clean of r has not ended"):
        refuse_unfinished_clean(paths)
    (plan,) = clean([paths.run_dir], DEFAULT).plans
    assert plan.finishes
    if wish.is_whole:
        assert not paths.run_dir.exists()
        return
    refuse_unfinished_clean(paths)
    assert files_gone(paths) == PARTS | CHECKPOINTS
    (cleaning,) = read_cleanings(paths)
    assert {each.kind for each in cleaning.removed} == {"parts", "checkpoints"}


@pytest.mark.parametrize("left", [{"run.json", "cleaned.json"}, {"run.json"}])
def test_a_removal_that_was_killed_at_its_end_is_finished(
    paths: RunPaths, left: Collection[str]
) -> None:
    """The ledger goes first of the last files, in one rename."""
    cleaning = {"begun_unix_s": 1.0, "ended_unix_s": None, "is_whole": True, "removed": []}
    write_json_atomic(paths.cleaned, {"cleanings": [cleaning]})
    for path in paths.run_dir.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in left:
            path.unlink()
    (paths.run_dir / ".ledger.tmp").mkdir()
    (paths.run_dir / ".ledger.tmp/000002.json").touch()
    clean([paths.run_dir], WHOLE)
    assert not paths.run_dir.exists()


@pytest.mark.parametrize("text", ["[]", '{"stages": [{"name": []}]}', '{"cleanings": [{}]}'])
@pytest.mark.parametrize("name", ["plans/0001.json", "cleaned.json"])
def test_a_damaged_record_is_named_and_nothing_goes(paths: RunPaths, name: str, text: str) -> None:
    shutil.copyfile(paths.plan(1), paths.plan(2))
    (paths.run_dir / name).write_text(text)
    assert f"{paths.run_dir / name} is damaged" in refusal(paths)
    assert files_gone(paths) == set()


def test_another_users_run_is_refused(tmp_path: Path) -> None:
    paths = cleanable_run(tmp_path / "runs/r", uid=os.getuid() + 1)
    assert "run r is ada's" in refusal(paths, WHOLE)
    assert files_gone(paths) == set()
    assert len(read_ledger(paths.ledger_dir)) == 8  # the refused clean took no turn


def test_data_that_an_unfinished_run_reads_stays(paths: RunPaths) -> None:
    dataset = paths.output_dir("consolidate")
    other = cleanable_run(paths.run_dir.with_name("reader"), complete=("preprocess",))
    spec = json.loads(other.resolved_spec.read_text())
    spec["stages"]["train"]["config"] = {"dataset": str(dataset)}
    write_json_atomic(other.resolved_spec, spec)
    words = refusal(paths, WHOLE)
    assert str(other.run_dir) in words
    assert str(dataset) in words
    assert [*plan_clean([paths.run_dir], DEFAULT).refused] == []  # it does not read the parts
    shutil.rmtree(other.run_dir)
    clean([paths.run_dir], WHOLE)
    assert not paths.run_dir.exists()


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
