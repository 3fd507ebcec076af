"""Samples that are missing or repeated after a stop at 640 of 2,000 and a resume.

    python -m benchmarks.resume [--quick] [--json FILE]

Compares ours with every peer that claims to resume: litdata and mosaicml-streaming with their own
loaders, torchdata's `StatefulDataLoader` over a map-style set, and `datasets` as a shuffled
iterable in one. webdataset and plain DataLoaders do not claim it. Samples are shuffled and are
their own numbers, so that each can be counted over the whole epoch.

A rank is a process that joins a gloo group with the variables that torchrun sets. Peers have two
workers each; `datasets` has none, because workers cannot load its shuffled state. State is saved as
the documentation says: by rank 0 (litdata, mosaicml-streaming) or by each rank (the others). If the
number of ranks changes, rank r loads the state of rank r modulo the old number.

Seconds are from opening the set to the first batch, of the slowest rank, without imports. For ours
they are also until the position is found: index read, packs mapped, the packs of the first step
known. The last rows show the same for 10 million samples. `pip install -e .[bench]` installs the
peers; for litdata and mosaicml-streaming see `benchmarks.reading`.
"""

from __future__ import annotations

import importlib
import json
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from benchmarks.peers.process import ROOT, PeerFailedError
from benchmarks.peers.resuming.training import Reading, Resumed, start, stop_and_go_on, wait_for
from benchmarks.table import Row, arguments, row, show

OURS, PACKED = "ours", "ours_packed"
PEERS = ("litdata", "mosaicml", "torchdata", "datasets")
FULL = {(1, 1): 3, (2, 2): 1, (2, 1): 1, (4, 2): 1, (2, 4): 1}
QUICK = {(2, 1): 1}
"""(ranks before, ranks after): rounds. Counts are the same in each round."""
NUM_SAMPLES, STOPPED_AT = 2_000, 640
GLOBAL_BATCH, GLOBAL_ROWS = 16, 4
"""Samples per step, and rows of several samples per step."""
NUM_LARGE, NUM_LARGE_QUICK = 10_000_000, 200_000


def main() -> None:
    """Run the benchmark."""
    options = arguments(__doc__)
    notes: list[str] = []
    with tempfile.TemporaryDirectory(prefix="slurm-jobs-resume-") as name:
        folder = Path(name)
        readings = {
            module: reading
            for module in (OURS, PACKED, *PEERS)
            if (reading := prepare(module, folder, notes)) is not None
        }
        rows = [
            found
            for (before, after), num_rounds in (QUICK if options.quick else FULL).items()
            for found in change_rows(readings, before, after, notes, num_rounds)
        ]
        rows += large_rows(folder, NUM_LARGE_QUICK if options.quick else NUM_LARGE)
    show(rows, options, _versions(readings), notes=notes)


def prepare(module: str, folder: Path, notes: list[str]) -> Reading | None:
    """Build the set of a peer; return None with a note if the peer is not available."""
    own_dir = folder / module
    own_dir.mkdir()
    request = {"module": module, "build": str(own_dir / "set"), "num_samples": NUM_SAMPLES}
    try:
        wait_for([start(request, own_dir / "log")], own_dir / "log")
    except PeerFailedError as error:
        if module in (OURS, PACKED):
            raise
        notes.append(f"{module} left out: {error}")
        return None
    described = importlib.import_module(f"benchmarks.peers.resuming.{module}")
    num_rows, global_batch = NUM_SAMPLES, GLOBAL_BATCH
    if module == PACKED:
        num_rows, global_batch = described.num_packs(own_dir / "set"), GLOBAL_ROWS
    return Reading(
        module=module,
        folder=own_dir,
        global_batch=global_batch,
        stopped_after=round(STOPPED_AT / NUM_SAMPLES * num_rows / global_batch),
        is_state_of_rank=described.IS_STATE_OF_RANK,
        num_steps=-(-num_rows // global_batch) if module in (OURS, PACKED) else None,
    )


def change_rows(
    readings: dict[str, Reading], before: int, after: int, notes: list[str], num_rounds: int
) -> list[Row]:
    """Compare ours with the peers, stopped on `before` ranks and resumed on `after` ranks."""
    case = f"{before} to {after} rank{'s' if after > 1 else ''}"
    resumed: dict[str, list[Resumed]] = {name: [] for name in readings}
    for _ in range(num_rounds):
        for name, reading in readings.items():
            try:
                resumed[name].append(stop_and_go_on(reading, before, after, NUM_SAMPLES))
            except PeerFailedError as error:
                if name in (OURS, PACKED):
                    raise
                notes.append(f"{_name(name)}, {case}: {error}")
    results = {name: _worst(each) for name, each in resumed.items() if each}
    ours = results[OURS]
    rows = []
    for name in (OURS, PACKED):
        result, what = results[name], f"{case}, {_name(name)}"
        rows += [
            row(f"{what}: samples missing", "samples", result.num_missing, at_most=0),
            row(f"{what}: samples repeated", "samples", result.num_repeated, at_most=0),
            row(f"{what}: position found", "s", result.position_s or 0.0, at_most=0.1),
        ]
    for name in (PACKED, *PEERS):
        if name not in results:
            continue
        result, peer = results[name], _name(name)
        if name != PACKED:
            for what, mine, theirs in (
                ("samples missing", ours.num_missing, result.num_missing),
                ("samples repeated", ours.num_repeated, result.num_repeated),
            ):
                rows.append(row(f"{case}: {what}", "samples", mine, peer=peer, peer_value=theirs))
        rows.append(
            row(f"{case}: first batch", "s", ours.first_s, peer=peer, peer_value=result.first_s)
        )
    return rows


def _worst(results: list[Resumed]) -> Resumed:
    """Return the worst counts and the median seconds."""
    positions = [result.position_s for result in results if result.position_s is not None]
    return Resumed(
        num_missing=max(result.num_missing for result in results),
        num_repeated=max(result.num_repeated for result in results),
        first_s=statistics.median(result.first_s for result in results),
        position_s=statistics.median(positions) if positions else None,
    )


def large_rows(folder: Path, num_samples: int) -> list[Row]:
    """Measure how long finding the position takes among millions of samples."""
    own_dir = folder / "large"
    own_dir.mkdir()
    argv = [sys.executable, "-m", "benchmarks.peers.resuming.large", str(own_dir), str(num_samples)]
    runs = [subprocess.run(argv, check=True, stdout=subprocess.PIPE, cwd=ROOT) for _ in range(4)]
    results = [json.loads(run.stdout) for run in runs[1:]]  # the first run made the packs
    medians = {key: statistics.median(result[key] for result in results) for key in results[0]}
    case = f"{num_samples:,} samples"
    return [
        row(f"{case}, {what}: position found", "s", medians[f"{what}_s"], at_most=0.1)
        for what in ("shuffled", "packed")
    ]


def _name(module: str) -> str:
    name: str = importlib.import_module(f"benchmarks.peers.resuming.{module}").NAME
    return name


def _versions(readings: dict[str, Reading]) -> dict[str, str]:
    """Return the versions of packages that are installed in this Python."""
    versions = {}
    for module in readings:
        package = importlib.import_module(f"benchmarks.peers.resuming.{module}").PACKAGE
        try:
            versions[package] = version(package)
        except ModuleNotFoundError:
            versions[package] = "of another environment"
    return versions


if __name__ == "__main__":
    main()
