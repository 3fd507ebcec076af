"""Processes of the job, in a made-up /proc and in the real one."""

from __future__ import annotations

import os
import subprocess

import pytest

from pipeline.timing.load.job_processes import JobProcesses, parse_stat

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Machine:
    """A /proc of processes that a test makes, and a clock."""

    def __init__(self, root):
        self.root, self.now_s = root, 0.0
        self.cores = {0: {0}}
        self.sessions = {0: 7}

    def put(self, pid, *, session=7, ticks=0, start=5, pages=1, name="python"):
        self.sessions[pid] = session
        folder = self.root / str(pid)
        folder.mkdir(exist_ok=True)
        fields = ["S", "1", "1", str(session), *"0000000", str(ticks), "0", *"00000", "1"]
        fields[-1:] = ["0", str(start), "0", str(pages)]
        (folder / "stat").write_text(f"{pid} ({name}) " + " ".join(fields) + " 0 0\n")

    def end(self, pid):
        (self.root / str(pid) / "stat").unlink()
        (self.root / str(pid)).rmdir()

    def affinity(self, pid):
        return self.cores.get(pid, {0})

    def processes(self):
        return JobProcesses(
            session_of=self.sessions.__getitem__,
            proc=self.root,
            clock=lambda: self.now_s,
            affinity=self.affinity,
        )


@pytest.fixture
def machine(tmp_path):
    (tmp_path / "meminfo").touch()  # is no process
    return Machine(tmp_path)


def test_a_name_with_brackets_and_spaces_shifts_no_field(machine):
    machine.put(3, ticks=50, name="a) b (c) 1 2")
    stat = parse_stat((machine.root / "3/stat").read_text())
    assert (stat.cpu_ticks, stat.start_ticks, stat.resident_pages) == (50, 5, 1)


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


def test_an_ended_process_or_one_with_a_reused_number_counts_nothing(machine):
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
