"""A spec that preprocesses the manifest of the name that is put in, and the processor it names."""

from __future__ import annotations

from pathlib import Path

SPEC = """\
name: a
cluster: local
stages:
  p:
    run: preprocess
    config:
      manifest: {name}
      processor: proc
"""
TRAINING = """\
  c: {{run: consolidate, after: p}}
  t:
    run: train
    after: c
    config:
      device: cpu
      strategy: single
      {config}
"""
"""Stages that follow in the spec; the training's config gets another line."""


def write_processor(folder: Path) -> None:
    """Its files, in which nothing stands."""
    (folder / "proc").mkdir()
    for name in ("tokenizer", "preprocessor_config", "processor_config"):
        (folder / "proc" / f"{name}.json").write_text("{}")
    (folder / "proc/chat_template.jinja").touch()
