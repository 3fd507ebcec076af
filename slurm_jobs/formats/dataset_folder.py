"""Names in the folder of a data set, which stages write and the login node reads."""

from __future__ import annotations

import re

INFO_NAME = "dataset.json"
"""File that `consolidate` writes last: with it, the data set is finished."""
INDEX_NAME = "index.arrow"
SHARDS_DIR = "shards"
PROCESSOR_DIR = "processor"
HELD_OUT_DIR = "held_out"
"""Folder of the rows that `preprocess` held out: a manifest, and its pictures."""
HELD_OUT_MANIFEST = "manifest.jsonl"
HELD_OUT_PICTURES = "pictures.tar"
SHARD_FILE = re.compile(r"shard-\d+\.tar")


def shard_name(shard: int) -> str:
    """Return the file name of a shard, counted from 0."""
    return f"shard-{shard:06d}.tar"
