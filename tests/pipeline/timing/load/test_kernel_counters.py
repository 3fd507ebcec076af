"""Rates from the kernel's counters, and from those of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.timing.load.kernel_counters import (
    CpuSource,
    Increase,
    RateSource,
    read_cpu_ticks,
    read_disk_bytes,
    read_infiniband_bytes,
    read_memory,
    read_network_bytes,
)

STAT = """cpu  10 0 10 100 5 0 1 0 0 0
cpu0 100 5 20 1000 30 1 2 3 50 4
cpu1 7 0 0 1000 0 0 0 0 0 0
cpu10 1 1 1 1 1 1 1 1 1 1
intr 1 2 3
cpu_is_no_line 1
"""
DISKSTATS = """ 259       0 nvme0n1 10 0 1000 4 20 0 3000 5 0 6 7 0 0 0 0 0 0
 259       1 nvme0n1p1 1 0 900 4 2 0 2900 5 0 6 7 0 0 0 0 0 0
   8       0 sda 5 0 10 1 5 0 20 1 0 2 2
"""
NET_DEV = """Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo
    lo: 999 1 0 0 0 0 0 0 999 1 0 0 0 0 0 0
  eth0: 1000 2 0 0 0 0 0 0 300 3 0 0 0 0 0 0
   ib0:12345678901 2 0 0 0 0 0 0 7 3 0 0 0 0 0 0
"""


def test_ticks_are_those_of_the_wanted_cores_without_guests():
    assert read_cpu_ticks(STAT, {0, 10}) == {
        "cpu0": [100, 5, 20, 1000, 30, 1, 2, 3],
        "cpu10": [1] * 8,
    }


@pytest.mark.parametrize(
    ("read", "text", "names", "counted"),
    [
        (
            read_disk_bytes,
            DISKSTATS,
            {"259:0", "8:0"},
            {"259:0": [512_000, 1_536_000], "8:0": [5120, 10_240]},
        ),
        (
            read_network_bytes,
            NET_DEV,
            {"eth0", "ib0"},
            {"eth0": [1000, 300], "ib0": [12345678901, 7]},
        ),
    ],
)
def test_bytes_are_those_of_the_named_disks_and_interfaces(tmp_path, read, text, names, counted):
    (tmp_path / "counters").write_text(text)
    assert read(names, tmp_path / "counters") == counted


def test_cpu_shares_cover_the_time_between_two_readings(tmp_path):
    stat = tmp_path / "stat"
    source = CpuSource(lambda: {0, 1}, stat)
    stat.write_text(
        "cpu0 100 0 0 100 0 0 0 0 0 0\ncpu1 0 0 0 100 0 0 0 0 0 0\ncpu2 9 9 9 9 9 9 9 9\n"
    )
    assert source.read(0.0) == {}
    stat.write_text(
        "cpu0 160 0 10 120 10 0 0 0 0 0\ncpu1 0 0 0 150 50 0 0 0 0 0\ncpu2 999 9 9 9 9 9\n"
    )
    assert source.read(1.0) == {
        "cpu_busy_share": pytest.approx(70 / 200),
        "cpu_iowait_share": pytest.approx(60 / 200),
    }


def test_cores_that_come_later_count_from_their_second_reading(tmp_path):
    stat, cores = tmp_path / "stat", [{0}]
    source = CpuSource(lambda: cores[0], stat)
    stat.write_text("cpu0 0 0 0 0 0 0 0 0\ncpu1 0 0 0 0 0 0 0 0\n")
    source.read(0.0)
    cores[0] = {0, 1}
    stat.write_text("cpu0 10 0 0 0 0 0 0 0\ncpu1 0 0 0 10 0 0 0 0\n")
    assert source.read(1.0)["cpu_busy_share"] == 1
    stat.write_text("cpu0 20 0 0 0 0 0 0 0\ncpu1 0 0 0 20 0 0 0 0\n")
    assert source.read(1.0)["cpu_busy_share"] == 0.5


def test_a_rate_is_what_all_counters_grew_by_over_the_time():
    seen = iter([{"a": [100, 0], "b": [0, 0]}, {"a": [300, 10], "b": [100, 0], "new": [9e9, 9e9]}])
    source = RateSource(("in", "out"), lambda: next(seen))
    assert source.read(0.0) == {}
    assert source.read(2.0) == {"in": 150, "out": 5}


def test_a_counter_that_fell_has_not_grown():
    increase = Increase()
    increase.see({"a": [100], "b": [0]})
    assert increase.see({"a": [0], "b": [5]}) == [5]
    assert increase.see({"a": [7], "b": [5]}) == [7]
    assert increase.see({"c": [7]}) is None


def test_infiniband_counts_in_units_of_four_bytes(tmp_path):
    for name in ("port_rcv_data", "port_xmit_data"):
        (tmp_path / name).write_text("1000\n")
    source = RateSource(("in", "out"), lambda: read_infiniband_bytes([tmp_path]))
    source.read(0.0)
    (tmp_path / "port_rcv_data").write_text("1250\n")
    assert source.read(0.5) == {"in": 2000, "out": 0}
    (tmp_path / "port_rcv_data").write_text("N/A (no PMA)\n")  # as drivers say it
    with pytest.raises(ValueError, match="N/A"):
        source.read(0.5)


def test_this_machine_has_its_counters():
    text = Path("/proc/stat").read_text()
    assert all(len(ticks) == 8 and sum(ticks) > 0 for ticks in read_cpu_ticks(text, {0}).values())
    assert read_memory(1.0)["memory_available_bytes"] > 1e6
    assert read_network_bytes({"lo"})["lo"][0] >= 0
