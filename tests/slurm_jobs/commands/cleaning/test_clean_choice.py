"""What a clean removes: what is used up, or all but what is to be kept."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest

from slurm_jobs.commands.cleaning.clean import CleanRequest, clean, plan_clean
from slurm_jobs.run.observe import status_of
from slurm_jobs.run_folder.cleanings import Kind
from slurm_jobs.run_folder.paths import RunPaths
from tests.slurm_jobs.commands.cleaning.cleaned import (
    CHECKPOINTS,
    DEFAULT,
    PARTS,
    WHOLE,
    keeping,
    paths,
)
from tests.slurm_jobs.run.cleanable import FILES, cleanable_run, files_gone
from tests.slurm_jobs.schedulers.fake_slurm import FakeSlurm, make_fake_slurm

__all__ = ["paths"]


@pytest.fixture(autouse=True)
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    return make_fake_slurm(tmp_path / "bin", monkeypatch)


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
