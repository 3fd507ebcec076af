"""Read and write rates of a file system, and the latency of small files.

The large file is unlinked at once, so that the kernel removes it when the process that has it
open ends. Reads happen after the kernel has dropped the file from its cache. Whether it did is
checked and reported, because a rate of the memory is not one of the disk.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.probe.measured import (
    Deadline,
    Measured,
    median,
    merged,
    not_measured,
    repeated,
)
from pipeline.probe.page_cache import COLD_SHARE, drop_from_cache
from pipeline.probe.scratch import scratch_folder
from slurm_jobs.common.machine import mount_of
from slurm_jobs.common.stage_config.probe import ProbeConfig

MIB = 2**20
_BLOCK_BYTES = 4 * MIB
_FREE_SHARE, _FREE_BYTES = 0.05, 10 * 1024 * MIB
"""A probe leaves this much of a file system free, the smaller of the two: others write there,
too."""
_MOUNTS = Path("/proc/self/mountinfo")
_PAUSE_S = 1.0
"""Pause between two read measurements: momentary reads of others are not a property of a disk."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


@dataclass(frozen=True, kw_only=True, slots=True)
class _LargeFile:
    """File that is open for reading and writing, and its block of random bytes."""

    fd: int
    block: bytes
    num_blocks: int


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
            details = {
                "folder": str(base),
                "file_system": mount.kind,
                "source": mount.source,
            }
            refused = _too_full(folder, config)
            if refused:
                return not_measured(place, refused, details)
            large = _large_file(place, folder, config, deadline)
            small = _small_files(place, folder, config, deadline)
            both = merged(large, small)
            told = {**details, **large.details[place], **small.details[place]}
            return Measured(numbers=both.numbers, reasons=both.reasons, details={place: told})
    except OSError as error:
        return not_measured(place, _explained(base, error, config))


def _too_full(folder: Path, config: ProbeConfig) -> str:
    """Return why nothing is written; empty if there is room."""
    found = os.statvfs(folder)
    free, whole = found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize
    left = min(int(whole * _FREE_SHARE), _FREE_BYTES)
    if free >= config.file_mb * MIB + left:
        return ""
    return (
        f"{folder.parent} has {free / MIB:,.0f} MiB free, and writing {config.file_mb:,} MiB "
        f"would leave less than {left / MIB:,.0f} MiB: free space there, or write less "
        "(--file-mb)"
    )


def _explained(base: Path, error: OSError, config: ProbeConfig) -> str:
    where = error.filename or base
    if error.errno in _FULL:
        return (
            f"{where}: {error.strerror} while {config.file_mb:,} MiB were written: free space "
            "there, or write less (--file-mb)"
        )
    return f"{where}: {error.strerror}; make it writable, or name another folder"


def _large_file(place: str, folder: Path, config: ProbeConfig, deadline: Deadline) -> Measured:
    path = folder / "large"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        path.unlink()  # from here on the kernel removes it, even if this process is killed
        block = os.urandom(min(_BLOCK_BYTES, config.file_mb * MIB))
        written, num_bytes = _write_rate(fd, block, config.file_mb * MIB, deadline)
        file = _LargeFile(fd=fd, block=block, num_blocks=num_bytes // len(block))
        read, kept = _read_rates(file, deadline)
    finally:
        os.close(fd)
    is_cold = None if kept is None else kept <= COLD_SHARE
    details: Mapping[str, Any] = {
        "file_bytes": num_bytes,
        "num_reads": len(read),
        "fastest_read_bytes_per_s": max(read),
        "cached_share_before_reading": kept,
        "reads_are_cold": is_cold,
    }
    numbers = {
        f"{place}_write_bytes_per_s": written,
        f"{place}_read_bytes_per_s": median(read),
    }
    return Measured(numbers=numbers, details={place: details})


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


def _read_rates(file: _LargeFile, deadline: Deadline) -> tuple[list[float], float | None]:
    """Return bytes per second of each full read, and the largest cached share before one."""
    kept: list[float | None] = []
    buffer = bytearray(len(file.block))

    def read_once() -> float:
        kept.append(drop_from_cache(file.fd))
        start_s, done = time.perf_counter(), 0
        limit = Deadline.after(max(deadline.left_s, 1.0))
        while done < file.num_blocks * len(buffer) and (done == 0 or limit.left_s > 0):
            got = os.preadv(file.fd, [buffer], done)
            if got == 0:
                break
            done += got
        return done / (time.perf_counter() - start_s)

    rates = repeated(read_once, Deadline.after(deadline.left_s * 0.4), most=3)
    if deadline.left_s > 3 * _PAUSE_S:
        time.sleep(_PAUSE_S)
        rates += repeated(read_once, Deadline.after(deadline.left_s * 0.5), most=3, least=1)
    known = [share for share in kept if share is not None]
    return rates, max(known) if len(known) == len(kept) else None


def _small_files(place: str, folder: Path, config: ProbeConfig, deadline: Deadline) -> Measured:
    """Return median seconds to write a file durably, and to open and read it."""
    data = os.urandom(config.small_file_kb * 1024)
    created: list[float] = []
    opened: list[float] = []
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
        created.append(time.perf_counter() - start_s)
    made = paths[: len(created)]
    for path in made:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    for path in _within(made, deadline):
        start_s = time.perf_counter()
        path.read_bytes()
        opened.append(time.perf_counter() - start_s)
    numbers = {f"{place}_create_s": median(created), f"{place}_open_s": median(opened)}
    details = {
        "num_small_files": len(created),
        "num_small_files_read": len(opened),
        "small_file_bytes": len(data),
    }
    return Measured(numbers=numbers, details={place: details})


def _within(paths: list[Path], deadline: Deadline) -> Iterator[Path]:
    """Yield the paths until the deadline, at least three."""
    for number, path in enumerate(paths):
        if number >= 3 and deadline.left_s <= 0:
            return
        yield path
