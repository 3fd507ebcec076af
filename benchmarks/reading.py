"""Samples a second: our reader beside others, from the same bytes, in one run.

    python -m benchmarks.reading [--quick] [--json FILE]

- raw bytes: JPEGs of 100 KB, each ends as bytes in the process that trains;
- decoded JPEG: the same pictures as uint8 batches of 16 x 864 x 1,152 x 3, by Pillow everywhere;
- raw arrays: stored pixels as uint8 batches of 64 x 384 x 384 x 3.

Each in order and shuffled, with a warm page cache (the sets fit into memory), each peer in a
process of its own, used as its documentation recommends, without and with two workers: the better
one counts, and so it is with one and two threads of ours. A measurement is a pass that is not
counted and whole passes after it, the end of an epoch included; the peers take turns, and medians
of the rounds are shown. Ours gives tokens, labels and positions with the pictures; the peers'
formats hold nothing but the pictures.

What bounds ours from above: a plain read of the same bytes from one file into memory that is there
already (`readinto`, shuffled `preadv`); and for raw arrays a memory copy of the same pictures, from
where they lie scattered in memory into batches that are there already, in as many threads as ours.
The CPU time of both, which other work on the machine disturbs less, is a row of its own.

`pip install -e .[bench]` brings the peers; what is missing is left out, and said. Two need an
environment of their own, whose Python BENCH_PYTHON_MOSAICML and BENCH_PYTHON_LITDATA name:
mosaicml-streaming requires transformers 4, while training requires 5; litdata (0.2.76 or newer,
which resumes on another number of ranks) requires torchvision, whose builds on PyPI do not load
next to a torch for CPUs, and then transformers imports no processor.

The sets (7 GB; with --quick 1) are kept in the folder for temporary files for the next run.
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
"""Of ours."""
CASES = {RAW: "raw bytes", DECODED: "decoded JPEG", ARRAYS: "batches of raw arrays"}
FFCV = (
    "FFCV left out: its newest release (1.0.2, of 2023) is source only and builds against the "
    "headers of OpenCV and libturbojpeg, which no package index brings."
)


def main() -> None:
    """Build what is missing, measure, and print."""
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
    """Ours beside every peer that has the set."""
    jobs = _jobs(bench, Job(kind=kind, is_shuffled=is_shuffled, num_workers=0))
    found = bench.in_turn(jobs)
    ours = found[OURS]
    case = f"{CASES[kind]}, {'shuffled' if is_shuffled else 'in order'}"
    if kind != RAW:
        case += f", {_counted(jobs[OURS].num_workers, 'thread')}"
    rows = [
        row(
            case,
            "samples/s",
            ours.rate,
            peer=_peer_name(bench, name, jobs[name]),
            peer_value=found[name].rate,
            ratio_at_least=_goal(name, kind),
        )
        for name in (PLAIN, *PEERS)
        if name in found
    ]
    if PLAIN in found:
        peer = _peer_name(bench, PLAIN, jobs[PLAIN])
        value = found[PLAIN].cpu_us
        rows.append(row(case, "us CPU a sample", ours.cpu_us, peer=peer, peer_value=value))
    return rows


def first_pass_rows(bench: Bench, kind: str) -> list[Row]:
    """A new process each time: checksums are compared and pages are touched for the first time."""
    job = Job(kind=kind, is_shuffled=True, num_workers=0)
    threads = replace(job, num_workers=1)
    jobs = {OURS: threads, PLAIN: threads if kind == ARRAYS else job, "lmdb": job}
    found = {
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
            found[OURS].rate,
            peer=_peer_name(bench, name, jobs[name]),
            peer_value=measured.rate,
        )
        for name, measured in found.items()
        if name != OURS
    ]


def _jobs(bench: Bench, job: Job) -> dict[str, Job]:
    """How each peer reads a case: with as many workers as make it quickest."""
    found = {}
    for name in bench.processes:
        if name == PLAIN or not bench.set_of(name, job.kind).exists():
            continue
        numbers = NUM_THREADS if name == OURS else NUM_WORKERS
        if name == OURS and job.kind == RAW:
            numbers = (0,)
        better = _better(bench, name, [replace(job, num_workers=number) for number in numbers])
        if better is not None:
            found[name] = better
    if PLAIN in bench.processes and job.kind != DECODED:
        found[PLAIN] = replace(job, num_workers=found[OURS].num_workers)
    return found


def _better(bench: Bench, name: str, jobs: list[Job]) -> Job | None:
    """The quickest; None if the peer can do none of them, which is noted."""
    rates = {}
    for job in jobs:
        try:
            found = [bench.measure(name, job) for _ in range(bench.effort.num_tries)]
        except PeerFailedError as error:
            if name == OURS:
                raise
            workers = _counted(job.num_workers, "worker")
            bench.notes.append(f"{bench.names[name]}, {CASES[job.kind]}, {workers}: {error}")
        else:
            rates[job] = statistics.median(one.rate for one in found)
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
