"""Rows as a parser passes them on, read without a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slurm_jobs.formats.manifests.messages import ManifestRow, RowOrigin
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.values import read_row

PICTURE = {"image": "a.png"}
ASKED = {"question": "What is it?", "answer": "A cat."}
QUESTION = {"from": "human", "value": "What is it?"}
ANSWER = {"from": "gpt", "value": "A cat."}


def row_of(value: Mapping[str, Any]) -> ManifestRow:
    """Read a row of line 7 of `m.jsonl`."""
    return read_row(RowOrigin(row=6, line=7, manifest=Path("m.jsonl")), value, RowOptions())


def chat(*turns: Mapping[str, Any], **others: Any) -> ManifestRow:
    """Read a row of LLaVA's format."""
    return row_of({**others, "conversations": list(turns)})


def spoken(row: ManifestRow) -> list[tuple[str, str]]:
    """Return role and text of each message."""
    return [(message.role, message.text) for message in row.messages]
