"""Files that somebody else holds or has replaced, and what is not a file."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from slurm_jobs.base import regular_files
from slurm_jobs.base.files import read_json
from slurm_jobs.base.regular_files import open_at_once, open_regular, read_bytes
from tests.end_to_end.driver import wait_for
from tests.leases import leased


def test_file_with_a_lease_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    path.write_bytes(b"picture")
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(read_bytes(path)))
    with leased(path) as is_wanted:
        reader.start()
        wait_for(is_wanted, "the reader")
        assert not found
    reader.join(60)
    assert found == [b"picture"]


def test_a_lease_that_is_never_given_up_ends_in_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, _flags: int) -> int:
        raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), str(path))

    monkeypatch.setattr(os, "open", refuse)
    monkeypatch.setattr(regular_files, "_LEASE_PATIENCE_S", 0.0)
    with pytest.raises(BlockingIOError):
        open_at_once(tmp_path / "a")


def test_a_pipe_without_a_writer_is_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    os.close(open_at_once(tmp_path / "pipe"))


def _listen(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)  # a socket's path has at most 107 bytes
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (os.mkfifo, "a named pipe"),
        (lambda path: path.symlink_to("/dev/zero"), "a device"),
        (lambda path: path.symlink_to("/dev/tty"), None),
        (_listen, "a socket"),
        (Path.mkdir, "a folder"),
        (lambda path: path.symlink_to(path.name), None),
    ],
)
def test_only_regular_files_are_read_and_others_are_named(
    tmp_path: Path, make: Callable[[Path], None], named: str | None
) -> None:
    path = tmp_path / "record.json"
    make(path)
    for read in (read_json, read_bytes, open_regular):
        with pytest.raises(OSError) as raised:
            read(path)
        assert raised.value.filename == str(path)
        assert named is None or named in str(raised.value.strerror)
    is_folder = named == "a folder"
    assert isinstance(raised.value, IsADirectoryError) == is_folder


def test_a_link_to_a_regular_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text("name: a\n")
    (tmp_path / "link.yaml").symlink_to("spec.yaml")
    assert read_bytes(tmp_path / "link.yaml") == b"name: a\n"


def test_a_file_beyond_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.touch()
    os.truncate(path, 1 << 43)
    with pytest.raises(OSError, match="over 8,388,608 MiB") as raised:
        read_json(path)
    assert raised.value.errno == errno.EFBIG


@pytest.mark.parametrize(
    ("num_bytes", "is_read"), [(0, True), (99, True), (100, True), (101, False)]
)
def test_the_limit_holds_to_the_byte(tmp_path: Path, num_bytes: int, *, is_read: bool) -> None:
    path = tmp_path / "record"
    path.write_bytes(b"x" * num_bytes)
    if is_read:
        assert read_bytes(path, most_bytes=100) == b"x" * num_bytes
    else:
        with pytest.raises(OSError, match="at most"):
            read_bytes(path, most_bytes=100)


def test_a_file_that_grows_while_it_is_read_is_held_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "record"
    path.write_bytes(b"x" * 10)
    with open_regular(path, buffering=0) as stream, path.open("ab") as writer:

        class Growing:
            def read(self, num_bytes: int) -> bytes:
                writer.write(b"y" * num_bytes)
                writer.flush()
                return stream.read(num_bytes)

            def __getattr__(self, name: str) -> object:
                return getattr(stream, name)

        with pytest.raises(OSError, match="at most"):
            regular_files.rest_of(Growing(), path, most_bytes=1 << 20)  # type: ignore[arg-type]


def test_a_file_of_the_kernel_without_a_size_is_read() -> None:
    assert b"MemTotal" in read_bytes(Path("/proc/meminfo"))
