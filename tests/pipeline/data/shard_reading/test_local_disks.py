"""Which file systems are this machine's own."""

from __future__ import annotations

from pathlib import Path

from pipeline.data.shard_reading import local_disks
from pipeline.data.shard_reading.local_disks import is_on_this_machine


def test_shared_memory_is_on_this_machine_and_proc_is_not() -> None:
    assert is_on_this_machine(Path("/dev/shm"))
    assert not is_on_this_machine(Path("/proc/self/status"))


def test_a_device_that_nothing_is_mounted_by_is_not_taken_for_this_machine() -> None:
    assert local_disks._type_of(0) == ""
