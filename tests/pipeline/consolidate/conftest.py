"""Parts of `preprocess` to consolidate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.build import make_context, preprocess_23, run_consolidate


@pytest.fixture
def parts_dir(tmp_path: Path, processor_dir: Path) -> Path:
    """Two parts of 23 good rows; the manifest lies in `tmp_path/source`."""
    return preprocess_23(tmp_path, processor_dir)


def files_of(folder: Path) -> dict[str, bytes]:
    """The data set without the pieces, which a copy of it does not need."""
    found = {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    return {name: data for name, data in found.items() if not name.startswith("pieces/")}


def preprocess_again(parts_dir: Path, processor_dir: Path, *slices: int, azure: bool) -> None:
    """Make slices of `parts_dir` again, maybe of a manifest in which blue became azure."""
    from pipeline.preprocess.stage import run

    folder = parts_dir.parent
    manifest = folder.parent / "source" / "train.csv"
    if azure:
        manifest.write_text(manifest.read_text().replace("blue ", "azure "))
    config = {"manifest": str(manifest), "processor": str(processor_dir), "num_threads": 1}
    for number in slices:
        run(config, make_context(folder, slice_index=number, num_slices=2))


NUM_SHARDS = 5
RunTasks = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def expected(tmp_path: Path, parts_dir: Path) -> dict[str, bytes]:
    """What one task makes of the parts."""
    _, folder = run_consolidate(tmp_path / "alone", parts_dir, 2, num_shards=NUM_SHARDS)
    assert not (folder / "pieces").exists()
    return files_of(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where `run_tasks` makes the data set."""
    return tmp_path / "set" / "output"


@pytest.fixture
def run_tasks(folder: Path, parts_dir: Path) -> RunTasks:
    def run(num_tasks: int, *indices: int, **config: Any) -> list[dict[str, Any]]:
        config = {"num_shards": NUM_SHARDS, **config}
        tasks = [(index, num_tasks) for index in indices]
        return [run_consolidate(folder.parent, parts_dir, 2, task=t, **config)[0] for t in tasks]

    return run
