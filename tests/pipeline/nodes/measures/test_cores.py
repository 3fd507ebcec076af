"""Cores that may really be used: measured on this machine, and read from control groups."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pipeline.nodes.measures import cores as module
from pipeline.nodes.measures.cores import busy_cores, cgroup_quota, measure_cores, quota_in
from pipeline.nodes.measures.measurement import Deadline, Measurement

WINDOW_S = 0.5
"""Long enough that a process gets a core on a machine that others load."""


def cores(number: int) -> Measurement:
    """Measure until a process got a core, which a machine that others load may deny for seconds."""
    for _ in range(20):
        measured = measure_cores(number, Deadline.after(0.1), window_s=WINDOW_S)
        if measured.numbers:
            return measured
    pytest.fail(f"no process got a core: {measured.reasons}")


def test_one_core_is_found_where_processes_share_one() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})  # children inherit it, as from Slurm
    try:
        found = cores(4)
    finally:
        os.sched_setaffinity(0, allowed)
    assert 0 < found.numbers["cores_usable"] < 1.5
    assert found.details["cores"]["num_allowed"] == 1
    assert set(found.details["cores"]["cores_by_processes"]) == {"1", "2", "4"}


def test_the_speed_of_a_core_does_not_depend_on_how_many_share_it() -> None:
    few = cores(1)
    assert few.numbers["core_loops_per_s"] > 1e6
    assert few.numbers["cores_usable"] < 1.2  # one process has one core at most


def test_a_window_in_which_no_process_came_to_work_measures_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_work", lambda _number, _window_s: (0.0, 0.001))
    found = measure_cores(2, Deadline.after(0.1), window_s=0.05)
    assert found.numbers == {}


@pytest.mark.parametrize(("later", "cores_found"), [(1.0, 2.0), (0.5, 1.0)])
def test_a_lasting_limit_on_cores_counts_and_a_momentary_load_does_not(
    monkeypatch: pytest.MonkeyPatch, later: float, cores_found: float
) -> None:
    shares = [*3 * [0.5], *3 * [later]]  # of two cores, window by window

    def work(number: int, window_s: float) -> tuple[float, float]:
        cpu_s = window_s if number == 1 else 2 * window_s * shares.pop(0)
        return 1e6 * cpu_s, cpu_s

    monkeypatch.setattr(module, "_work", work)
    monkeypatch.setattr(module, "_PAUSE_S", 0.0)
    found = measure_cores(2, Deadline.after(60), window_s=0.05)
    assert found.numbers["cores_usable"] == pytest.approx(cores_found)
    assert shares == []


def test_no_process_is_left_behind() -> None:
    measure_cores(3, Deadline.after(0.1), window_s=0.05)
    children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    left = [pid for pid in children if "test_cores" in Path(f"/proc/{pid}/cmdline").read_text()]
    assert left == []


def test_the_tightest_control_group_counts(tmp_path: Path) -> None:
    inner = tmp_path / "fs" / "slurm" / "job_1"
    inner.mkdir(parents=True)
    (inner / "cpu.max").write_text("max 100000\n")
    (inner.parent / "cpu.max").write_text("150000 100000\n")
    cgroup = tmp_path / "cgroup"
    cgroup.write_text("0::/slurm/job_1\n")
    assert cgroup_quota(cgroup, tmp_path / "fs") == 1.5


def test_version_1_of_control_groups_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "fs" / "cpu" / "slurm"
    folder.mkdir(parents=True)
    (folder / "cpu.cfs_quota_us").write_text("400000\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")
    cgroup = tmp_path / "cgroup"
    cgroup.write_text("4:memory:/slurm\n3:cpu,cpuacct:/slurm\n")
    assert cgroup_quota(cgroup, tmp_path / "fs") == 4.0


def test_no_limit_is_none(tmp_path: Path) -> None:
    assert quota_in({"cpu.max": "max 100000"}) is None
    assert quota_in({"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}) is None
    assert quota_in({}) is None
    assert cgroup_quota(tmp_path / "nowhere", tmp_path) is None


def test_what_others_do_is_seen() -> None:
    assert 0 <= busy_cores(0.1) <= (os.cpu_count() or 1) + 0.5
