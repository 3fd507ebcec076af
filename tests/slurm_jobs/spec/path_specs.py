"""Specs whose paths are looked at."""

from pathlib import Path

import pytest

from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.spec.checked_spec import LoadedSpec

SPEC = """\
name: a
cluster: local
runs_dir: {runs_dir}
stages:
  prep:
    run: preprocess
    config:
      manifest: {manifest}
      processor: {processor}
"""


def spec(manifest: str = "m.csv", processor: str = "proc", runs_dir: str = "runs") -> str:
    return SPEC.format(manifest=manifest, processor=processor, runs_dir=runs_dir)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    inner = tmp_path / "specs"
    (inner / "proc").mkdir(parents=True)
    for name in ("tokenizer.json", "preprocessor_config.json", "processor_config.json"):
        (inner / "proc" / name).write_text("{}")
    (inner / "proc/chat_template.jinja").touch()
    for place in (inner, tmp_path):
        (place / "a.png").write_bytes(b"GIF89a")
    (inner / "m.csv").write_text("image_path,text\na.png,a\n")
    (inner / "a.png").write_bytes(b"GIF89a")
    (tmp_path / "up.csv").write_text("image_path,text\na.png,a\n")
    return inner


def loaded(folder: Path, text: str) -> LoadedSpec:
    (folder / "spec.yaml").write_text(text)
    return load(folder / "spec.yaml")
