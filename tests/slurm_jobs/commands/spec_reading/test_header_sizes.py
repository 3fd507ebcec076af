"""Sizes of images are read from few headers, and not guessed where there is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.commands.spec_reading import header_sizes
from slurm_jobs.spec.checks.data.image_sizes import MAX_MEASURED_ROWS
from tests.slurm_jobs.spec.checks.data.photo_specs import PHOTO, SMALL, picture, write
from tests.slurm_jobs.spec.conftest import Notes, notes

__all__ = ["notes"]


@pytest.fixture(autouse=True)
def _processor(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    images = {"image_processor_type": "Qwen2VLImageProcessor", "max_pixels": 12_845_056}
    (tmp_path / "proc/processor_config.json").write_text(json.dumps({"image_processor": images}))
    (tmp_path / "proc/tokenizer.json").write_text("{}")
    (tmp_path / "proc/chat_template.jinja").touch()
    (tmp_path / "photo.png").write_bytes(picture(PHOTO))
    (tmp_path / "small.png").write_bytes(picture(SMALL))


def test_few_headers_of_a_long_manifest_are_read(
    notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(1000):
        (tmp_path / f"{number}.png").hardlink_to(tmp_path / "photo.png")
    read: list[Any] = []
    read_size = header_sizes.read_size
    monkeypatch.setattr(
        header_sizes, "read_size", lambda file: read.append(file) or read_size(file)
    )
    rows = [[f"{number}.png", f"{number + 1}.png"] for number in range(0, 1000, 2)]
    spec = write(tmp_path, *rows) + "      max_too_long_share: 1\n"
    assert "100 of 100 rows" in notes(spec)[0]
    assert len(read) == MAX_MEASURED_ROWS
