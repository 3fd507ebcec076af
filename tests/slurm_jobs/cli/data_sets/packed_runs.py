"""A data set and a run that `packing` draws."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from slurm_jobs.base.files import read_json, write_json_atomic
from slurm_jobs.commands.spec_reading.read_spec import load
from slurm_jobs.run_folder.paths import RunPaths
from tests.pipeline.build import preprocess_23, run_consolidate, write_processor
from tests.slurm_jobs.run.fabricate import make_run

SPEC = """\
name: words
cluster: local
stages:
  prep: {run: preprocess, config: {manifest: source/manifest.csv, processor: processor}}
  pack: {run: consolidate, after: prep}
  train:
    run: train
    after: pack
    resources: {tasks_per_node: 2}
    config:
      device: cpu
      num_steps: 1
      global_batch_size: 16
      batching: {kind: grouped, max_tokens: 256}
      model:
        vision: {hidden_size: 16, num_layers: 1, num_heads: 2, patch_size: 16}
        language: {hidden_size: 16, num_layers: 1, num_heads: 2, num_kv_heads: 1}
"""
SECOND = (
    SPEC.replace("name: words", "name: two")
    + "  more: {run: train, after: pack, config: \
{device: cpu, strategy: single, num_steps: 1}}\n"
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A manifest, a processor, and in `set/output` a data set of 23 samples."""
    folder = tmp_path_factory.mktemp("source")
    parts_dir = preprocess_23(folder, write_processor(folder / "processor"))
    run_consolidate(folder / "set", parts_dir, 2)
    (folder / "source" / "manifest.csv").write_text("image_path,text\na.png,words\n")
    return folder


@pytest.fixture
def here(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder: specs, and no run yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("source", "processor"):
        (tmp_path / name).symlink_to(source / name)
    (tmp_path / "words.yaml").write_text(SPEC)
    (tmp_path / "two.yaml").write_text(SECOND)
    return tmp_path


@pytest.fixture
def made(here: Path, source: Path) -> RunPaths:
    """A run of the spec `words` whose data set is finished."""
    paths = make_run(
        here / "runs" / "words-20261121-080611-5b9e", {"prep": 1, "pack": 1, "train": 1}
    )
    plan = read_json(paths.plan(1))
    kinds = {"prep": "preprocess", "pack": "consolidate", "train": "train"}
    stages = [{**stage, "run": kinds[stage["name"]]} for stage in plan["stages"]]
    write_json_atomic(paths.plan(1), {**plan, "stages": stages})
    paths.resolved_spec.parent.mkdir()
    paths.resolved_spec.write_text(load(here / "words.yaml").spec.model_dump_json())
    write_json_atomic(paths.spec_origin, {"spec_file": str(here / "words.yaml")})
    shutil.copytree(source / "set" / "output", paths.output_dir("pack"))
    return paths
