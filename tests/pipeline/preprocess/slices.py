"""Rows and configs of small slices, and the rejects of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pipeline.preprocess.manifest import read_manifest
from slurm_jobs.formats.manifests.messages import ManifestRow
from tests.pipeline.build import write_csv_manifest

Config = dict[str, Any]


def make_config(tmp_path: Path, processor_dir: Path, num_rows: int = 10) -> Config:
    manifest = write_csv_manifest(tmp_path / "source", num_rows)
    return {"manifest": str(manifest), "processor": str(processor_dir), "num_threads": 2}


def rejects_of(folder: Path) -> list[dict[str, Any]]:
    """Of all slices, in order."""
    paths = sorted((folder / "parts").glob("*.rejects.jsonl"))
    return [json.loads(line) for path in paths for line in path.read_text().splitlines()]


def make_row(folder: Path, *names: str) -> ManifestRow:
    items = [{"type": "image", "path": name} for name in names]
    messages = [{"role": "user", "content": items}, {"role": "assistant", "content": "x"}]
    (folder / "rows.jsonl").write_text(json.dumps({"messages": messages}) + "\n")
    return read_manifest(folder / "rows.jsonl")[0]
