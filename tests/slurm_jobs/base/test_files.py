"""Whole or not at all, and exactly once, whatever ends the writer."""

import errno
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.pool import ThreadPool
from pathlib import Path

import pytest

from slurm_jobs.base.errors import DamagedFileError
from slurm_jobs.base.files import (
    atomic_writer,
    create_once,
    dump_json,
    make_private_dir,
    private_umask,
    read_json,
    remove_leftovers,
    write_bytes_atomic,
    write_json_atomic,
    write_text_atomic,
)


def test_a_file_has_its_name_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_text_atomic(path, "old")
    with atomic_writer(path) as stream:
        stream.write(b"new")
        stream.flush()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "f"
    write_text_atomic(path, "old")

    def fail() -> None:
        with atomic_writer(path) as stream:
            stream.write(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_killed_writer_leaves_the_old_file_and_a_removable_leftover(
    tmp_path: Path,
) -> None:
    path = tmp_path / "f"
    write_text_atomic(path, "old")
    code = (
        "import os, signal, sys\nfrom pathlib import Path\n"
        "from slurm_jobs.base.files import atomic_writer\n"
        "with atomic_writer(Path(sys.argv[1])) as stream:\n"
        "    stream.write(b'half'); stream.flush(); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2
    remove_leftovers(tmp_path, "other")
    assert len(list(tmp_path.iterdir())) == 2
    remove_leftovers(tmp_path, "f")
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_of_many_creators_exactly_one_wins_and_its_content_stays(tmp_path: Path) -> None:
    path = tmp_path / "000001.json"
    with ThreadPool(16) as pool:
        won = pool.map(lambda i: create_once(path, str(i).encode()), range(64))
    assert won.count(True) == 1
    assert path.read_text() == str(won.index(True))
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_a_creator_whose_link_was_answered_twice_by_nfs_has_created_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server whose answer gets lost cannot be had here: the second one is made up."""
    link = os.link

    def asked_twice(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(os, "link", asked_twice)
    assert create_once(tmp_path / "f", b"ours")
    assert not create_once(tmp_path / "f", b"another's")
    assert (tmp_path / "f").read_bytes() == b"ours"
    assert [p.name for p in tmp_path.iterdir()] == ["f"]


def test_a_folder_made_for_a_run_is_private_and_older_ones_stay_unchanged(
    tmp_path: Path,
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)
    make_private_dir(shared / "a" / "b")
    assert [p.stat().st_mode & 0o777 for p in (shared, shared / "a", shared / "a" / "b")] == [
        0o755,
        0o700,
        0o700,
    ]


def test_equal_values_are_equal_bytes_whatever_their_order(tmp_path: Path) -> None:
    write_json_atomic(tmp_path / "a", {"x": 1, "ä": [None, 1.5]})
    write_json_atomic(tmp_path / "b", {"ä": [None, 1.5], "x": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert read_json(tmp_path / "a") == {"x": 1, "ä": [None, 1.5]}


def test_files_are_their_owners_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_text_atomic(tmp_path / "written", "")
        write_text_atomic(tmp_path / "written", "again")
        create_once(tmp_path / "created", b"")
        with private_umask():
            (tmp_path / "touched").touch()
            subprocess.run(["touch", tmp_path / "childs"], check=True)
        (tmp_path / "open").touch()
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    private = dict.fromkeys(("written", "created", "touched", "childs"), 0o600)
    assert modes == {**private, "open": 0o666}  # the mask is given back


def test_a_file_cut_short_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    path.write_text('{"a": ')
    with pytest.raises(DamagedFileError, match=f"{path} is damaged.*restore the file"):
        read_json(path)


def test_a_file_name_that_is_no_utf8_is_written_and_reads_back(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.txt")
    values = {"outputs": {name: 1}, "cafés": [name, "\ud800", "\\udce9"]}
    write_json_atomic(tmp_path / "a", values)
    create_once(tmp_path / "b", dump_json(values).encode())
    assert read_json(tmp_path / "a") == read_json(tmp_path / "b") == values
    assert "cafés" in (tmp_path / "a").read_text(encoding="utf-8")  # what is UTF-8 stays legible
    write_text_atomic(tmp_path / "c", f"{name} é")
    assert (tmp_path / "c").read_text(encoding="utf-8") == "caf\\udce9.txt é"


@contextmanager
def full_disk() -> Iterator[None]:
    """A write beyond 1,000 bytes of a file fails: the kernel names no file then, either.

    No fixture: pytest's own output may be a file, and is written before fixtures end.
    """
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def write_in_blocks(path: Path, data: bytes) -> None:
    with atomic_writer(path, sync=False) as stream:
        for start in range(0, len(data), 100):
            stream.write(data[start : start + 100])


@pytest.mark.parametrize("write", [write_bytes_atomic, create_once, write_in_blocks])
@pytest.mark.parametrize("num_bytes", [2000, 2 << 20])
def test_a_write_that_fails_names_the_file_that_was_to_be(
    tmp_path: Path, write: Callable[[Path, bytes], object], num_bytes: int
) -> None:
    with full_disk(), pytest.raises(OSError, match=r"File too large: '.*/shard\.tar'") as told:
        write(tmp_path / "shard.tar", bytes(num_bytes))
    assert (told.value.errno, told.value.filename) == (errno.EFBIG, str(tmp_path / "shard.tar"))
    assert not list(tmp_path.iterdir())


def test_a_sync_that_fails_names_the_file_and_keeps_the_kind_of_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken server is not to be had: its error is made up."""

    def fails(_: int) -> None:
        raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(TimeoutError) as told:
        write_text_atomic(tmp_path / "record.json", "{}")
    assert told.value.filename == str(tmp_path / "record.json")


def test_a_read_error_is_not_attributed_to_the_written_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="Input/output error") as told:  # noqa: SIM117
        with atomic_writer(tmp_path / "f"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
    assert told.value.filename is None
