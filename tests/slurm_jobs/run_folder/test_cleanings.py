"""The record of what was removed: a clean that was killed is finished by it."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Collection
from multiprocessing import get_context
from pathlib import Path

import pytest

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.files import write_json_atomic
from slurm_jobs.commands.cleaning.clean import CleanRequest, clean
from slurm_jobs.commands.resuming.cleaned_run import refuse_unfinished_clean
from slurm_jobs.run_folder.cleanings import read_cleanings
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.commands.cleaning.cleaned import (
    CHECKPOINTS,
    DEFAULT,
    PARTS,
    WHOLE,
    paths,
    refusal,
)
from tests.slurm_jobs.run.cleanable import files_gone
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm, make_fake_slurm

__all__ = ["paths"]


@pytest.fixture(autouse=True)
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    return make_fake_slurm(tmp_path / "bin", monkeypatch)


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
