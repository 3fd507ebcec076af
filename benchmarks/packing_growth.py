"""Packing an index of N synthetic rows into a plan file, in its own process.

    python -m benchmarks.packing_growth N captions|'long documents' [NUM_PROCESSES]

Prints one JSON value: seconds to pack and write, CPU seconds to open (too short for the wall clock
of a shared machine), and the peak memory of this process above its start. The pages of the index
count too; its arrays are memory-mapped like those of a large one.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.sample_lengths import distributions
from pipeline.data.packing.pack_files import open_packs, write_packs
from pipeline.data.packing.pack_order import pack_order

NUM_DRAWN = 1 << 16
"""Number of drawn lengths, which repeat in random order; drawing is not measured."""


def main() -> None:
    """Run the benchmark."""
    num_rows, name = int(sys.argv[1]), sys.argv[2]
    num_processes = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(grow(Path(folder), num_rows, name, num_processes)))


def grow(folder: Path, num_rows: int, name: str, num_processes: int) -> dict[str, float]:
    """Return the seconds by step, `memory_mb` and `file_mb`."""
    lengths = distributions(NUM_DRAWN)[name]
    generator = np.random.Generator(np.random.PCG64(1))
    for values, file in ((lengths.num_tokens, "tokens.npy"), (lengths.num_images, "images.npy")):
        mapped = np.lib.format.open_memmap(
            folder / file, mode="w+", dtype=np.int32, shape=(num_rows,)
        )
        for start in range(0, num_rows, NUM_DRAWN):
            part = mapped[start : start + NUM_DRAWN]
            part[:] = values[generator.integers(0, NUM_DRAWN, len(part))]
        mapped.flush()
        del mapped
    tokens, images = (
        np.load(folder / file, mmap_mode="r") for file in ("tokens.npy", "images.npy")
    )
    path, key = folder / "packs.bin", {"name": name}
    Path("/proc/self/clear_refs").write_text("5")  # reset the peak
    before_mb = _peak_mb()
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    parts = pack_order(
        tokens,
        images,
        budget=lengths.budget,
        strategy="exact",
        words=[0, 0],
        num_processes=num_processes,
    )
    write_packs(path, parts, key)
    figures = {
        "pack_s": time.perf_counter() - start_s,
        "pack_cpu_s": time.process_time() - start_cpu_s,
        "memory_mb": _peak_mb() - before_mb,
    }
    for step, verify in (("open_s", False), ("verify_s", True)):
        figures[step] = statistics.median(_open_s(path, key, verify=verify) for _ in range(9))
    figures["file_mb"] = path.stat().st_size / 1e6
    return figures


def _open_s(path: Path, key: dict[str, str], *, verify: bool) -> float:
    start_s = time.process_time()
    open_packs(path, key, verify=verify)
    return time.process_time() - start_s


def _peak_mb() -> float:
    """Return the peak resident memory since the last reset (proc(5), clear_refs)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


if __name__ == "__main__":
    main()
