"""Data sets that are wrong, or hostile, but whole: made by the library's own writers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from PIL import Image

from pipeline.data.dataset import open_dataset
from pipeline.data.disk_format.columns import ColumnsWriter
from pipeline.data.disk_format.dataset_info import IndexInfo, ShardInfo, dataset_info_to_json
from pipeline.data.disk_format.index import INDEX_ROW, INDEX_TYPES, format_key
from pipeline.data.disk_format.sample_members import pack_sample
from pipeline.data.disk_format.tar_format import END_OF_ARCHIVE
from pipeline.tools.raw_samples import RawSample, parse
from slurm_jobs.base.files import write_json_atomic
from tests.pipeline.build import run_consolidate, run_preprocess
from tests.pipeline.kinds import write_kind

Change = Callable[[np.ndarray], np.ndarray]
"""Takes and returns tokens: int32 [2, num_tokens]."""


def change_samples(
    folder: Path, changes: dict[int, Change], *, images: dict[int, int] | None = None
) -> None:
    """Write a data set anew with the tokens of samples changed, by key, and all checksums right.

    `images` says of how many images samples keep the first ones.
    """
    dataset = open_dataset(folder)
    rows = np.zeros(len(dataset), dtype=INDEX_ROW)
    shards = dict.fromkeys(range(dataset.info.num_shards), b"")
    for name in INDEX_TYPES:
        rows[name] = getattr(dataset.index, name)
    for row in rows:
        path = dataset.files.shared_dir / dataset.info.shards[row["shard"]].name
        data = path.read_bytes()[row["offset"] : row["offset"] + row["num_bytes"]]
        key = int(row["key"])
        if key in changes or key in (images or {}):
            raw = parse(memoryview(data), wants_images=True)
            tokens = changes.get(key, lambda same: same)(raw.tokens.copy())
            kept = raw.images[: (images or {}).get(key)]
            data = _packed(key, tokens, replace(raw, images=kept))
            row["num_tokens"] = tokens.shape[1]
            row["num_supervised_tokens"] = np.count_nonzero(tokens[1] >= 0)
            row["num_images"] = len(kept)
        row["offset"], row["num_bytes"] = len(shards[int(row["shard"])]), len(data)
        row["xxh3"] = xxhash.xxh3_64_intdigest(data)
        shards[int(row["shard"])] += data
    _write(folder, rows, {shard: data + END_OF_ARCHIVE for shard, data in shards.items()})


def _packed(key: int, tokens: np.ndarray, raw: RawSample) -> bytes:
    suffix = raw.images[0][0].partition(".")[2] if raw.images else "png"
    return pack_sample(
        key=format_key(key),
        input_ids=tokens[0],
        labels=tokens[1],
        images=[bytes(data) for _, data in raw.images],
        image_suffix=suffix,
        meta=raw.meta,
    )


def _write(folder: Path, rows: np.ndarray, shards: dict[int, bytes]) -> None:
    info = open_dataset(folder).info
    counts = Counter(rows["shard"].tolist())
    written = []
    for shard, data in shards.items():
        name = info.shards[shard].name
        (folder / "shards" / name).write_bytes(data)
        digest = xxhash.xxh3_64_hexdigest(data)
        written.append(
            ShardInfo(name=name, num_bytes=len(data), xxh3=digest, num_samples=counts[shard])
        )
    with (folder / "index.arrow").open("wb") as stream:
        writer = ColumnsWriter(stream, INDEX_TYPES, len(rows))
        writer.append(rows)
        index = IndexInfo(num_bytes=writer.num_bytes, xxh3=writer.finish())
    info = replace(
        info,
        num_tokens=int(rows["num_tokens"].sum()),
        num_images=int(rows["num_images"].sum()),
        shards=tuple(written),
        index=index,
    )
    write_json_atomic(folder / "dataset.json", dataset_info_to_json(info))


HOSTILE = (
    "</script><img src=x onerror=alert(1)>\x1b[31mred\x1b]0;title\x07\u202eevil\n\ttab \\n é 🙂"
)


def write_kind_set(kind: str, folder: Path, image_format: str = "jpeg") -> Path:
    """A data set of a kind of processor: no image, one, several, odd shapes, hostile texts."""
    source = folder / "source"
    source.mkdir(parents=True)
    generator = np.random.default_rng(0)
    sizes = [(120, 60), (60, 90), (30, 30)]
    for number, (width, height) in enumerate(sizes):
        coarse = Image.fromarray(generator.integers(0, 255, (4, 6, 3), dtype=np.uint8))
        coarse.resize((width, height), Image.Resampling.BICUBIC).save(source / f"{number}.png")
    rows = [
        _row([], "Name a colour.", "Red."),
        _row([0], "What is this?", "A red cup."),
        _row([1, 2], "What are these?", "Two\n\ncups, é🙂.", HOSTILE, "Sure."),
        _row([0, 1, 2], HOSTILE, HOSTILE),
    ]
    manifest = source / "rows.jsonl"
    manifest.write_text("".join(json.dumps(row) + "\n" for row in rows))
    processor = write_kind(kind, folder / "processor")
    config = {
        "manifest": str(manifest),
        "processor": str(processor),
        "image_format": image_format,
        "num_threads": 1,
    }
    _, parts = run_preprocess(folder / "prep", config)
    return run_consolidate(folder / "set", parts, num_shards=2)[1]


def _row(images: list[int], *texts: str) -> dict[str, Any]:
    """Turns of user and assistant; the images stand before the first."""
    roles = ("user", "assistant")
    messages = [
        {"role": roles[turn % 2], "content": [{"type": "text", "text": text}]}
        for turn, text in enumerate(texts)
    ]
    messages[0]["content"] = [{"type": "image"} for _ in images] + messages[0]["content"]
    return {"images": [f"{number}.png" for number in images], "messages": messages}
