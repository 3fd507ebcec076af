"""Read and write rates of a file system, and the latency of small files.

The large file is unlinked at once, so that the kernel removes it when the process that has it
open ends. Reads happen after the kernel has dropped the file from its cache. Whether it did is
checked and reported, because a rate of the memory is not one of the disk.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.nodes.measures.measurement import (
    Deadline,
    Measurement,
    median,
    not_measured,
    repeated,
)
from pipeline.nodes.measures.page_cache import COLD_SHARE, drop_from_cache
from pipeline.nodes.measures.scratch_folder import scratch_folder
from slurm_jobs.base.machine import mount_of
from slurm_jobs.formats.configs.stages import ProbeConfig

MIB = 2**20
_BLOCK_BYTES = 4 * MIB
_FREE_SHARE, _FREE_BYTES = 0.05, 10 * 1024 * MIB
"""A probe leaves this much of a file system free, the smaller of the two: others write there,
too."""
_MOUNTS = Path("/proc/self/mountinfo")
_NUM_PIECES = 8
"""Pieces in which the large file is written. Own choice."""
_READ_PAUSE_S = 1.0
"""Pause between two series of reads: momentary reads of others are not a property of a disk."""


def measure_file_system(
    place: str, base: Path, config: ProbeConfig, deadline: Deadline
) -> Measurement:
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
            if refused is not None:
                return not_measured(place, refused, details)
            numbers: dict[str, float] = {}
            for measure in (_large_file, _small_files):
                measured, more = measure(folder, config, deadline)
                numbers |= {f"{place}_{name}": number for name, number in measured.items()}
                details |= more
            return Measurement(numbers=numbers, details={place: details})
    except OSError as error:
        where = error.filename or base
        remedy = "; make it writable, or name another folder"
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            remedy = (
                f" while {config.file_mb:,} MiB were written: free space there, or write less "
                "(--file-mb)"
            )
        return not_measured(place, f"{where}: {error.strerror}{remedy}")


def _too_full(folder: Path, config: ProbeConfig) -> str | None:
    """Return why nothing is written; None if there is room."""
    stats = os.statvfs(folder)
    free, whole = stats.f_bavail * stats.f_frsize, stats.f_blocks * stats.f_frsize
    left = min(int(whole * _FREE_SHARE), _FREE_BYTES)
    if free >= config.file_mb * MIB + left:
        return None
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

    Written once, in pieces that are each synced; the rate is the median piece's. Only whole blocks
    are written. After half of the time no further block is begun, except the first of all.
    """
    half = Deadline.after(deadline.left_s * 0.5)
    most_blocks = most_bytes // len(block)
    piece_bytes = max(1, most_blocks // _NUM_PIECES) * len(block)
    rates: list[float] = []
    done = 0
    while done + len(block) <= most_bytes and (done == 0 or half.left_s > 0):
        piece_start, start_s = done, time.perf_counter()
        piece_end = min(piece_start + piece_bytes, most_bytes)
        done += os.pwrite(fd, block, done)
        while done + len(block) <= piece_end and half.left_s > 0:
            done += os.pwrite(fd, block, done)
        os.fsync(fd)
        rates.append((done - piece_start) / (time.perf_counter() - start_s))
    return median(rates), done


def _read_rates(
    fd: int, num_bytes: int, block_bytes: int, deadline: Deadline
) -> tuple[list[float], float | None]:
    """Return bytes per second of each read, and the largest cached share before one.

    The share is None if it is unknown for any of the reads. A read ends early at the deadline. A
    second series of reads follows after a pause if there is time.
    """
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
    if deadline.left_s > 3 * _READ_PAUSE_S:
        time.sleep(_READ_PAUSE_S)
        rates += repeated(read_once, Deadline.after(deadline.left_s * 0.5), most=3, least=1)
    known = [share for share in shares if share is not None]
    if len(known) < len(shares):
        return rates, None
    return rates, max(known)


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
