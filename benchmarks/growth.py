"""Which costs grow with the data set: ten million synthetic samples.

    python -m benchmarks.growth [--quick] [--json FILE]

Each step runs in its own process. Its memory is the peak of private memory above what the imports
took; pages of mapped files are left out, because the kernel shares them between processes and
reclaims them. Times of the index are CPU times with the files in the page cache. `--quick` takes a
million samples.

Planning and finishing are measured for one of 100 tasks of `consolidate` over 400 parts;
`growth_data` describes the synthetic data. The last rows read real samples of 32 KB with 2 ms added
to each read, to imitate a shared file system.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.growth_data import make_index, make_parts
from benchmarks.table import Row, arguments, row, show
from pipeline.consolidate import finish, part_reader
from pipeline.consolidate import parts as parts_module
from pipeline.consolidate.dealing import index_rows, make_deal, shards_of_task
from pipeline.consolidate.mixture import make_mixture
from pipeline.consolidate.parts import gather_parts
from pipeline.consolidate.pieces import PIECES_DIR, PiecePaths, PieceRows, read_pieces, write_piece
from pipeline.consolidate.sample_rows import fetch_rows
from pipeline.data.disk_format.dataset_info import IndexInfo, ShardInfo
from pipeline.data.disk_format.index import INDEX_TYPES, open_index
from pipeline.preprocess.part import SAMPLE_ROW
from slurm_jobs.formats.configs.stages import ConsolidateConfig
from slurm_jobs.formats.dataset_folder import shard_name
from slurm_jobs.formats.records.task_context import ParentStage

NUM_PARTS, NUM_TASKS, NUM_LOOKED_UP = 400, 100, 4096
CONFIG = ConsolidateConfig(num_read_threads=16)
DELAY_S = 0.002


def main() -> None:
    """Run the benchmark."""
    options = arguments(__doc__)
    num_samples = 1_000_000 if options.quick else 10_000_000
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:  # on disk, not tmpfs
        folder = Path(name)
        rows = [*index_cases(folder, num_samples), *consolidate_cases(folder, num_samples)]
        rows += read_cases(folder)
    show(rows, options, ("pyarrow", "numpy", "xxhash"))


def index_cases(folder: Path, num_samples: int) -> list[Row]:
    """Compare opening the index and reading rows with a Parquet file of the same rows."""
    info = make_index(folder / "index.arrow", num_samples, num_shards=1000)
    (folder / "info.json").write_text(json.dumps([info.num_bytes, info.xxh3, num_samples]))
    with pa.memory_map(str(folder / "index.arrow")) as source:
        table = pa.ipc.open_file(source).read_all()
    pq.write_table(table, folder / "index.parquet", compression="zstd")
    ours, peer = in_process("open_arrow", folder), in_process("open_parquet", folder)
    size = f"index of {num_samples:,}"
    return [
        row(
            f"{size}: open",
            "ms",
            ours["open_s"] * 1e3,
            peer="Parquet",
            peer_value=peer["open_s"] * 1e3,
            at_most=10,
        ),
        row(
            f"{size}: memory",
            "MB",
            ours["memory_mb"],
            peer="Parquet",
            peer_value=peer["memory_mb"],
            at_most=20,
        ),
        row(
            f"{size}: {NUM_LOOKED_UP} rows here and there",
            "ms",
            ours["look_up_s"] * 1e3,
            peer="Parquet",
            peer_value=peer["look_up_s"] * 1e3,
        ),
        row(f"{size}: one column compared with its checksum", "ms", ours["whole_s"] * 1e3),
    ]


def consolidate_cases(folder: Path, num_samples: int) -> list[Row]:
    """Measure the plan of one task, and the step that finishes the data set."""
    make_parts(folder / "p", num_samples=num_samples, num_parts=NUM_PARTS)
    make_pieces(folder)
    size = f"of {num_samples:,} in {NUM_PARTS} parts"
    rows = []
    for step, words in (
        ("plan", f"consolidate: plan of one task of {NUM_TASKS}, {size}"),
        ("finish", f"consolidate: the step that finishes, {size}"),
    ):
        figures = in_process(step, folder)
        rows += [
            row(words, "s", figures["wall_s"]),
            row(f"{words}: memory", "MB", figures["memory_mb"], at_most=200),
        ]
    return rows


def read_cases(folder: Path) -> list[Row]:
    """Measure reads by threads when each read has a delay."""
    count, size = 2000, 32 << 10
    path = folder / "samples.tar"
    rows = np.zeros(count, dtype=SAMPLE_ROW)
    rows["offset"], rows["num_bytes"] = np.arange(count) * size, size
    data = np.random.default_rng(0).integers(0, 256, (count, size), dtype=np.uint8)
    path.write_bytes(data.tobytes())
    rows["xxh3"] = [parts_module.xxhash.xxh3_64_intdigest(sample) for sample in data]
    real = os.pread

    def slow(*args: Any) -> bytes:
        time.sleep(DELAY_S)
        return real(*args)

    def rate(num_threads: int) -> float:
        parts: Any = type("P", (), {"paths": [type("F", (), {"tar": path})]})
        opened = part_reader.PartReader(parts=parts, max_open=1)
        start_s = time.perf_counter()
        zeros = np.zeros(count, dtype=np.int64)
        num = sum(1 for _ in part_reader.read_ahead(opened, zeros, rows, num_threads=num_threads))
        return num / (time.perf_counter() - start_s)

    os.pread = slow
    try:
        single, many = rate(1), rate(CONFIG.num_read_threads)
    finally:
        os.pread = real
    words = f"consolidate: samples of 32 KB read, each {DELAY_S * 1e3:g} ms late"
    return [row(words, "1/s", many, peer="one thread", peer_value=single, ratio_at_least=8)]


# Steps; each runs in its own process.


def open_arrow(folder: Path) -> dict[str, float]:
    """Map the index and read random rows."""
    num_bytes, checksums, count = json.loads((folder / "info.json").read_text())
    info = IndexInfo(num_bytes=num_bytes, xxh3=checksums)
    start_s = time.process_time()
    index = open_index(folder / "index.arrow", info, num_samples=count)
    open_s = time.process_time() - start_s
    columns = {name: getattr(index, name) for name in INDEX_TYPES}
    figures = {"open_s": open_s, "look_up_s": _look_up(columns, count)}
    start_s = time.process_time()
    index.whole("num_tokens")
    return {**figures, "whole_s": time.process_time() - start_s}


def open_parquet(folder: Path) -> dict[str, float]:
    """Read the same rows from Parquet, then random rows."""
    start_s = time.process_time()
    table = pq.ParquetFile(folder / "index.parquet").read(use_threads=False)
    columns = {name: table.column(name).to_numpy() for name in INDEX_TYPES}
    open_s = time.process_time() - start_s
    return {"open_s": open_s, "look_up_s": _look_up(columns, table.num_rows)}


def _look_up(columns: dict[str, np.ndarray], count: int) -> float:
    numbers = np.random.default_rng(1).integers(0, count, NUM_LOOKED_UP)
    start_s = time.process_time()
    for column in columns.values():
        column[numbers].sum()
    return time.process_time() - start_s


def _parent(folder: Path) -> ParentStage:
    return ParentStage(stage="p", run="preprocess", output_dir=folder / "p", num_slices=NUM_PARTS)


def plan(folder: Path) -> dict[str, float]:
    """Plan all shards of one task, up to the first read of a sample."""
    start_s = time.perf_counter()
    parts = gather_parts(_parent(folder))
    deal = make_deal(CONFIG, num_samples=parts.num_samples, num_bytes=parts.num_bytes)
    places = deal.places(shards_of_task(deal.num_shards, 42, NUM_TASKS))
    numbers = deal.order.slice(places.start, places.stop)
    rows = fetch_rows(parts, numbers, num_threads=CONFIG.num_read_threads)
    index_rows(rows, places, deal.bounds, num_bytes_before=0)
    return {"wall_s": time.perf_counter() - start_s}


def make_pieces(folder: Path) -> None:
    """Write the tasks' results without the shards; each holds consecutive rows of the parts."""
    parts = gather_parts(_parent(folder))
    deal = make_deal(CONFIG, num_samples=parts.num_samples, num_bytes=parts.num_bytes)
    (folder / "set" / PIECES_DIR).mkdir(parents=True)
    (folder / "set" / "shards").mkdir()
    for path in _pieces(folder):
        shards = shards_of_task(deal.num_shards, path.slice_index, NUM_TASKS)
        places = deal.places(shards)
        rows = fetch_rows(parts, np.arange(places.start, places.stop), num_threads=4)
        with path.rows.open("wb") as stream:
            index = PieceRows(stream, len(places))
            index.append(index_rows(rows, places, deal.bounds, num_bytes_before=0))
        infos = tuple(
            ShardInfo(
                name=shard_name(shard),
                num_bytes=1,
                xxh3="0" * 16,
                num_samples=deal.shard_size(shard),
            )
            for shard in shards
        )
        write_piece(path, index.finish("d", infos))


def _pieces(folder: Path) -> list[PiecePaths]:
    return [
        PiecePaths(output_dir=folder / "set", slice_index=i, num_slices=NUM_TASKS)
        for i in range(NUM_TASKS)
    ]


def finish_(folder: Path) -> dict[str, float]:
    """Merge the pieces of all tasks into index and `dataset.json`, without the processor."""
    finish.check_processor = lambda _parts: None
    paths = _pieces(folder)
    paths[0].work_dir.mkdir()
    start_s = time.perf_counter()
    parts = gather_parts(_parent(folder))
    pieces = read_pieces(paths, "d")
    assert pieces is not None
    mixture = make_mixture(parts, CONFIG, limit=None)
    finish.finish_dataset(parts, mixture, paths, pieces, paths[0])
    return {"wall_s": time.perf_counter() - start_s}


STEPS: dict[str, Callable[[Path], dict[str, float]]] = {
    "open_arrow": open_arrow,
    "open_parquet": open_parquet,
    "plan": plan,
    "finish": finish_,
}


def in_process(step: str, folder: Path) -> dict[str, float]:
    """Run a step in a new process; return its figures and `memory_mb`."""
    code = f"from benchmarks.growth import measured; measured({step!r}, {str(folder)!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True
    )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def measured(step: str, folder: str) -> None:
    """Run a step in this process and print its figures as JSON."""
    before, most, ended = _private_mb(), [0.0], threading.Event()

    def sample() -> None:
        while not ended.wait(0.005):
            most[0] = max(most[0], _private_mb())

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        figures = STEPS[step](Path(folder))
        most[0] = max(most[0], _private_mb())
    finally:
        ended.set()
        sampler.join()
    print(json.dumps({**figures, "memory_mb": most[0] - before}))


def _private_mb() -> float:
    """Return this process's memory that is not backed by files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError


if __name__ == "__main__":
    main()
