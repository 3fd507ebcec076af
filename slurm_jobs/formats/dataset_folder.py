"""Names in the folder of a data set, which stages write and the login node reads."""

from __future__ import annotations

INFO_NAME = "dataset.json"
"""File that `consolidate` writes last: with it, the data set is finished."""
INDEX_NAME = "index.arrow"
SHARDS_DIR = "shards"
PROCESSOR_DIR = "processor"
