"""Number of cores that this job can really use: by permission, and by parallel work done.

Affinity and quota state what is allowed. Neither knows of a neighbour, of a hypervisor's limit,
or of two logical cores that share a physical one. So n processes work in parallel, and their
work in a time is divided by that of one core while it runs: that is the number of cores that
they had. (Not divided by the work of one process in that time: if a neighbour takes half of its
core, two processes would look as good as two cores.)
"""

from __future__ import annotations

import os
import platform
import signal
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pipeline.nodes.measures.measurement import (
    Deadline,
    Measurement,
    median,
    not_measured,
    repeated,
)
from slurm_jobs.base.processes.process_sessions import dies_with_parent

WINDOW_S = 0.3
"""Time for which processes work: three periods of the kernel's quota of 0.1 s."""
_CHECK_EVERY = 2000
"""Iterations between two reads of the clock: about 50 microseconds."""
_START_S = 0.004
"""For each process to be forked before the work begins."""
_MAX_PROCESSES = 512
_FEW = 0.8
"""Cores per process below which the measurement is repeated."""
_PAUSE_S = 2.0
"""Pause before the repetition. Both values are own choices."""
_DONE = "dd"
"""Message of a process at its end: iterations, and processor seconds."""


def measure_cores(num_asked: int, deadline: Deadline, *, window_s: float = WINDOW_S) -> Measurement:
    """Measure usable cores, and the speed of one; forks, so call it before threads are started.

    Args:
        num_asked: Cores that the job has on this node.
        deadline: After it no further repetition begins.
        window_s: Time for which the processes work, each time.
    """
    num_processes = max(1, min(num_asked, _MAX_PROCESSES))
    alone = repeated(lambda: _work(1, window_s), deadline, most=5)
    speeds = [turns / cpu_s for turns, cpu_s in alone if turns and cpu_s > 0]
    if not speeds:
        return not_measured("cores", f"one process got no core at all, each time for {window_s} s")
    speed = median(speeds)
    cores = {1: median([turns for turns, _ in alone]) / window_s / speed}

    def typical(number: int) -> float:
        windows = repeated(lambda: _work(number, window_s), deadline, most=3)
        return median([turns for turns, _ in windows]) / window_s / speed

    number = 1
    while number < num_processes:
        number = min(2 * number, num_processes)
        cores[number] = typical(number)
        # A momentary load is not a property of the node, while a limit shows in both.
        if cores[number] < _FEW * number and deadline.left_s > _PAUSE_S:
            time.sleep(_PAUSE_S)
            cores[number] = max(cores[number], typical(number))
    details = {
        "num_allowed": len(os.sched_getaffinity(0)),
        "quota_cores": cgroup_quota(),
        "num_asked": num_asked,
        "cores_by_processes": {str(number): num for number, num in cores.items()},
        "window_s": window_s,
        "python": platform.python_version(),
    }
    numbers = {"cores_usable": max(cores.values()), "core_loops_per_s": speed}
    return Measurement(numbers=numbers, details={"cores": details})


def _work(num_processes: int, window_s: float) -> tuple[float, float]:
    """Return iterations and processor seconds of the processes together, in one window."""
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


def _turns_until(end_s: float) -> int:
    """Count iterations of a loop; tests slow it down to simulate a slow core."""
    turns = 0
    while time.monotonic() < end_s:
        for _ in range(_CHECK_EVERY):
            pass
        turns += _CHECK_EVERY
    return turns


def cgroup_quota(
    cgroup: Path = Path("/proc/self/cgroup"), root: Path = Path("/sys/fs/cgroup")
) -> float | None:
    """Return the tightest core limit of this process's control groups; None: no limit.

    Both versions of control groups are read; a missing file means no limit.
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
        for folder in folders:
            names = ("cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us")
            files = {n: (folder / n).read_text().strip() for n in names if (folder / n).is_file()}
            if (quota := quota_in(files)) is not None:
                quotas.append(quota)
    return min(quotas, default=None)


def quota_in(files: Mapping[str, str]) -> float | None:
    """Return cores, from the texts of a control group's files; None if they set no limit."""
    words: Sequence[str] = files.get("cpu.max", "").split()
    if len(words) != 2:
        words = [files.get(f"cpu.cfs_{name}_us", "") for name in ("quota", "period")]
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        return None  # `max`, or -1
    return int(words[0]) / int(words[1])


def busy_cores(seconds: float, stat: Path = Path("/proc/stat")) -> float:
    """Return the busy cores of the whole node, over the next `seconds`."""
    first, start_s = _busy_ticks(stat), time.monotonic()
    time.sleep(seconds)
    passed_s = time.monotonic() - start_s
    return (_busy_ticks(stat) - first) / os.sysconf("SC_CLK_TCK") / passed_s


def _busy_ticks(stat: Path) -> int:
    """Return all ticks but idle and iowait; guests are included in user time (proc(5))."""
    values = [int(word) for word in stat.read_text().split("\n", 1)[0].split()[1:]]
    return sum(values[:8]) - values[3] - values[4]
