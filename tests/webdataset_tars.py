"""Builders of tars as WebDataset, img2dataset and Energon write them."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PREPARED = {"__module__": "megatron.energon", "__class__": "CaptioningSample"}


def write_tar(path: Path, members: Mapping[str, bytes | str | Mapping[str, Any]]) -> Path:
    """A tar of members by name; a mapping becomes JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            text = json.dumps(content) if isinstance(content, Mapping) else content
            data = text.encode() if isinstance(text, str) else text
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return path


def write_energon(folder: Path, splits: Mapping[str, Any] | None = None, **values: Any) -> Path:
    """What `energon prepare` writes; JSON is YAML, too."""
    meta = folder / ".nv-meta"
    meta.mkdir(parents=True)
    (meta / "dataset.yaml").write_text(json.dumps({"sample_type": PREPARED, **values}))
    (meta / "split.yaml").write_text(json.dumps(splits or {"split_parts": {}}))
    return folder
