"""Staging a data set on a node's local disk, compared with `cp`; reads of the shared disk.

    python -m benchmarks.staging [--quick] [--json FILE]

The shards are random bytes. `cp` copies them without a checksum; `cp, then xxh3` reads the copy
again to compare it, as one would by hand. All write to an empty folder on the file system that they
read from, after earlier writes have reached the disk. The source is in memory: there is no network
here, and a cold source would measure this machine's disk for all methods. A slow shared file system
would make all methods equal; this benchmark measures their cost without that limit.

Four processes stand for the ranks of a node. /proc/self/io has the bytes that they ask the kernel
to read. During a copy, ranks also read random samples through memory maps, which /proc/self/io does
not count. The shared folder is therefore its own file system (a loop device, mounted as root), and
the benchmark counts what its device returns.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.staging_data import (
    SECTOR_BYTES,
    Size,
    make_disk,
    mounted,
    read_samples,
    sectors_read,
    write_dataset,
)
from benchmarks.table import Row, arguments, row, show
from pipeline.stage_in.stage import stage_in
from pipeline.stage_in.verified_copy import is_intact
from slurm_jobs.formats.configs.training_parts import StagingConfig
from slurm_jobs.formats.dataset_folder import INFO_NAME, SHARDS_DIR

BEFORE, BESIDE = StagingConfig(mode="before"), StagingConfig(mode="beside")
NUM_RANKS = 4
COPY_S = 3.0
"""Seconds of the copy during which ranks read."""
NUM_THREADS = (1, 2, 8)
"""Numbers of threads besides the default, which the other rows use."""
DISK, MEMORY = Path("/var/tmp"), Path("/dev/shm")  # noqa: S108 - file systems, not names of files


@dataclass(frozen=True, kw_only=True, slots=True)
class Cost:
    """Cost of a copy."""

    wall_s: float
    cpu_s: float


FULL = Size(num_shards=8, shard_bytes=128 << 20, repeats=11)
QUICK = Size(num_shards=8, shard_bytes=64 << 20, repeats=3)


def main() -> None:
    """Run the benchmark."""
    options = arguments(__doc__)
    size = QUICK if options.quick else FULL
    rows = []
    for base, name in ((DISK, "disk"), (MEMORY, "memory")):
        with tempfile.TemporaryDirectory(dir=base, prefix="slurm-jobs-bench-") as folder:
            rows += copy_rows(Path(folder), name, size)
    with tempfile.TemporaryDirectory(dir=DISK, prefix="slurm-jobs-bench-") as folder:
        rows += start_rows(Path(folder), size)
        rows += reading_rows(Path(folder), replace(size, num_shards=size.num_shards // 2))
    show(rows, options, ("slurm-jobs", "xxhash"))


def copy_rows(folder: Path, name: str, size: Size) -> list[Row]:
    """Compare MB/s of the peers and of ours with several numbers of threads."""
    shared, local = write_dataset(folder / "shared", size), folder / "local"
    ways: dict[str, Callable[[], object]] = {
        "ours": lambda: stage_in(shared, local, BEFORE).close(),
        "cp": lambda: copy_plainly(shared, local),
        "cp, then xxh3": lambda: copy_and_compare(shared, local),
    }
    for number in NUM_THREADS:
        config = replace(BEFORE, num_threads=number)
        ways[str(number)] = lambda config=config: stage_in(shared, local, config).close()
    costs = costs_of(ways, local, size)
    results = {name: size.num_bytes / 1e6 / cost.wall_s for name, cost in costs.items()}
    case = f"copy {size.num_bytes / 1e9:.1f} GB of shards in {name}"
    rows = [
        row(f"{case}, {BEFORE.num_threads} threads", "MB/s", results["ours"], peer="cp",
            peer_value=results["cp"], ratio_at_least=0.9),
        row(f"{case}, {BEFORE.num_threads} threads", "MB/s", results["ours"], peer="cp, then xxh3",
            peer_value=results["cp, then xxh3"], ratio_at_least=1.0),
    ]  # fmt: skip
    rows += [
        row(case, "s CPU", costs["ours"].cpu_s, peer=peer, peer_value=costs[peer].cpu_s)
        for peer in ("cp", "cp, then xxh3")
    ]
    for num_threads in NUM_THREADS:
        words = f"{case}, {num_threads} thread{'s' if num_threads != 1 else ''}"
        ours = results[str(num_threads)]
        rows.append(row(words, "MB/s", ours, peer="cp", peer_value=results["cp"]))
    return rows


def costs_of(ways: dict[str, Callable[[], object]], local: Path, size: Size) -> dict[str, Cost]:
    """Return the median cost of each method.

    The methods take turns, and each turn starts with another one, because a method affects the
    machine for the next. The first turn is a warm-up.
    """
    results: dict[str, list[Cost]] = {name: [] for name in ways}
    names = list(ways)
    for number in range(size.repeats + 1):
        for name in (*names[number % len(names) :], *names[: number % len(names)]):
            shutil.rmtree(local, ignore_errors=True)
            local.mkdir()
            os.sync()
            cost = cost_of(ways[name])
            if number:
                results[name].append(cost)
    return {
        name: Cost(
            wall_s=statistics.median(cost.wall_s for cost in costs),
            cpu_s=statistics.median(cost.cpu_s for cost in costs),
        )
        for name, costs in results.items()
    }


def cost_of(way: Callable[[], object]) -> Cost:
    """Measure one turn, in this process and its children."""
    start_s, before = time.perf_counter(), os.times()
    way()
    wall_s, after = time.perf_counter() - start_s, os.times()
    return Cost(wall_s=wall_s, cpu_s=sum(after[:4]) - sum(before[:4]))


def start_rows(folder: Path, size: Size) -> list[Row]:
    """Measure how long training waits for its first sample."""
    shared, local = write_dataset(folder / "shared", size), folder / "local"
    results: dict[str, list[float]] = {"before": [], "beside": [], "again": []}
    for _ in range(size.repeats):
        for name, durations in results.items():
            if name != "again":
                shutil.rmtree(local, ignore_errors=True)
            start_s = time.perf_counter()
            with stage_in(shared, local, BEFORE if name == "before" else BESIDE) as staged:
                read_samples(shared, staged.folder, [0])
                durations.append(time.perf_counter() - start_s)
                staged.wait()
    case = f"first sample of {size.num_bytes / 1e9:.1f} GB, mode beside"
    medians = {name: statistics.median(values) for name, values in results.items()}
    return [
        row(case, "s wall", medians["beside"], peer="mode before", peer_value=medians["before"]),
        row(f"{case}, second attempt", "s wall", medians["again"], peer="first attempt",
            peer_value=medians["beside"]),
    ]  # fmt: skip


def reading_rows(folder: Path, size: Size) -> list[Row]:
    """Compare the bytes that four ranks of a node read on the shared file system with the set."""
    case = f"{NUM_RANKS} ranks of a node, mode"
    num_asked = bytes_asked_for(write_dataset(folder / "asked", size), folder / "asked-local")
    rows = [row(f"{case} before: bytes asked for", "of the set", num_asked / size.num_bytes,
                at_most=1.01)]  # fmt: skip
    try:
        image = make_disk(folder / "disk.img", size.num_bytes * 5 // 4 + (64 << 20))
        with mounted(image, folder / "mounted") as (root, _):
            write_dataset(root / "shared", size)
        # Make the copy slow enough for training to get ahead of it.
        beside = replace(BESIDE, max_mb_per_s=size.num_bytes / 1e6 / COPY_S)
        for config in (BEFORE, beside):
            local = folder / f"local-{config.mode}"
            given, samples = bytes_given(image, folder / "mounted", local, config)
            words, whole = f"{case} {config.mode}", size.num_bytes
            rows += [
                row(f"{words}: bytes of samples read there", "of the set", samples / whole),
                row(f"{words}: bytes that its disk gave", "of the set", given / whole,
                    at_most=1.01),
            ]  # fmt: skip
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"skipped the rows of the shared device: {error}")
    return rows


def bytes_asked_for(shared: Path, local: Path) -> int:
    """Return the bytes that all ranks ask for while they stage in."""
    with multiprocessing.get_context("fork").Pool(NUM_RANKS) as pool:
        arguments = [(shared, local, BEFORE, rank) for rank in range(NUM_RANKS)]
        return sum(pool.map(_stage_in_counted, arguments, 1))


def bytes_given(image: Path, point: Path, local: Path, config: StagingConfig) -> tuple[int, int]:
    """Return the bytes that the shared device returned, and those of samples read there.

    Ranks stage in and read every sample once. The file system is mounted again first, so that none
    of it is cached.
    """
    with mounted(image, point) as (root, device):
        before = sectors_read(device)
        with multiprocessing.get_context("fork").Pool(NUM_RANKS) as pool:
            arguments = [(root / "shared", local, config, rank) for rank in range(NUM_RANKS)]
            num_bytes = sum(pool.map(_train, arguments, 1))
        return (sectors_read(device) - before) * SECTOR_BYTES, num_bytes


def _stage_in_counted(arguments: tuple[Path, Path, StagingConfig, int]) -> int:
    shared, local, config, rank = arguments
    before = _bytes_asked_for()
    stage_in(shared, local, config, copies=rank == 0).close()
    return _bytes_asked_for() - before


def _bytes_asked_for() -> int:
    first, *_ = Path("/proc/self/io").read_text().splitlines()
    return int(first.removeprefix("rchar: "))


def _train(arguments: tuple[Path, Path, StagingConfig, int]) -> int:
    shared, local, config, rank = arguments
    with stage_in(shared, local, config, copies=rank == 0) as staged:
        if config.mode == "before":
            wait_for_shards(shared, staged.folder)
        num_samples = len(np.load(shared / "checksums.npy"))
        order = np.random.default_rng(0).permutation(num_samples)[rank::NUM_RANKS]
        counts = read_samples(shared, staged.folder, order.tolist())
        staged.wait()
    return counts.shared_bytes


def wait_for_shards(shared: Path, local: Path | None) -> None:
    """Wait for the rank that copies; training waits in its process group instead."""
    assert local is not None
    names = [path.name for path in (shared / SHARDS_DIR).iterdir()]
    while not all((local / SHARDS_DIR / name).exists() for name in names):
        time.sleep(0.01)


def copy_plainly(shared: Path, local: Path) -> None:
    """Copy with `cp -r`."""
    subprocess.run(["cp", "-r", shared / SHARDS_DIR, local], check=True)


def copy_and_compare(shared: Path, local: Path) -> None:
    """Copy, then compare the checksums in a second pass."""
    copy_plainly(shared, local)
    for shard in json.loads((shared / INFO_NAME).read_text())["shards"]:
        path = local / SHARDS_DIR / shard["name"]
        assert is_intact(path, xxh3=shard["xxh3"], check_stop=lambda: None)


if __name__ == "__main__":
    main()
