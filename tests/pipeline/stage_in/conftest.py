"""Small disks, a second data set, and configs of staging."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from slurm_jobs.formats.configs.training_parts import StagingConfig
from tests.cluster.host import mount_small_disk, unmount_below

BEFORE = StagingConfig(mode="before")
BESIDE = StagingConfig(mode="beside")


@pytest.fixture(scope="session")
def other_dataset_dir(make_dataset: Callable[..., Path]) -> Path:
    """As large as `dataset_dir`, in another order."""
    return make_dataset(23, num_shards=3, seed=1)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Makes a disk of so many MB (a tmpfs)."""
    folder = tmp_path / "disks"

    def make(size_mb: int) -> Path:
        path = folder / str(size_mb)
        try:
            mount_small_disk(path, size_mb=size_mb, uid=0, gid=0)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"a small disk can only be mounted by root: {error}")
        return path

    yield make
    unmount_below(folder)


def shard_sizes(folder: Path) -> list[int]:
    """In bytes, of the shards in a data set or a copy of it, by number."""
    return [path.stat().st_size for path in sorted((folder / "shards").glob("shard-*.tar"))]
