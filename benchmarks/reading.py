"""Samples per second of our reader and others, from the same bytes, in one run.

    python -m benchmarks.reading [--quick] [--json FILE]

- raw bytes: JPEGs of 100 KB, returned as bytes to the training process;
- decoded JPEG: the same images as uint8 batches of 16 x 864 x 1,152 x 3, all decoded by Pillow;
- raw arrays: stored pixels as uint8 batches of 64 x 384 x 384 x 3.

Each is read in order and shuffled, with a warm page cache (the sets fit into memory). Each peer has
its own process and is used as its documentation recommends, without and with two workers; the
faster one counts. Ours is tried with one and two threads. A measurement is an uncounted pass and
then whole passes, including the end of the epoch. The peers take turns, and the table shows medians
of the rounds. Our reader also returns tokens, labels and positions; the peers' formats hold only
the images.

Upper bounds for our reader are a plain read of the same bytes from one file into allocated memory
(`readinto`, shuffled `preadv`), and for raw arrays a memory copy of the same images, scattered in
memory, into allocated batches, in as many threads as ours. The CPU time of both has its own row,
because other work on the machine disturbs it less.

`pip install -e .[bench]` installs the peers; missing ones are skipped with a note. Two need their
own environment, whose Python is set by BENCH_PYTHON_MOSAICML and BENCH_PYTHON_LITDATA.
mosaicml-streaming requires transformers 4, but training requires 5. litdata (0.2.76 or newer, which
can resume on another number of ranks) requires torchvision, whose builds on PyPI do not load with a
CPU build of torch; transformers then imports no processor.

The sets (7 GB; 1 GB with --quick) stay in the folder for temporary files for the next run.
"""

from __future__ import annotations

import contextlib
import statistics
from dataclasses import replace

from benchmarks.peers.bench import FULL, QUICK, Bench, Measured
from benchmarks.peers.job import ARRAYS, DECODED, RAW, Job
from benchmarks.peers.process import PeerFailedError
from benchmarks.table import Row, arguments, row, show

OURS, PLAIN = "ours", "plain"
PEERS = ("files", "webdataset", "litdata", "mosaicml", "datasets", "lmdb", "hdf5")
NUM_WORKERS = (0, 2)
NUM_THREADS = (1, 2)
"""Threads of our reader."""
CASES = {RAW: "raw bytes", DECODED: "decoded JPEG", ARRAYS: "batches of raw arrays"}
FFCV = (
    "FFCV left out: its newest release (1.0.2, of 2023) is source only and builds against the "
    "headers of OpenCV and libturbojpeg, which no package index brings."
)


def main() -> None:
    """Build missing sets, then run the benchmark."""
    options = arguments(__doc__)
    with contextlib.ExitStack() as stack:
        effort = QUICK if options.quick else FULL
        bench = Bench.start(stack, "reading", (OURS, PLAIN, *PEERS), effort)
        for kind in CASES:
            bench.build(kind)
        rows = [
            found
            for kind in CASES
            for is_shuffled in (False, True)
            for found in case_rows(bench, kind, is_shuffled=is_shuffled)
        ]
        rows += [found for kind in (RAW, ARRAYS) for found in first_pass_rows(bench, kind)]
    show(rows, options, bench.versions, notes=[*bench.notes, FFCV])


def case_rows(bench: Bench, kind: str, *, is_shuffled: bool) -> list[Row]:
    """Compare our reader with every peer that has the set."""
    jobs = _jobs(bench, Job(kind=kind, is_shuffled=is_shuffled, num_workers=0))
    results = bench.in_turn(jobs)
    ours = results[OURS]
    case = f"{CASES[kind]}, {'shuffled' if is_shuffled else 'in order'}"
    if kind != RAW:
        case += f", {_counted(jobs[OURS].num_workers, 'thread')}"
    rows = [
        row(
            case,
            "samples/s",
            ours.rate,
            peer=_peer_name(bench, name, jobs[name]),
            peer_value=results[name].rate,
            ratio_at_least=_goal(name, kind),
        )
        for name in (PLAIN, *PEERS)
        if name in results
    ]
    if PLAIN in results:
        peer = _peer_name(bench, PLAIN, jobs[PLAIN])
        value = results[PLAIN].cpu_us
        rows.append(row(case, "us CPU a sample", ours.cpu_us, peer=peer, peer_value=value))
    return rows


def first_pass_rows(bench: Bench, kind: str) -> list[Row]:
    """Measure new processes: the first pass verifies checksums and touches the pages."""
    job = Job(kind=kind, is_shuffled=True, num_workers=0)
    threads = replace(job, num_workers=1)
    jobs = {OURS: threads, PLAIN: threads if kind == ARRAYS else job, "lmdb": job}
    results = {
        name: Measured.median(
            [bench.first_pass(name, job) for _ in range(max(1, bench.effort.num_rounds))]
        )
        for name, job in jobs.items()
        if name in bench.processes
    }
    return [
        row(
            f"{CASES[kind]}, shuffled, first pass of a process",
            "samples/s",
            results[OURS].rate,
            peer=_peer_name(bench, name, jobs[name]),
            peer_value=measured.rate,
        )
        for name, measured in results.items()
        if name != OURS
    ]


def _jobs(bench: Bench, job: Job) -> dict[str, Job]:
    """Return how each peer reads a case, with the fastest number of workers."""
    jobs = {}
    for name in bench.processes:
        if name == PLAIN or not bench.set_of(name, job.kind).exists():
            continue
        numbers = NUM_THREADS if name == OURS else NUM_WORKERS
        if name == OURS and job.kind == RAW:
            numbers = (0,)
        better = _better(bench, name, [replace(job, num_workers=number) for number in numbers])
        if better is not None:
            jobs[name] = better
    if PLAIN in bench.processes and job.kind != DECODED:
        jobs[PLAIN] = replace(job, num_workers=jobs[OURS].num_workers)
    return jobs


def _better(bench: Bench, name: str, jobs: list[Job]) -> Job | None:
    """Return the fastest job, or None with a note if the peer fails at all of them."""
    rates = {}
    for job in jobs:
        try:
            measurements = [bench.measure(name, job) for _ in range(bench.effort.num_tries)]
        except PeerFailedError as error:
            if name == OURS:
                raise
            workers = _counted(job.num_workers, "worker")
            bench.notes.append(f"{bench.names[name]}, {CASES[job.kind]}, {workers}: {error}")
        else:
            rates[job] = statistics.median(measured.rate for measured in measurements)
    return max(rates, key=rates.__getitem__) if rates else None


def _peer_name(bench: Bench, name: str, job: Job) -> str:
    if name != PLAIN:
        return f"{bench.names[name]}, {_counted(job.num_workers, 'worker')}"
    if job.kind == RAW:
        return "plain read of the bytes"
    return f"memory copy, {_counted(job.num_workers, 'thread')}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _goal(name: str, kind: str) -> float | None:
    if name == PLAIN:
        return 0.8
    return 15.0 if (name, kind) == ("webdataset", RAW) else None


if __name__ == "__main__":
    main()
