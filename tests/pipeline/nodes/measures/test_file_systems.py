"""Rates of file systems, really measured with small sizes; full disks."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline.nodes.measures.file_systems import measure_file_system
from pipeline.nodes.measures.measurement import Deadline
from pipeline.nodes.measures.scratch_folder import remove_left_behind
from slurm_jobs.formats.configs.stages import ProbeConfig
from tests.end_to_end.driver import wait_for

SMALL = ProbeConfig(file_mb=8, num_small_files=5)
RATES = {"local_read_bytes_per_s", "local_write_bytes_per_s", "local_create_s", "local_open_s"}


def test_a_file_system_is_measured_and_left_as_it_was(tmp_path: Path) -> None:
    found = measure_file_system("local", tmp_path, SMALL, Deadline.after(3))
    assert found.reasons == {}
    assert set(found.numbers) == RATES
    assert min(found.numbers.values()) > 0
    assert found.details["local"]["file_bytes"] == 8 * 2**20
    assert found.details["local"]["num_small_files"] == 5
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_yet_is_made(tmp_path: Path) -> None:
    found = measure_file_system("local", tmp_path / "a" / "b", SMALL, Deadline.after(1))
    assert set(found.numbers) == RATES


def test_writing_stops_when_the_time_is_up(tmp_path: Path) -> None:
    start_s = time.monotonic()
    large = ProbeConfig(file_mb=512, num_small_files=10_000)
    found = measure_file_system("local", tmp_path, large, Deadline.after(0.4))
    assert time.monotonic() - start_s < 8
    assert found.details["local"]["file_bytes"] < 512 * 2**20
    assert 3 <= found.details["local"]["num_small_files"] < 10_000


@pytest.fixture
def memory_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 16 MiB in memory."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts a file system")
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_reads_from_memory_are_not_reported_as_cold(memory_disk: Path) -> None:
    found = measure_file_system("local", memory_disk, SMALL, Deadline.after(1))
    details = found.details["local"]
    assert details["file_system"] == "tmpfs"
    assert details["cached_share_before_reading"] == 1.0
    assert not details["reads_are_cold"]


def test_a_full_disk_is_refused_with_what_to_do(memory_disk: Path) -> None:
    (memory_disk / "filling").write_bytes(b"x" * 12 * 2**20)
    found = measure_file_system("local", memory_disk, SMALL, Deadline.after(1))
    assert found.numbers == {}
    assert "4 MiB free" in found.reasons["local"]
    assert "--file-mb" in found.reasons["local"]
    assert [path.name for path in memory_disk.iterdir()] == ["filling"]


def test_a_disk_that_fills_up_meanwhile_is_reported(
    memory_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A stand-in for what statvfs says: another process writes between that and our first byte.
    monkeypatch.setattr("pipeline.nodes.measures.file_systems._too_full", lambda *_: None)
    config = ProbeConfig(file_mb=64, num_small_files=5)
    found = measure_file_system("local", memory_disk, config, Deadline.after(5))
    assert "No space left on device" in found.reasons["local"]
    assert list(memory_disk.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_reported() -> None:
    found = measure_file_system("local", Path("/proc/nowhere"), SMALL, Deadline.after(1))
    assert "/proc/nowhere" in found.reasons["local"]
    assert "make it writable" in found.reasons["local"]


def test_a_large_file_goes_with_the_process_that_wrote_it(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from pipeline.nodes.measures.file_systems import measure_file_system\n"
        "from pipeline.nodes.measures.measurement import Deadline\n"
        "from slurm_jobs.formats.configs.stages import ProbeConfig\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    measure_file_system('local', Path(sys.argv[1]), ProbeConfig(file_mb=64), "
        "Deadline.after(5))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[4],
    )
    assert process.stdout is not None
    process.stdout.readline()
    wait_for(lambda: list(tmp_path.glob("*/owner.json")), "a probe at work", timeout_s=20)
    process.kill()
    process.wait()
    assert list(tmp_path.glob("*/large")) == []
    remove_left_behind(tmp_path)
    assert list(tmp_path.iterdir()) == []
