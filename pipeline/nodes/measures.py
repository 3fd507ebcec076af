"""Measurements of a node: cores, devices, file systems, GPUs and the page cache."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import re
import shutil
import signal
import statistics
import struct
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from slurm_jobs.shared.configs.stages import ProbeConfig
from slurm_jobs.shared.files import make_private_dir, read_json, write_json_atomic
from slurm_jobs.shared.machine import mount_of, network_links
from slurm_jobs.shared.process import (
    NotedProcess,
    ask_together,
    dies_with_parent,
    note_process,
    process_lives,
)

# Common parts of measurements: their result, and repetitions within a time budget.


T = TypeVar("T")

MIN_REPEATS = 3
"""A median of fewer is unreliable; short repetitions are run even if the time is up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """Result of one measurement on this node."""

    numbers: Mapping[str, float] = field(default_factory=dict)
    """By the names of `slurm_jobs.shared.node_records.MEASURES`."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Reasons why something could not be measured, by group."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """Details of the method, by group; plain JSON values."""


def not_measured(group: str, reason: str, details: Any = None) -> Measured:
    """Return an empty result with the reason."""
    return Measured(reasons={group: reason}, details={group: details} if details else {})


def merged(first: Measured, second: Measured) -> Measured:
    """Merge both; for equal names the second's."""
    return Measured(
        numbers={**first.numbers, **second.numbers},
        reasons={**first.reasons, **second.reasons},
        details={**first.details, **second.details},
    )


@dataclass(frozen=True, slots=True)
class Deadline:
    """Time of the monotonic clock, seconds."""

    at_s: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the deadline in `seconds` from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left_s(self) -> float:
        """Seconds until then; negative after it."""
        return self.at_s - time.monotonic()


def repeated(
    action: Callable[[], T], deadline: Deadline, *, most: int, least: int = MIN_REPEATS
) -> list[T]:
    """Call `action` repeatedly until the deadline, `least` to `most` times.

    The first call always counts. Further calls begin only if they would end by about the
    deadline, going by the longest call so far, so a slow device gets one call instead of three.
    """
    values: list[T] = []
    longest_s = 0.0
    while len(values) < most:
        wanted = least if longest_s < 1.0 else 1
        if len(values) >= wanted and deadline.left_s < longest_s:
            break
        start_s = time.monotonic()
        values.append(action())
        longest_s = max(longest_s, time.monotonic() - start_s)
    return values


def median(values: list[float]) -> float:
    """Return the median."""
    return float(statistics.median(values))


# Number of cores that this job can really use: by permission, and by parallel work done.
#
# Affinity and quota state what is allowed. Neither knows of a neighbour, of a hypervisor's limit,
# or of two logical cores that share a physical one. So n processes work in parallel, and their
# work in a time is divided by that of one core while it runs: that is the number of cores that
# they had. (Not divided by the work of one process in that time: if a neighbour takes half of its
# core, two processes would look as good as two cores.)


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


def measure_cores(num_asked: int, deadline: Deadline, *, window_s: float = WINDOW_S) -> Measured:
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
    return Measured(numbers=numbers, details={"cores": details})


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


# Page cache: make the kernel drop a file, and query how much of it is still cached.


COLD_SHARE = 0.05
"""Largest cached share of a file with which reading still measures the disk."""

_MAP_FAILED = ctypes.c_void_p(-1).value


def drop_from_cache(fd: int) -> float | None:
    """Make the kernel drop a file's pages, after writing dirty ones.

    Returns:
        The share that stays in memory (all on file systems in memory, such as tmpfs); None
        if the kernel does not report it.

    Raises:
        OSError: writing failed.
    """
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    return resident_share(fd)


def resident_share(fd: int) -> float | None:
    """Return the share of a file's pages in memory, by mincore(2); None if unknown."""
    num_bytes = os.fstat(fd).st_size
    if num_bytes == 0:
        return 0.0
    libc, size = ctypes.CDLL(None), ctypes.c_size_t(num_bytes)
    libc.mmap.restype = ctypes.c_void_p
    # Not Python's mmap: ctypes cannot take the address of a read-only map.
    address = libc.mmap(None, size, mmap.PROT_READ, mmap.MAP_SHARED, fd, ctypes.c_long(0))
    if address in {None, _MAP_FAILED}:
        return None
    flags = (ctypes.c_ubyte * -(-num_bytes // mmap.PAGESIZE))()
    try:
        failed = libc.mincore(ctypes.c_void_p(address), size, flags)
    finally:
        libc.munmap(ctypes.c_void_p(address), size)
    return None if failed else sum(flag & 1 for flag in bytes(flags)) / len(flags)


# Temporary folder of a probe, which is removed however the probe ends.
#
# The next probe on the file system removes what a killed one left: each folder names the process
# that made it, and folders of living processes are kept.


_PREFIX = "slurm-jobs-probe-"
_OWNER = "owner.json"
FORGOTTEN_S = 3600.0
"""Age at which a folder of another host's process, which cannot be checked, is removed: no
probe takes so long."""


@contextmanager
def scratch_folder(base: Path) -> Iterator[Path]:
    """Provide a new private folder in `base`, which is created if missing.

    Raises:
        OSError: it cannot be created.
    """
    make_private_dir(base)
    remove_left_behind(base)
    folder = base / f"{_PREFIX}{uuid.uuid4().hex[:12]}"
    make_private_dir(folder)
    try:
        write_json_atomic(folder / _OWNER, asdict(note_process(os.getpid())))
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_left_behind(base: Path) -> None:
    """Remove the folders in `base` whose processes have ended."""
    for folder in base.glob(f"{_PREFIX}*"):
        try:
            age_s = time.time() - folder.stat().st_mtime
            lives = process_lives(NotedProcess(**read_json(folder / _OWNER)))
        except FileNotFoundError:
            if not folder.exists():  # it is being removed now
                continue
            lives = None  # it is being created, or its process was killed
        except (OSError, ValueError, TypeError):  # of another user
            continue
        if lives is False or (lives is None and age_s > FORGOTTEN_S):
            shutil.rmtree(folder, ignore_errors=True)


# Read and write rates of a file system, and the latency of small files.
#
# The large file is unlinked at once, so that the kernel removes it when the process that has it
# open ends. Reads happen after the kernel has dropped the file from its cache. Whether it did is
# checked and reported, because a rate of the memory is not one of the disk.


MIB = 2**20
_BLOCK_BYTES = 4 * MIB
_FREE_SHARE, _FREE_BYTES = 0.05, 10 * 1024 * MIB
"""A probe leaves this much of a file system free, the smaller of the two: others write there,
too."""
_MOUNTS = Path("/proc/self/mountinfo")
_WRITE_PAUSE_S = 1.0
"""Pause between two read measurements: momentary reads of others are not a property of a disk."""


def measure_file_system(
    place: str, base: Path, config: ProbeConfig, deadline: Deadline
) -> Measured:
    """Measure rates of one large file, and times of small ones.

    Args:
        place: `local` or `shared`, the prefix of the numbers' names.
        base: A folder on it; created if missing.
        config: Sizes.
        deadline: After it no further repetition begins; writing stops then, too.
    """
    try:
        with scratch_folder(base) as folder:
            mount = mount_of(_MOUNTS.read_text(), base.resolve())
            details: dict[str, Any] = {
                "folder": str(base),
                "file_system": mount.kind,
                "source": mount.source,
            }
            refused = _too_full(folder, config)
            if refused:
                return not_measured(place, refused, details)
            numbers: dict[str, float] = {}
            for measure in (_large_file, _small_files):
                measured, more = measure(folder, config, deadline)
                numbers |= {f"{place}_{name}": number for name, number in measured.items()}
                details |= more
            return Measured(numbers=numbers, details={place: details})
    except OSError as error:
        where = error.filename or base
        remedy = "; make it writable, or name another folder"
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            remedy = (
                f" while {config.file_mb:,} MiB were written: free space there, or write less "
                "(--file-mb)"
            )
        return not_measured(place, f"{where}: {error.strerror}{remedy}")


def _too_full(folder: Path, config: ProbeConfig) -> str:
    """Return why nothing is written; empty if there is room."""
    stats = os.statvfs(folder)
    free, whole = stats.f_bavail * stats.f_frsize, stats.f_blocks * stats.f_frsize
    left = min(int(whole * _FREE_SHARE), _FREE_BYTES)
    if free >= config.file_mb * MIB + left:
        return ""
    return (
        f"{folder.parent} has {free / MIB:,.0f} MiB free, and writing {config.file_mb:,} MiB "
        f"would leave less than {left / MIB:,.0f} MiB: free space there, or write less "
        "(--file-mb)"
    )


def _large_file(
    folder: Path, config: ProbeConfig, deadline: Deadline
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return bytes per second written and read, and details."""
    path = folder / "large"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        path.unlink()  # from here on the kernel removes it, even if this process is killed
        block = os.urandom(min(_BLOCK_BYTES, config.file_mb * MIB))
        write_rate, num_bytes = _write_rate(fd, block, config.file_mb * MIB, deadline)
        num_whole = num_bytes // len(block) * len(block)
        read_rates, cached_share = _read_rates(fd, num_whole, len(block), deadline)
    finally:
        os.close(fd)
    details = {
        "file_bytes": num_bytes,
        "num_reads": len(read_rates),
        "fastest_read_bytes_per_s": max(read_rates),
        "cached_share_before_reading": cached_share,
        "reads_are_cold": None if cached_share is None else cached_share <= COLD_SHARE,
    }
    return {"write_bytes_per_s": write_rate, "read_bytes_per_s": median(read_rates)}, details


def _write_rate(fd: int, block: bytes, most_bytes: int, deadline: Deadline) -> tuple[float, int]:
    """Return bytes per second to the disk, and how many were written; at least a block.

    Written once, in pieces that are each synced; the rate is the median piece's.
    """
    half = Deadline.after(deadline.left_s * 0.5)
    piece_blocks = max(1, most_bytes // len(block) // 8)
    rates: list[float] = []
    done = 0
    while done + len(block) <= most_bytes and (done == 0 or half.left_s > 0):
        start_s, begun = time.perf_counter(), done
        for _ in range(piece_blocks):
            if done + len(block) > most_bytes or (done > begun and half.left_s <= 0):
                break
            done += os.pwrite(fd, block, done)
        os.fsync(fd)
        rates.append((done - begun) / (time.perf_counter() - start_s))
    return median(rates), done


def _read_rates(
    fd: int, num_bytes: int, block_bytes: int, deadline: Deadline
) -> tuple[list[float], float | None]:
    """Return bytes per second of each full read, and the largest cached share before one."""
    shares: list[float | None] = []
    buffer = bytearray(block_bytes)

    def read_once() -> float:
        shares.append(drop_from_cache(fd))
        start_s, num_read = time.perf_counter(), 0
        limit = Deadline.after(max(deadline.left_s, 1.0))
        while num_read < num_bytes and (num_read == 0 or limit.left_s > 0):
            count = os.preadv(fd, [buffer], num_read)
            if count == 0:
                break
            num_read += count
        return num_read / (time.perf_counter() - start_s)

    rates = repeated(read_once, Deadline.after(deadline.left_s * 0.4), most=3)
    if deadline.left_s > 3 * _WRITE_PAUSE_S:
        time.sleep(_WRITE_PAUSE_S)
        rates += repeated(read_once, Deadline.after(deadline.left_s * 0.5), most=3, least=1)
    known = [share for share in shares if share is not None]
    return rates, max(known) if len(known) == len(shares) else None


def _small_files(
    folder: Path, config: ProbeConfig, deadline: Deadline
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return median seconds to write a file durably, and to open and read it; and details."""
    data = os.urandom(config.small_file_kb * 1024)
    create_s: list[float] = []
    open_s: list[float] = []
    half = Deadline.after(deadline.left_s / 2)
    paths = [folder / f"small-{number:05d}" for number in range(config.num_small_files)]
    for path in _within(paths, half):
        start_s = time.perf_counter()
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.write(fd, data)
            os.fsync(fd)
        finally:
            os.close(fd)
        create_s.append(time.perf_counter() - start_s)
    written = paths[: len(create_s)]
    for path in written:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    for path in _within(written, deadline):
        start_s = time.perf_counter()
        path.read_bytes()
        open_s.append(time.perf_counter() - start_s)
    details = {
        "num_small_files": len(create_s),
        "num_small_files_read": len(open_s),
        "small_file_bytes": len(data),
    }
    return {"create_s": median(create_s), "open_s": median(open_s)}, details


def _within(paths: list[Path], deadline: Deadline) -> Iterator[Path]:
    """Yield the paths until the deadline, at least three."""
    for number, path in enumerate(paths):
        if number >= 3 and deadline.left_s <= 0:
            return
        yield path


# GPUs that the job sees on this node, and the links between them.


LIMIT_S = 30.0
"""Without its persistence mode the driver takes a second or more for each GPU."""
_MAX_BYTES = 100_000
_NAME_COMMAND = ("nvidia-smi", "--query-gpu=index,name,driver_version", "--format=csv,noheader")
_LINK_COMMAND = ("nvidia-smi", "topo", "-m")
_GPU = re.compile(r"GPU\d+")


def find_gpus() -> tuple[tuple[str, ...], Measured]:
    """Return names of the GPUs that nvidia-smi shows, with the links between them as details."""
    if shutil.which(_NAME_COMMAND[0]) is None:
        return (), not_measured("gpu", "no GPU: there is no nvidia-smi on this node")
    answers = ask_together(
        {"names": _NAME_COMMAND, "links": _LINK_COMMAND},
        limit_s=LIMIT_S,
        max_bytes=_MAX_BYTES,
        prepare=dies_with_parent(signal.SIGKILL),
    )
    if answers["names"].problem:
        return (), not_measured("gpu", answers["names"].problem)
    rows = [line.split(", ") for line in answers["names"].text.splitlines()]
    names = tuple(row[1] for row in rows if len(row) == 3)
    if not names:
        return (), not_measured("gpu", "no GPU: nvidia-smi shows none to this job")
    links = read_links(answers["links"].text)
    details = {
        "names": names,
        "drivers": sorted({row[2] for row in rows if len(row) == 3}),
        "links": links,
        "links_told": links_text(links),
        "links_problem": answers["links"].problem,
    }
    return names, Measured(details={"gpu": details})


def read_links(text: str) -> Sequence[Mapping[str, str]]:
    """Return pairs of GPUs and their link (`NV12`, `PIX`, `SYS`) from `nvidia-smi topo -m`."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    columns: list[str] = []
    links = []
    for line in plain.splitlines():
        words = line.split()
        if not columns:
            columns = [word for word in words if _GPU.fullmatch(word)]
        elif words and words[0] in columns:
            column = columns.index(words[0])
            pairs = zip(columns, words[1:], strict=False)
            links += [
                {"a": words[0], "b": b, "link": link} for b, link in list(pairs)[column + 1 :]
            ]
    return links


def links_text(links: Sequence[Mapping[str, str]]) -> str:
    """Return `6 x NV12`; empty for one GPU."""
    counts = Counter(link["link"] for link in links)
    return ", ".join(f"{number} x {link}" for link, number in sorted(counts.items()))


# Link speeds of a node from the kernel: network cards and InfiniBand ports.


_SYS = Path("/sys")


def measure_links(sys: Path = _SYS) -> Measured:
    """Return the speed of the fastest active link; nothing is sent."""
    try:
        links = network_links(sys)
    except OSError as error:
        return not_measured("link", f"{sys}/class/net cannot be read: {error.strerror}")
    speeds = [link["bits_per_s"] for link in links if link["is_up"] and link["bits_per_s"]]
    if not speeds:
        names = ", ".join(link["name"] for link in links) or "there is none"
        reason = f"no network interface says its speed ({names}): virtual ones do not"
        return not_measured("link", reason, links)
    return Measured(numbers={"link_bits_per_s": max(speeds)}, details={"link": links})
