"""Runs that download: killed on the way and resumed, with a secret token, and up to a training."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.end_to_end.driver import Driver, files_below, kill, rank_pid, wait_for, words_of
from tests.hub_server import Hub, Repository, serve
from tests.pipeline.kinds import write_kind
from tests.pipeline.models.tiny import write_tiny
from tests.pipeline.tables import captions, write_parquet

SPEC = """\
name: hub
cluster: local
environment: {{HF_ENDPOINT: "{hub}", HF_HUB_OFFLINE: "0", HF_HOME: {home}}}
stages:
  get:
    run: download
    config: {{models: [{{repo: some/model, revision: main}}], num_threads: 1}}
  use:
    after: get
    shell: grep -c first "$SLURM_JOBS_GET_OUTPUT_DIR/some/model/config.json"
"""
TRAINED = """\
name: hub
cluster: local
environment: {{HF_ENDPOINT: "{hub}", HF_HUB_OFFLINE: "0", HF_HOME: {home}}}
stages:
  get:
    run: download
    config: {{models: [some/model], datasets: [{{repo: some/data, include: ["data/train-*"]}}]}}
  preprocess:
    run: preprocess
    after: get
    config:
      processor: ${{get.output_dir}}/some/model
      manifest: ${{get.output_dir}}/datasets/some/data/data
  consolidate: {{run: consolidate, after: preprocess}}
  train:
    run: train
    after: consolidate
    config:
      device: cpu
      strategy: single
      num_steps: 2
      global_batch_size: 8
      model: {{type: hugging_face, path: "${{get.output_dir}}/some/model"}}
"""
TOKEN = "hf_plantedtoken"
WEIGHTS = bytes(1_500_000)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serve() as served:
        files = {"config.json": b'"first"', "a.safetensors": WEIGHTS, "b.safetensors": WEIGHTS[1:]}
        served.repositories["models/some/model"] = Repository(files)
        served.token = TOKEN
        yield served


def test_a_killed_download_resumes_at_its_commit_and_hides_its_token(
    local: Driver, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    repository = hub.repositories["models/some/model"]
    commit, hub.bytes_per_s = repository.commit, 2e6
    home = local.folder / "home"
    run_dir = local.submit_text(SPEC.format(hub=hub.address, home=home))
    wait_for(lambda: hub.sent("b.safetensors"), "the second file", timeout_s=120)
    pid = rank_pid(run_dir, "get", "s00000.a0001", 0)
    assert pid is not None
    kill(pid)
    assert words_of(local.wait(run_dir))["get"] == "failed"
    assert not (run_dir / "data/get/some").exists()
    repository.files = {"config.json": b'"second"'}
    hub.bytes_per_s = None
    local.run("resume", str(run_dir))
    assert set(words_of(local.wait(run_dir)).values()) == {"completed"}
    assert hub.sent("a.safetensors") == 1
    local.run("report", str(run_dir))
    report = json.loads((run_dir / "report/report.json").read_text())
    (downloaded,) = report["provenance"]["downloads"]
    assert downloaded["folder"] == "some/model"
    assert downloaded["commit"] == commit
    assert commit in (run_dir / "report/report.html").read_text()
    holders = [
        p for p in local.folder.rglob("*") if p.is_file() and TOKEN.encode() in p.read_bytes()
    ]
    assert holders == []


@pytest.mark.slow
def test_a_downloaded_model_is_trained_on_a_downloaded_data_set(local: Driver, hub: Hub) -> None:
    hub.token = ""
    model = write_kind("qwen2_5_vl", local.folder / "tiny")
    write_tiny("qwen2_5_vl", model)
    for split in ("train", "test"):
        write_parquet(local.folder / f"table/data/{split}-0.parquet", captions(16))
    hub.repositories["models/some/model"] = Repository(files_below(model))
    hub.repositories["datasets/some/data"] = Repository(files_below(local.folder / "table"))
    run_dir = local.submit_text(TRAINED.format(hub=hub.address, home=local.folder / "home"))
    assert set(words_of(local.wait(run_dir, timeout_s=600)).values()) == {"completed"}
    assert hub.sent("test-0.parquet") == 0
    trained = json.loads((run_dir / "data/train/model/config.json").read_text())
    assert trained["model_type"] == "qwen2_5_vl"
