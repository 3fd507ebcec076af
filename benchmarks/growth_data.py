"""Synthetic parts and indexes of any size, in the format of `preprocess` and `consolidate`.

Keys are consecutive, sizes and lengths log-normal, checksums random. The tar files of the parts are
sparse files of the right length, for steps that read no sample.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import xxhash

from pipeline.data.disk_format.columns import ColumnsWriter
from pipeline.data.disk_format.dataset_info import IndexInfo
from pipeline.data.disk_format.index import INDEX_ROW, INDEX_TYPES
from pipeline.data.disk_format.tar_format import END_OF_ARCHIVE
from pipeline.preprocess.part import SAMPLE_ROW, PartIndex, PartPaths, npy_bytes, write_part
from slurm_jobs.formats.records.task_context import ParentStage

_BLOCK = 1 << 20
_FIELDS_BYTES = SAMPLE_ROW.itemsize - 4
SETTINGS = {"manifest": "m.jsonl", "processor_xxh3": "", "image_format": "jpeg"}
MODEL_INPUTS = {
    "image_kind": "fixed",
    "patch_size": None,
    "merge_size": None,
    "temporal_patch_size": None,
    "image_height": 384,
    "image_width": 384,
    "image_mean": [0.5] * 3,
    "image_std": [0.5] * 3,
    "rescale_factor": 1 / 255,
    "image_token": "<image>",
    "image_token_id": 1,
    "pad_token_id": 0,
    "num_image_tokens": 64,
}


def draw_rows(first: int, count: int, dtype: np.dtype) -> np.ndarray:
    """Return the rows of samples `first` to `first + count`."""
    random = np.random.default_rng([7, first])
    rows = np.zeros(count, dtype=dtype)
    rows["key"] = np.arange(first, first + count)
    rows["num_bytes"] = 512 * random.lognormal(5, 0.5, count).astype(np.int64) + 1536
    rows["num_tokens"] = random.lognormal(5, 0.7, count).astype(np.int32) + 8
    rows["num_supervised_tokens"] = rows["num_tokens"] // 3
    rows["num_images"] = random.integers(0, 4, count)
    rows["xxh3"] = random.integers(0, 2**63, count, dtype=np.uint64)
    rows["offset"] = np.cumsum(rows["num_bytes"]) - rows["num_bytes"]
    return rows


def make_parts(folder: Path, *, num_samples: int, num_parts: int) -> ParentStage:
    """Write the output of a preprocess stage; `processor/` is next to it."""
    (folder / "parts").mkdir(parents=True)
    for number in range(num_parts):
        first, stop = (n * num_samples // num_parts for n in (number, number + 1))
        _make_part(folder, number, num_parts, range(first, stop))
    return ParentStage(stage="p", run="preprocess", output_dir=folder, num_slices=num_parts)


def _make_part(folder: Path, number: int, num_parts: int, keys: range) -> None:
    paths = PartPaths(output_dir=folder, slice_index=number)
    rows = draw_rows(keys.start, len(keys), SAMPLE_ROW)
    data, width = memoryview(rows.tobytes()), SAMPLE_ROW.itemsize
    rows["check"] = [
        xxhash.xxh3_64_intdigest(data[i : i + _FIELDS_BYTES]) & 0xFFFFFFFF
        for i in range(0, len(data), width)
    ]
    num_bytes = int(rows["num_bytes"].sum()) + len(END_OF_ARCHIVE)
    with paths.tar.open("wb") as stream:
        stream.truncate(num_bytes)
    paths.rejects.write_bytes(b"")
    index = PartIndex(
        slice_index=number,
        num_slices=num_parts,
        first_row=keys.start,
        end_row=keys.stop,
        settings=SETTINGS,
        model_inputs=MODEL_INPUTS,
        processor_dir=str(folder),
        num_bytes=num_bytes,
        xxh3=f"{number:016x}",
        num_samples=len(rows),
        samples_num_bytes=len(npy_bytes(rows)),
        samples_xxh3=f"{number:016x}",
        num_rejected=0,
        rejects_by_reason={},
        max_reject_share=0.0,
    )
    write_part(paths, index, rows)


def make_index(path: Path, num_samples: int, *, num_shards: int) -> IndexInfo:
    """Write an index block by block."""
    with path.open("wb") as stream:
        writer = ColumnsWriter(stream, INDEX_TYPES, num_samples)
        for start in range(0, num_samples, _BLOCK):
            rows = draw_rows(start, min(_BLOCK, num_samples - start), INDEX_ROW)
            rows["shard"] = rows["key"] * num_shards // num_samples
            writer.append(rows)
        return IndexInfo(num_bytes=writer.num_bytes, xxh3=writer.finish())
