"""How many cores this job may really use: what it is allowed, and how much work gets done at once.

The affinity and the quota say what is allowed. Neither knows of a neighbour, of a limit that a
hypervisor sets, or of two logical cores that share one real one. So processes are made to work,
and what n of them get done in a time is counted in what one core gets done while it has a core:
that is the number of cores that they had. (Not in what one process gets done in that time: where a
neighbour takes half of its core, two processes would look as good as two cores.)
"""

from __future__ import annotations

import os
import platform
import signal
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from pipeline.probe.measured import Deadline, Measured, median, not_measured, repeated
from slurm_jobs.common.process import dies_with_parent

WINDOW_S = 0.3
"""For which processes work: three periods of the kernel's quota, which counts in 0.1 s."""
_CHECK_EVERY = 2000
"""Turns of the loop between two looks at the clock: about 50 microseconds."""
_START_S = 0.004
"""For each process to be forked before the work begins."""
_MAX_PROCESSES = 512
_FEW = 0.8
"""Cores for each process, below which a second look is taken."""
_PAUSE_S = 2.0
"""Before it. Both are own choices."""
_DONE = "dd"
"""What a process says at its end: turns, and processor seconds that they took."""


def measure_cores(num_asked: int, deadline: Deadline, *, window_s: float = WINDOW_S) -> Measured:
    """Cores that are usable, and the speed of one; forks, so call it before threads are started.

    Args:
        num_asked: cores that the job was given on this node.
        deadline: when no further repeat is begun.
        window_s: for which the processes work, each time.
    """
    num_processes = max(1, min(num_asked, _MAX_PROCESSES))
    alone = repeated(lambda: _work(1, window_s), deadline, most=5)
    speeds = [turns / cpu_s for turns, cpu_s in alone if turns and cpu_s > 0]
    if not speeds:
        return not_measured("cores", f"one process got no core at all, each time for {window_s} s")
    speed = median(speeds)
    had = {1: median([turns for turns, _ in alone]) / window_s / speed}
    for number in _levels(num_processes):
        had[number] = _cores_of(number, window_s, deadline, speed)
    details = {
        "num_allowed": len(os.sched_getaffinity(0)),
        "quota_cores": cgroup_quota(),
        "num_asked": num_asked,
        "cores_by_processes": {str(number): cores for number, cores in had.items()},
        "window_s": window_s,
        "python": platform.python_version(),
    }
    numbers = {"cores_usable": max(had.values()), "core_loops_per_s": speed}
    return Measured(numbers=numbers, details={"cores": details})


def _cores_of(number: int, window_s: float, deadline: Deadline, speed: float) -> float:
    """Cores that so many processes have together, in a usual window.

    Where they had few cores they are looked at again a moment later, and the better of the two
    counts: what something else took for a moment is no property of the node, a limit is there in
    both.
    """

    def usual() -> float:
        done = repeated(partial(_work, number, window_s), deadline, most=3)
        return median([turns for turns, _ in done]) / window_s / speed

    cores = usual()
    if cores < _FEW * number and deadline.left_s > _PAUSE_S:
        time.sleep(_PAUSE_S)
        cores = max(cores, usual())
    return cores


def _levels(most: int) -> list[int]:
    """2, 4, 8 ... below `most`, then `most`; none for 1."""
    doubled = [2**power for power in range(1, most.bit_length()) if 2**power < most]
    return [*doubled, most] if most > 1 else []


def _work(num_processes: int, window_s: float) -> tuple[float, float]:
    """Turns of a loop and processor seconds of so many processes together, within one window."""
    read_end, write_end = os.pipe()
    prepare = dies_with_parent(signal.SIGKILL)
    begin_s = time.monotonic() + _START_S * (num_processes + 1)
    children = [_forked(write_end, begin_s, window_s, prepare) for _ in range(num_processes)]
    os.close(write_end)
    data = b""
    try:
        while piece := os.read(read_end, 65536):
            data += piece
    finally:
        os.close(read_end)
        for pid in children:
            os.waitpid(pid, 0)
    done = list(struct.iter_unpack(_DONE, data))
    return sum(turns for turns, _ in done), sum(cpu_s for _, cpu_s in done)


def _forked(write_end: int, begin_s: float, window_s: float, prepare: Callable[[], None]) -> int:
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    try:
        prepare()
        while time.monotonic() < begin_s:
            time.sleep(0.0005)
        began_s = time.process_time()
        turns = _turns_until(begin_s + window_s)
        os.write(write_end, struct.pack(_DONE, turns, time.process_time() - began_s))
    finally:
        os._exit(0)


def _turns_until(end_s: float) -> float:
    turns = 0
    while time.monotonic() < end_s:
        for _ in range(_CHECK_EVERY):
            pass
        turns += _CHECK_EVERY
    return float(turns)


def cgroup_quota(
    cgroup: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> float | None:
    """Cores that the control groups of this process leave it, the tightest one; None: no limit.

    Both versions of control groups are read; what is not there limits nothing.
    """
    try:
        lines = cgroup.read_text().splitlines()
    except OSError:
        return None
    quotas: list[float] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        base = root if not controllers else root / "cpu"
        inner = base / path.lstrip("/")
        folders = [inner, *(up for up in inner.parents if up.is_relative_to(base))]
        quotas += [quota for folder in folders if (quota := _quota_of(folder)) is not None]
    return min(quotas, default=None)


def _quota_of(folder: Path) -> float | None:
    return quota_in(
        {
            name: (folder / name).read_text().strip()
            for name in ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us")
            if (folder / name).is_file()
        }
    )


def quota_in(files: Mapping[str, str]) -> float | None:
    """Cores, from the texts of a control group's files; None where they set no limit."""
    words: Sequence[str] = files.get("cpu.max", "").split()
    if len(words) != 2:
        words = [files.get(f"cpu.cfs_{name}_us", "") for name in ("quota", "period")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        return None  # `max`, or -1
    return int(words[0]) / int(words[1])


def busy_cores(seconds: float, stat: Path = Path("/proc/stat")) -> float:
    """Cores of the whole node that were busy, over so many seconds from now."""
    first, start_s = _busy_ticks(stat), time.monotonic()
    time.sleep(seconds)
    passed_s = time.monotonic() - start_s
    return (_busy_ticks(stat) - first) / os.sysconf("SC_CLK_TCK") / passed_s


def _busy_ticks(stat: Path) -> int:
    """All but idle and waiting for disks; guests are in user's time already (proc(5))."""
    values = [int(word) for word in stat.read_text().split("\n", 1)[0].split()[1:]]
    return sum(values[:8]) - values[3] - values[4]
