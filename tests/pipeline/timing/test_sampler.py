"""Readings of a node's load: counters, devices, GPUs, processes, and the thread that takes them.

The driver of GPUs is a fake with pynvml's names, /proc is made up, and some readings are real."""

import logging
import math
import os
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.timing import sampler as sampler_module
from pipeline.timing.load.gpu_readings import choose_gpus, open_gpus
from pipeline.timing.load.job_processes import JobProcesses, parse_stat
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
from pipeline.timing.load.node_devices import disk_behind, infiniband_ports, whole_disks
from pipeline.timing.sampler import Sources, SystemSampler, find_sources, sample_system
from slurm_jobs.shared.configs.training_parts import SamplerConfig
from slurm_jobs.shared.machine import mount_of, network_cards
from slurm_jobs.shared.timings import read_system, system_path
from tests.contexts import make_context
from tests.pipeline.timing.test_steps import full_disk

PATIENCE_S = 30


class Beat:
    """A source that counts its readings, and says when it was read so often."""

    def __init__(self, enough=1):
        self.num, self.enough, self.has_enough = 0, enough, threading.Event()
        self.error = None

    def read(self, interval_s):
        self.num += 1
        if self.num >= self.enough:
            self.has_enough.set()
        if self.error is not None:
            raise self.error
        return {"cpu_busy_share": self.num / 100}


class Clock:
    def __init__(self):
        self.now_s = 100.0

    def monotonic(self):
        return self.now_s

    def now(self):
        return 1.7e9 + self.now_s


def make(path, source, *, every_s=1.0, gpus=None, **options):
    def read(interval_s):
        return source.read(interval_s)  # which a test may replace

    sources = Sources(host={"beat": read}, gpus=gpus, metadata={"gpus": []})
    return SystemSampler(path, sources, every_s=every_s, metadata={"node_name": "n1"}, **options)


@pytest.fixture
def path(tmp_path):
    return system_path(tmp_path, 3)


def test_a_reading_says_when_it_was_and_over_which_time(path):
    clock = Clock()
    sampler = make(path, Beat(), monotonic=clock.monotonic, now=clock.now)
    for interval_s in (1.0, 2.5):
        clock.now_s += interval_s
        sampler.take()
    file = read_system(path)
    assert file.readings["interval_s"].tolist() == [1.0, 2.5]
    assert file.readings["unix_s"].tolist() == [1.7e9 + 101, 1.7e9 + 103.5]
    assert file.readings["cpu_busy_share"].tolist() == pytest.approx([0.02, 0.03])
    assert (file.metadata["node_name"], file.metadata["every_s"]) == ("n1", 1.0)


def test_the_thread_reads_again_and_again_and_ends_with_the_block(path):
    beat = Beat(enough=5)
    with make(path, beat, every_s=1e-3) as sampler:
        assert beat.has_enough.wait(PATIENCE_S)
    assert not sampler._thread.is_alive()
    assert len(read_system(path).readings) >= 4  # the first reading is what counters grow from


def test_the_end_waits_for_no_interval_and_a_short_block_has_its_reading(path):
    clock = Clock()
    with make(path, Beat(), every_s=1e6, monotonic=clock.monotonic) as sampler:
        clock.now_s += 0.5e6
    assert not sampler._thread.is_alive()
    assert read_system(path).readings["interval_s"].tolist() == [0.5e6]


def test_an_error_of_the_training_is_raised_and_ends_the_sampler(path):
    sampler = make(path, Beat(), every_s=1e6)
    with pytest.raises(ValueError, match="the loss"), sampler:
        raise ValueError("the loss")
    assert not sampler._thread.is_alive()


def test_a_source_that_fails_is_nan_and_reported_once_and_the_others_go_on(path, caplog):
    bad, good = Beat(), Beat()
    sources = Sources(host={"disks": bad.read, "processor": good.read}, gpus=None, metadata={})
    sampler = SystemSampler(path, sources, every_s=1.0, metadata={})
    bad.error = OSError("gone")
    for _ in range(3):
        sampler.take()
    file = read_system(path)
    assert file.readings["cpu_busy_share"].tolist() == pytest.approx([0.02, 0.03, 0.04])
    assert [record.message for record in caplog.records] == ["system readings lack disks: gone"]


def test_an_unexpected_error_ends_the_readings_and_not_the_training(path, caplog):
    beat = Beat(enough=2)
    with make(path, beat, every_s=1e-3) as sampler:
        beat.error = RuntimeError("unheard of")
        assert beat.has_enough.wait(PATIENCE_S)
        sampler._thread.join(PATIENCE_S)
        assert not sampler._thread.is_alive()
    assert "system readings end here" in caplog.text
    assert "unheard of" in caplog.text


def test_a_disk_that_fills_up_loses_readings_and_goes_on_when_there_is_room(path, caplog):
    sampler = make(path, Beat())
    sampler.take()
    with full_disk(path, num_bytes_left=20):
        sampler.take()
        sampler.take()
    sampler.take()
    file = read_system(path)
    assert file.readings["number"].tolist() == [1, 2]
    assert file.readings["cpu_busy_share"].tolist() == pytest.approx([0.02, 0.05])
    assert len([r for r in caplog.records if "system readings are lost" in r.message]) == 1


def test_a_reading_that_hangs_does_not_hold_the_training_up(path, caplog, monkeypatch):
    monkeypatch.setattr(sampler_module, "_JOIN_S", 0.01)
    beat, let_go = Beat(enough=2), threading.Event()
    sampler = make(path, beat, every_s=1e-3)
    beat.read = lambda interval_s: beat.has_enough.set() or let_go.wait(PATIENCE_S) or {}
    with sampler:
        assert beat.has_enough.wait(PATIENCE_S)
    assert "hangs" in caplog.text
    let_go.set()
    sampler._thread.join(PATIENCE_S)


@pytest.mark.parametrize(
    ("every_s", "local_rank", "files"),
    [(60.0, 0, ["node-00002.system"]), (60.0, 1, []), (None, 0, [])],
)
def test_the_first_rank_of_each_node_reads_it(tmp_path, every_s, local_rank, files):
    context = make_context("train", tmp_path, node_rank=2, local_rank=local_rank)
    with sample_system(SamplerConfig(every_s=every_s), context):
        pass
    assert [path.name for path in context.timing_dir.iterdir()] == files


def test_a_training_goes_on_where_readings_cannot_begin(tmp_path, caplog):
    context = make_context("train", tmp_path)
    system_path(context.timing_dir, 0).touch()  # another process has it
    with sample_system(SamplerConfig(), context):
        went_on = True
    assert went_on
    assert "no system readings of this node" in caplog.text
    assert system_path(context.timing_dir, 0).read_bytes() == b""


def test_this_machine_is_read_and_nothing_is_missed(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    sources = find_sources(tmp_path, {"CUDA_VISIBLE_DEVICES": ""})
    path = tmp_path / "x.system"
    sampler = SystemSampler(path, sources, every_s=1.0, metadata={})
    for _ in range(2):  # rates need two
        sampler.take()
    last = read_system(path).readings[-1]
    assert last["memory_available_bytes"] > 1e6
    assert last["job_resident_bytes"] > 1e6
    assert last["network_receive_bytes_per_s"] >= 0
    assert set(read_system(path).metadata["cores"]) >= os.sched_getaffinity(0)
    assert not caplog.records


def test_a_sampler_faster_than_ten_a_second_is_refused():
    with pytest.raises(ValueError, match=r"every_s is 0\.01"):
        SamplerConfig(every_s=0.01)


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


def test_shares_of_the_processor_are_those_of_the_time_between_two_readings(tmp_path):
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


MOUNTS = """22 1 0:20 / / rw - btrfs /dev/nvme0n1p2 rw,subvol=/root
30 22 0:31 / /scratch rw,noatime shared:1 - zfs tank rw
31 22 0:32 / /with\\040space rw - btrfs /dev/sda1 rw
32 30 0:33 / /scratch/fast rw - tmpfs tmpfs rw
33 30 8:17 / /scratch/fast rw - xfs /dev/sdb1 rw
"""


def test_only_whole_disks_count(tmp_path):
    for name, is_real in (("nvme0n1", True), ("sda", True), ("dm-0", False), ("loop0", False)):
        folder = tmp_path / "block" / name
        (folder / "device" if is_real else folder).mkdir(parents=True)
        (folder / "dev").write_text(f"259:{len(name)}\n")
    assert whole_disks(tmp_path) == ["259:7", "259:3"]


def test_only_real_cards_count_so_that_no_byte_counts_twice(tmp_path):
    for name, is_real in (("bond0", False), ("eth0", True), ("eth1", True), ("lo", False)):
        folder = tmp_path / "class/net" / name
        (folder / "device" if is_real else folder).mkdir(parents=True)
    assert network_cards(tmp_path) == ["eth0", "eth1"]


def test_in_a_container_all_but_the_loopback_counts(tmp_path):
    for name in ("eth0", "lo"):
        (tmp_path / "class/net" / name).mkdir(parents=True)
    assert network_cards(tmp_path) == ["eth0"]


def test_each_port_of_infiniband_counts(tmp_path):
    assert infiniband_ports(tmp_path) == []
    for card, port in (("mlx5_0", 1), ("mlx5_1", 1), ("mlx5_1", 2)):
        (tmp_path / f"class/infiniband/{card}/ports/{port}/counters").mkdir(parents=True)
    assert len(infiniband_ports(tmp_path)) == 3


def test_the_disk_of_a_file_system_with_its_own_numbers_is_found_by_its_mount(tmp_path):
    path = tmp_path / "x"
    assert mount_of(MOUNTS, path).source == "/dev/nvme0n1p2"
    assert mount_of(MOUNTS, path.__class__("/scratch/me")).source == "tank"
    assert mount_of(MOUNTS, path.__class__("/with space/me")).source == "/dev/sda1"
    assert mount_of(MOUNTS, path.__class__("/scratch/fast/me")).source == "/dev/sdb1"
    assert mount_of("", path).source == ""


def test_the_disk_behind_a_folder_of_this_machine_is_that_of_its_file_system(tmp_path):
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mounts"
    mounts.write_text("")
    expected = f"{os.major(device)}:{os.minor(device)}" if os.major(device) else None
    assert disk_behind(tmp_path, mounts) == expected


PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Machine:
    """A /proc of processes that a test makes, and a clock."""

    def __init__(self, root):
        self.root, self.now_s = root, 0.0
        self.cores = {0: {0}}
        self.cost_s = 0.0

    def put(self, pid, *, session=7, ticks=0, start=5, pages=1, name="python"):
        folder = self.root / str(pid)
        folder.mkdir(exist_ok=True)
        fields = ["S", "1", "1", str(session), *"0000000", str(ticks), "0", *"00000", "1"]
        fields[-1:] = ["0", str(start), "0", str(pages)]
        (folder / "stat").write_text(f"{pid} ({name}) " + " ".join(fields) + " 0 0\n")

    def end(self, pid):
        (self.root / str(pid) / "stat").unlink()
        (self.root / str(pid)).rmdir()

    def affinity(self, pid):
        self.now_s += self.cost_s
        return self.cores.get(pid, {0})

    def processes(self):
        return JobProcesses(
            session=7, proc=self.root, clock=lambda: self.now_s, affinity=self.affinity
        )


@pytest.fixture
def machine(tmp_path):
    (tmp_path / "meminfo").touch()  # is no process
    return Machine(tmp_path)


def test_a_name_with_brackets_and_spaces_shifts_no_field(machine):
    machine.put(3, ticks=50, name="a) b (c) 1 2")
    stat = parse_stat((machine.root / "3/stat").read_text())
    assert (stat.session, stat.cpu_ticks, stat.start_ticks, stat.resident_pages) == (7, 50, 5, 1)


def test_the_time_and_memory_of_the_session_are_added_and_no_others(machine):
    machine.put(10, ticks=100, pages=3)
    machine.put(11, ticks=0, pages=4)
    machine.put(12, ticks=0, pages=1000, session=8)
    machine.put(13, ticks=0, pages=1000, name="slurmstepd")
    processes = machine.processes()
    assert processes.read(0.0) == {"job_resident_bytes": 7 * PAGE_BYTES}
    machine.put(10, ticks=100 + TICKS_PER_S, pages=3)
    machine.put(11, ticks=3 * TICKS_PER_S, pages=4)
    machine.put(12, ticks=9 * TICKS_PER_S, session=8)
    assert processes.read(2.0)["job_cpu_s_per_s"] == pytest.approx(2.0)


def test_a_process_that_ended_or_whose_number_was_given_away_counts_nothing(machine):
    machine.put(10, ticks=500, start=1)
    machine.put(11, ticks=500)
    processes = machine.processes()
    processes.read(0.0)
    machine.put(10, ticks=900, start=2)
    machine.end(11)
    assert "job_cpu_s_per_s" not in processes.read(1.0)
    machine.put(10, ticks=900 + TICKS_PER_S, start=2)
    assert processes.read(1.0)["job_cpu_s_per_s"] == 1.0


def test_new_processes_are_looked_for_every_half_minute(machine):
    machine.put(10)
    processes = machine.processes()
    processes.read(0.0)
    machine.put(11, pages=2)
    machine.now_s = 29.0
    assert processes.read(1.0)["job_resident_bytes"] == PAGE_BYTES
    machine.now_s = 31.0
    assert processes.read(1.0)["job_resident_bytes"] == 3 * PAGE_BYTES


def test_looking_takes_a_thousandth_of_a_core_at_most(machine):
    machine.put(10)
    machine.cost_s = 0.05  # a node of some ten thousand processes
    processes = machine.processes()
    processes.scan()
    looked_s, machine.cost_s = machine.now_s, 0.0
    machine.put(11)
    machine.now_s = looked_s + 99.0
    assert processes.read(1.0)["job_resident_bytes"] == PAGE_BYTES
    machine.now_s = looked_s + 101.0
    assert processes.read(1.0)["job_resident_bytes"] == 2 * PAGE_BYTES


def test_the_jobs_cores_are_those_of_all_its_ranks(machine):
    machine.put(10)
    machine.put(11)
    machine.put(13, name="slurmstepd")
    machine.cores = {0: {0, 1}, 10: {0, 1}, 11: {2, 3}, 13: set(range(64))}
    processes = machine.processes()
    assert set(processes.cores()) == {0, 1}
    processes.scan()
    assert set(processes.cores()) == {0, 1, 2, 3}


def test_a_real_process_of_this_session_is_found():
    child = subprocess.Popen(["sleep", "60"])
    try:
        processes = JobProcesses()
        processes.scan()
        with_child = processes.read(0.0)["job_resident_bytes"]
    finally:
        child.kill()
        child.wait()
    assert processes.read(1.0)["job_resident_bytes"] < with_child
    assert set(processes.cores()) >= os.sched_getaffinity(0)


UUIDS = ("GPU-aaaa-1", "GPU-bbbb-2", "GPU-bbcc-3")


class NVMLError(Exception):
    """As in pynvml."""


# ruff: noqa: N802 - the names are those of pynvml


class FakeNvml:
    """As many GPUs as there are UUIDs; `mute` names the functions that fail.

    `denied` are the indices without permission; `lost` the UUIDs that cannot be opened.
    """

    NVMLError = NVMLError

    def __init__(self, uuids=UUIDS, mute=(), denied=(), lost=()):
        self.uuids, self.mute, self.is_open = uuids, set(mute), False
        self.denied, self.lost = denied, lost

    def _say(self, function, value):
        if function in self.mute:
            raise NVMLError("Not Supported")
        return value

    def nvmlInit(self):
        self.is_open = self._say("nvmlInit", True)

    def nvmlShutdown(self):
        self.is_open = False

    def nvmlDeviceGetCount(self):
        return len(self.uuids)

    def nvmlDeviceGetHandleByIndex(self, index):
        if index in self.denied:
            raise NVMLError("Insufficient Permissions")
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid):
        if uuid not in self.uuids or uuid in self.lost:
            raise NVMLError("Not Found")
        return self.uuids.index(uuid)

    def nvmlDeviceGetUUID(self, handle):
        return self.uuids[handle]

    def nvmlDeviceGetName(self, handle):
        return "Tesla V100"

    def nvmlDeviceGetMemoryInfo(self, handle):
        info = SimpleNamespace(total=16e9, used=1e9 * (handle + 1))
        return self._say("nvmlDeviceGetMemoryInfo", info)

    def nvmlDeviceGetUtilizationRates(self, handle):
        rates = SimpleNamespace(gpu=10 * handle, memory=handle)
        return self._say("nvmlDeviceGetUtilizationRates", rates)

    def nvmlDeviceGetPowerUsage(self, handle):
        return self._say("nvmlDeviceGetPowerUsage", 250_500)


@pytest.mark.parametrize(
    ("visible", "chosen"),
    [
        (None, UUIDS),
        ("0,2", ("GPU-aaaa-1", "GPU-bbcc-3")),
        ("2, 0", ("GPU-bbcc-3", "GPU-aaaa-1")),
        ("GPU-bbcc", ("GPU-bbcc-3",)),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("1,7,0", ("GPU-bbbb-2",)),  # CUDA stops at the first that is not there
        ("1,1", ("GPU-bbbb-2",)),
        ("MIG-xy", ("MIG-xy",)),
    ],
)
def test_the_chosen_gpus_are_those_that_cuda_would_show(visible, chosen):
    assert tuple(choose_gpus(visible, UUIDS)) == chosen


def test_no_more_than_sixteen_are_read():
    assert len(choose_gpus(None, [f"GPU-{i}" for i in range(20)])) == 16


def opened(nvml, visible="1,2", **options):
    return open_gpus(visible, load=lambda: nvml, **options)


@pytest.fixture
def driver(tmp_path):
    path = tmp_path / "version"
    path.touch()
    return path


def test_values_are_in_the_order_of_the_facts_and_in_the_units_of_their_names(driver):
    nvml = FakeNvml()
    source = opened(nvml, driver=driver)
    assert [fact["uuid"] for fact in source.facts] == ["GPU-bbbb-2", "GPU-bbcc-3"]
    assert source.facts[0]["memory_bytes"] == 16e9
    assert source.read_all() == {
        "gpu_busy_share": [0.1, 0.2],
        "gpu_memory_busy_share": [0.01, 0.02],
        "gpu_memory_used_bytes": [2e9, 3e9],
        "gpu_power_w": [250.5, 250.5],
    }
    source.close()
    assert not nvml.is_open


def test_a_reading_that_a_gpu_lacks_is_nan_and_reported_once(driver, caplog):
    source = opened(FakeNvml(mute=["nvmlDeviceGetPowerUsage"]), driver=driver)
    for _ in range(3):
        values = source.read_all()
    assert all(math.isnan(power) for power in values["gpu_power_w"])
    assert values["gpu_busy_share"] == [0.1, 0.2]
    assert [record.message for record in caplog.records] == [
        "system readings: a GPU does not answer nvmlDeviceGetPowerUsage: Not Supported"
    ]


def test_without_a_driver_nothing_is_imported_and_nothing_reported(tmp_path, caplog):
    assert opened(None, driver=tmp_path / "none") is None
    assert not caplog.records


def test_a_missing_package_is_reported_with_the_remedy(driver, caplog):
    def load():
        raise ModuleNotFoundError("No module named 'pynvml'")

    assert open_gpus(None, load=load, driver=driver) is None
    assert "pip install nvidia-ml-py" in caplog.text


def test_a_driver_that_fails_is_reported(driver, caplog):
    assert opened(FakeNvml(mute=["nvmlInit"]), driver=driver) is None
    assert "Not Supported" in caplog.text


def test_a_job_without_gpus_on_a_node_that_has_some_reads_none_of_them(driver):
    nvml = FakeNvml()
    assert opened(nvml, visible="", driver=driver) is None
    assert not nvml.is_open


def test_a_gpu_without_permission_is_not_numbered_and_costs_no_other_its_readings(driver):
    # Slurm's cgroup denies the first GPU of the node, and CUDA counts from the second.
    source = opened(FakeNvml(denied=[0]), visible="0,1", driver=driver)
    assert [fact["uuid"] for fact in source.facts] == ["GPU-bbbb-2", "GPU-bbcc-3"]
    assert source.read_all()["gpu_busy_share"] == [0.1, 0.2]


def test_a_gpu_that_cannot_be_opened_is_left_out_with_a_warning(driver, caplog):
    source = opened(FakeNvml(lost=["GPU-bbbb-2"]), driver=driver)
    assert [fact["uuid"] for fact in source.facts] == ["GPU-bbcc-3"]
    assert source.read_all()["gpu_busy_share"] == [0.2]
    assert "lack the GPU GPU-bbbb-2: NVML says: Not Found" in caplog.text
