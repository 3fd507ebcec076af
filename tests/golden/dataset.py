"""Checksums of the data set that the demo's first stages make of a few pictures."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.golden.command import GOLDEN, ROOT

CHECKSUMS = GOLDEN / "dataset.json"
LIBRARIES = ("numpy", "pillow", "pyarrow", "simplejpeg", "tokenizers", "transformers")
_SPEC = """\
name: shapes
cluster: local
stages:
  render:
    run: "shapes_demo:render"
    config: {num_train: 300, num_heldout: 2, num_broken: 8, max_side_px: 200, seed: 0}
  preprocess:
    run: preprocess
    after: render
    array: {num_slices: 2}
    config:
      manifest: "${render.output_dir}/train.jsonl"
      processor: "${render.output_dir}/processor"
      max_reject_share: 0.1
  consolidate:
    run: consolidate
    after: preprocess
    config: {shard_mb: 1}
"""
_RENDERED = ("train.jsonl", "heldout.jsonl")


def versions() -> dict[str, str]:
    """Return the versions of the libraries that the bytes may depend on."""
    return {name: importlib.metadata.version(name) for name in LIBRARIES}


def checksums(folder: Path) -> str:
    """Run the stages in the new `folder`; return the text of `dataset.json`."""
    folder.mkdir()
    (folder / "spec.yaml").write_text(_SPEC)
    shutil.copy(ROOT / "configs" / "shapes_demo.py", folder)
    command = [sys.executable, "-m", "slurm_jobs", "run", "spec.yaml"]
    ended = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"{ended.stdout}{ended.stderr}"
    (run_dir,) = (folder / "runs").iterdir()
    data = run_dir / "data"
    made = [path for path in (data / "consolidate").rglob("*") if path.is_file()]
    rendered = [data / "render" / name for name in _RENDERED]
    files = {
        str(path.relative_to(data)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted([*made, *rendered])
    }
    return json.dumps({"libraries": versions(), "sha256": files}, indent=1) + "\n"
