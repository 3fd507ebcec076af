"""Formats of manifests that are text: what `check` and the reader of rows agree on."""

from __future__ import annotations

UNKNOWN_FORMAT = (
    "neither a `.csv` file, nor JSON lines (first character `{`), nor a JSON list (`[`), nor "
    "Parquet"
)
