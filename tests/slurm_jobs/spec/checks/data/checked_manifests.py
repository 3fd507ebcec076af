"""Specs whose manifest is checked."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.slurm_jobs.spec.checks.preprocess_spec import SPEC

QUESTION, ANSWER = {"role": "user", "content": "?"}, {"role": "assistant", "content": "!"}
CHAT = {"messages": [QUESTION, ANSWER]}
TEXT_SPEC = SPEC + "      text_only: true\n"
VIDEO = {**CHAT, "video": "v.mp4"}


def write(folder: Path, data: str | bytes | list[Any], name: str = "m.jsonl") -> str:
    """Write a manifest, of rows as JSON lines, and return the spec that reads it."""
    if isinstance(data, list):
        data = "".join(json.dumps(row) + "\n" for row in data)
    (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
    return TEXT_SPEC.format(name=name)


def write_in_each_format(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Write the same rows as m.jsonl, m.json, m.csv and m.parquet."""
    write(folder, rows)
    write(folder, json.dumps(rows), "m.json")
    lines = [",".join(rows[0]), *(",".join(row.values()) for row in rows)]
    write(folder, "\n".join(lines), "m.csv")
    pq.write_table(pa.Table.from_pylist(rows), folder / "m.parquet")
