"""The space of a folder is what removing it would free, and is measured without following links."""

import os
from pathlib import Path

import pytest

from slurm_jobs.run_folder.disk_use import disk_use
from tests.slurm_jobs.run.closed import close

MIB = 1 << 20


def written(path: Path, num_bytes: int = MIB) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(num_bytes))
    return path


def rounded_mib(num_bytes: int) -> int:
    """Return whole MiB: what folders and small files take differs between file systems."""
    return round(num_bytes / MIB)


def test_the_files_of_all_folders_below_are_counted(tmp_path: Path) -> None:
    written(tmp_path / "a", 2 * MIB)
    written(tmp_path / "b" / "c" / "d", 3 * MIB)

    use = disk_use(tmp_path)

    assert (rounded_mib(use.num_bytes), use.num_files) == (5, 2)
    assert (use.linked_elsewhere_bytes, use.unreadable) == (0, ())


def test_hard_links_inside_count_once_and_are_freed_with_the_folder(tmp_path: Path) -> None:
    first = written(tmp_path / "a")
    (tmp_path / "b").hardlink_to(first)

    use = disk_use(tmp_path)

    assert (rounded_mib(use.num_bytes), use.num_files, use.linked_elsewhere_bytes) == (1, 1, 0)


def test_a_hard_link_outside_keeps_its_bytes_when_the_folder_goes(tmp_path: Path) -> None:
    outside = written(tmp_path / "outside")
    written(tmp_path / "run" / "own")
    (tmp_path / "run" / "linked").hardlink_to(outside)

    use = disk_use(tmp_path / "run")

    assert (rounded_mib(use.num_bytes), rounded_mib(use.linked_elsewhere_bytes)) == (2, 1)


def test_symbolic_links_are_not_followed(tmp_path: Path) -> None:
    written(tmp_path / "elsewhere" / "data", 4 * MIB)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "data").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "run" / "round").symlink_to(tmp_path / "run")

    assert rounded_mib(disk_use(tmp_path / "run").num_bytes) == 0


def test_a_sparse_file_takes_what_was_written_of_it(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as stream:
        stream.truncate(1 << 40)

    assert rounded_mib(disk_use(tmp_path).num_bytes) == 0


def test_pipes_are_counted_and_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    assert disk_use(tmp_path).num_files == 1


def test_a_folder_that_cannot_be_listed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "a")
    closed = tmp_path / "closed"
    closed.mkdir()
    close(closed, monkeypatch)

    use = disk_use(tmp_path)

    assert (rounded_mib(use.num_bytes), use.unreadable) == (1, (closed,))


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        disk_use(tmp_path / "missing")
