"""Folders that a complete stage lists are removed, below its output folder alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.worker.after_end import remove_after_end


@pytest.fixture
def output_dir(tmp_path: Path) -> Path:
    for name in ("out/checkpoints/step-1", "out/checkpoints/step-2", "other"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "weights").write_bytes(b"1234")
    return tmp_path / "out"


def test_listed_folders_go_and_a_second_time_is_no_problem(output_dir: Path) -> None:
    result = {"remove_after_end": ["checkpoints/step-1"]}
    assert remove_after_end(output_dir, result) is None
    assert [path.name for path in (output_dir / "checkpoints").iterdir()] == ["step-2"]
    assert remove_after_end(output_dir, result) is None


@pytest.mark.parametrize("value", [None, {}, "checkpoints", [3], ["../other"], [""], ["."]])
def test_what_is_no_list_of_folders_below_removes_nothing(output_dir: Path, value: Any) -> None:
    assert remove_after_end(output_dir, {"remove_after_end": value}) is None
    assert (
        remove_after_end(output_dir, {"remove_after_end": [str(output_dir.parent / "other")]})
        is None
    )
    assert (output_dir.parent / "other/weights").exists()
    assert (output_dir / "checkpoints/step-1/weights").exists()


def test_a_link_is_not_followed_and_is_named(output_dir: Path) -> None:
    (output_dir / "link").symlink_to(output_dir.parent / "other")
    problem = remove_after_end(output_dir, {"remove_after_end": ["link"]})
    assert problem is not None
    assert str(output_dir / "link") in problem
    assert (output_dir.parent / "other/weights").exists()
