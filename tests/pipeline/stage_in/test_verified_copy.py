"""One file copied: whole with its checksum, or not at all."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import xxhash

from pipeline.stage_in import verified_copy as module
from pipeline.stage_in.pace import Pace
from pipeline.stage_in.verified_copy import copy_verified, is_intact
from slurm_jobs.base.errors import StageError, StageStoppedError

CONTENT = bytes(range(256)) * 9_000  # more than two blocks
XXH3 = xxhash.xxh3_64_hexdigest(CONTENT)


def go_on() -> None:
    pass


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "shared" / "file"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    return path


def copy(source: Path, target: Path, *, xxh3: str | None = XXH3, check_stop=go_on) -> None:
    pace = Pace(target.parent / "pace", None)
    copy_verified(source, target, xxh3=xxh3, pace=pace, check_stop=check_stop)


def test_a_copy_is_equal_and_its_owners_alone(source: Path, tmp_path: Path) -> None:
    copy(source, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == CONTENT
    assert (tmp_path / "copy").stat().st_mode & 0o777 == 0o600
    assert is_intact(tmp_path / "copy", xxh3=XXH3, check_stop=go_on)


def test_an_empty_file_is_copied(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    copy(tmp_path / "empty", tmp_path / "copy", xxh3=xxhash.xxh3_64_hexdigest(b""))
    assert (tmp_path / "copy").read_bytes() == b""


def test_a_damaged_source_is_named_with_both_checksums_and_leaves_nothing(
    source: Path, tmp_path: Path
) -> None:
    source.write_bytes(CONTENT[:-1] + b"x")
    with pytest.raises(StageError, match=r"shared/file: .*twice, xxh3 \w{16}, expected \w{16}"):
        copy(source, tmp_path / "copy")
    assert [path.name for path in tmp_path.iterdir()] == ["shared"]


def test_a_missing_source_is_distinguished_from_an_unreadable_one(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests may run as root, which may read everything: the refusal is made up."""
    with pytest.raises(StageError, match="gone: missing; run consolidate again"):
        copy(tmp_path / "gone", tmp_path / "copy")

    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(module.io, "FileIO", refuse)
    with pytest.raises(StageError, match="file: the file cannot be read: Permission denied"):
        copy(source, tmp_path / "copy")


def test_a_read_that_fails_once_is_made_again(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, failures = module._read_into, iter([OSError(errno.EIO, "Input/output error")])

    def fail_once(reader, buffer, path):
        if (error := next(failures, None)) is not None:
            raise module.unreadable(path, error)
        return read(reader, buffer, path)

    monkeypatch.setattr(module, "_read_into", fail_once)
    copy(source, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == CONTENT


def test_a_full_disk_is_reported_and_keeps_no_partial_copy(
    source: Path, small_disk: Callable[[int], Path]
) -> None:
    disk = small_disk(1)
    with pytest.raises(OSError, match="No space left on device") as caught:
        copy(source, disk / "copy")
    assert caught.value.errno == errno.ENOSPC
    assert list(disk.iterdir()) == []


def test_a_file_without_a_known_checksum_is_copied(source: Path, tmp_path: Path) -> None:
    copy(source, tmp_path / "copy", xxh3=None)
    assert (tmp_path / "copy").read_bytes() == CONTENT


def test_a_stop_leaves_nothing(source: Path, tmp_path: Path) -> None:
    calls = iter([None, None])

    def stop_at_the_third() -> None:
        if next(calls, "none left") is not None:
            raise StageStoppedError

    with pytest.raises(StageStoppedError):
        copy(source, tmp_path / "copy", check_stop=stop_at_the_third)
    assert [path.name for path in tmp_path.iterdir()] == ["shared"]


def test_a_damaged_or_unreadable_file_is_not_intact(tmp_path: Path) -> None:
    (tmp_path / "copy").write_bytes(CONTENT[:-1])
    assert not is_intact(tmp_path / "copy", xxh3=XXH3, check_stop=go_on)
    assert not is_intact(tmp_path / "gone", xxh3=XXH3, check_stop=go_on)


def test_pages_are_let_go_only_where_they_came_over_a_network(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advice = []
    monkeypatch.setattr(module.os, "posix_fadvise", lambda *given: advice.append(given[3]))
    copy(source, tmp_path / "copy")
    assert advice == [os.POSIX_FADV_SEQUENTIAL]
    monkeypatch.setattr(module, "is_on_this_machine", lambda _path: False)
    copy(source, tmp_path / "copy")
    assert advice[1:] == [os.POSIX_FADV_SEQUENTIAL, os.POSIX_FADV_DONTNEED]
