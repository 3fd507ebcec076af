"""The copies of a data set that is read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pipeline.data.dataset import ShardedDataset
from pipeline.data.shard_reading import opened_shards


@pytest.fixture
def shared(dataset_dir: Path, tmp_path: Path) -> Path:
    return shutil.copytree(dataset_dir, tmp_path / "shared")


@pytest.fixture
def _network(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shared folder passes for a network's; there is none here."""
    monkeypatch.setattr(opened_shards, "is_on_this_machine", lambda _path: False)


def keys_of(dataset: ShardedDataset) -> list[str]:
    return [dataset.sample(number).key for number in range(len(dataset))]
