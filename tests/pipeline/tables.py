"""Tables of samples on the disk, as pyarrow and `datasets` write them."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
"""How `datasets` stores its feature `Image`."""
TURNS = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))


def picture(number: int) -> bytes:
    """A PNG of its own for each number."""
    pixels = np.full((40, 48, 3), number % 256, np.uint8)
    pixels[:20, :20] = 255 - number % 256
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return stream.getvalue()


def captions(num_rows: int) -> pa.Table:
    """Rows of a picture as bytes, and a caption."""
    rows = range(num_rows)
    images = [{"bytes": picture(row), "path": f"{row}.png"} for row in rows]
    texts = [f"caption {row}" for row in rows]
    return pa.table({"image": pa.array(images, IMAGE), "text": pa.array(texts, pa.string())})


def chats(num_rows: int) -> pa.Table:
    """Rows with `id`, `messages` and a list of up to two pictures, bytes without a path."""
    rows = range(num_rows)
    turns = [
        [{"role": "user", "content": f"question {row}"}, {"role": "assistant", "content": "yes"}]
        for row in rows
    ]
    images = [[{"bytes": picture(row), "path": None}] * (row % 3) for row in rows]
    return pa.table(
        {
            "id": pa.array([f"n{row}" for row in rows], pa.string()),
            "messages": pa.array(turns, TURNS),
            "images": pa.array(images, pa.list_(IMAGE)),
        }
    )


def write_parquet(path: Path, table: pa.Table, *, group_rows: int = 7, **options: Any) -> Path:
    """One file of row groups of so many rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=group_rows, **options)
    return path


def write_saved(folder: Path, tables: Sequence[pa.Table], *, batch_rows: int = 7) -> Path:
    """What `Dataset.save_to_disk` of `datasets` 5.2 writes: one stream of Arrow a table."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"data-{i:05d}-of-{len(tables):05d}.arrow" for i in range(len(tables))]
    for name, table in zip(names, tables, strict=True):
        with pa.OSFile(str(folder / name), "wb") as sink:
            features = {"huggingface": json.dumps({"info": {"features": {}}})}
            schema = table.schema.with_metadata(features)
            with pa.ipc.new_stream(sink, schema) as writer:
                writer.write_table(table, max_chunksize=batch_rows)
    write_json(folder / "dataset_info.json", {"features": {}, "description": ""})
    files = [{"filename": name} for name in names]
    write_json(folder / "state.json", {"_data_files": files, "_fingerprint": "0", "_split": None})
    return folder


def write_json(path: Path, value: Mapping[str, Any]) -> Path:
    """A file of JSON, in a folder that is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))
    return path
