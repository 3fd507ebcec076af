"""Plan files: what was written comes back, and nothing else is taken for it."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.data.packing import pack_files
from pipeline.data.packing.budget import Packs
from pipeline.data.packing.pack_files import open_packs, plan_name, write_packs
from slurm_jobs.base.errors import DamagedFileError

KEY = {"fingerprint": "abc", "strategy": "exact", "budget": [4096, None], "words": [0, 1]}


def some_packs(num_packs: int, first: int = 0, kind: type = np.int32) -> Packs:
    sizes = np.arange(num_packs) % 5 + 1
    bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Packs(bounds=bounds, items=np.arange(first, first + bounds[-1], dtype=kind))


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    path = tmp_path / "packs.bin"
    write_packs(path, [some_packs(40)], KEY)
    return path


@settings(max_examples=50, deadline=None)
@given(
    sizes=st.lists(st.integers(0, 30), min_size=1, max_size=5).filter(any),
    kind=st.sampled_from([np.int32, np.int64]),
)
def test_packs_come_back_as_they_were_written(
    sizes: list[int], kind: type, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("plan") / "packs.bin"
    parts = [some_packs(size, first=100 * n, kind=kind) for n, size in enumerate(sizes)]
    write_packs(path, iter(parts), KEY)
    packs = open_packs(path, KEY)
    expected = [part.pack(n).tolist() for part in parts for n in range(len(part))]
    assert [packs.pack(n).tolist() for n in range(len(packs))] == expected
    assert packs.items.dtype == kind
    assert packs.bounds.dtype == np.int64
    assert not packs.items.flags.writeable


def is_taken(path: Path, data: bytes) -> bool:
    """Whether a file of these bytes is opened as a plan."""
    # Written beside, because a file that is mapped must not shrink.
    other = path.with_name("other.bin")
    other.unlink(missing_ok=True)
    other.write_bytes(data)
    try:
        open_packs(other, KEY)
    except DamagedFileError:
        return False
    return True


def test_every_byte_of_a_file_counts(plan: Path) -> None:
    data = plan.read_bytes()
    unchecked = set()
    for place in [*range(200), *range(4060, len(data))]:
        damaged = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        if is_taken(plan, damaged):
            unchecked.add(place)
    gap = pack_files._HEADER_BYTES + 4 * int(some_packs(40).bounds[-1])
    assert unchecked <= set(range(gap, gap + 8))  # between items and bounds, to a multiple of 8


def test_a_file_that_is_cut_short_or_longer_is_refused_without_reading_all(plan: Path) -> None:
    data = plan.read_bytes()
    for damaged in (data[:-1], data[:-8], data + b"x", data[:4096], data[:4095], data[:10], b""):
        plan.write_bytes(damaged)
        with pytest.raises(DamagedFileError, match=r"packs.bin cannot be used: .* Remove it"):
            open_packs(plan, KEY, verify=False)


def test_a_foreign_file_is_refused(plan: Path) -> None:
    plan.write_bytes(b"PAR1" * 5000)
    with pytest.raises(DamagedFileError, match="does not begin as a plan file does"):
        open_packs(plan, KEY)


def test_packs_made_from_something_else_are_refused_with_what_differs(plan: Path) -> None:
    with pytest.raises(DamagedFileError, match=r"made with fingerprint 'abc' instead of 'xyz'\."):
        open_packs(plan, {**KEY, "fingerprint": "xyz"})
    with pytest.raises(DamagedFileError, match="strategy 'exact' instead of None"):
        open_packs(plan, {name: value for name, value in KEY.items() if name != "strategy"})


def test_another_version_is_refused(plan: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_files, "FORMAT_VERSION", 2)
    with pytest.raises(DamagedFileError, match="it has version 1, and this is 2"):
        open_packs(plan, KEY)


def test_a_file_that_is_missing_is_no_damaged_one(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_packs(tmp_path / "packs.bin", KEY)


def test_another_key_has_another_name() -> None:
    assert plan_name(KEY) == plan_name(dict(reversed(KEY.items())))
    assert plan_name(KEY) != plan_name({**KEY, "words": [0, 2]})


def test_a_plan_that_fails_half_way_leaves_the_earlier_one(plan: Path) -> None:
    before = plan.read_bytes()

    def broken() -> Iterator[Packs]:
        yield some_packs(1000)
        raise OSError(errno.EIO, "the index went away")

    with pytest.raises(OSError, match="went away"):
        write_packs(plan, broken(), KEY)
    assert plan.read_bytes() == before
    assert list(plan.parent.iterdir()) == [plan]


def test_no_packs_are_no_plan(tmp_path: Path) -> None:
    for parts in ([], [some_packs(0)]):
        with pytest.raises(ValueError, match="no packs to write"):
            write_packs(tmp_path / "packs.bin", parts, KEY)
    with pytest.raises(ValueError, match="key of a plan file is too long"):
        write_packs(tmp_path / "packs.bin", [some_packs(3)], {"name": "x" * 5000})
    assert not list(tmp_path.iterdir())


def test_a_writer_that_is_killed_leaves_no_plan(tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
import numpy as np
from pipeline.data.packing.budget import Packs
from pipeline.data.packing.pack_files import write_packs

def parts():
    for _ in range(100):
        yield Packs(bounds=np.array([0, 1 << 16]), items=np.arange(1 << 16, dtype=np.int32))
    print("half", flush=True)
    sys.stdin.read()

write_packs(Path(sys.argv[1]), parts(), {})
"""
    path = tmp_path / "packs.bin"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"half\n"
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not path.exists()
    write_packs(path, [some_packs(5)], KEY)
    assert len(open_packs(path, KEY)) == 5
