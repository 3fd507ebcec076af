"""A run that downloads its model: killed on the way, resumed, with a token that stays secret."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.end_to_end.driver import Driver, kill, rank_pid, wait_for, words_of
from tests.hub_server import Hub, Repository, serve

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
TOKEN = "hf_plantedtoken"
WEIGHTS = bytes(1_500_000)


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serve() as served:
        files = {"config.json": b'"first"', "a.safetensors": WEIGHTS, "b.safetensors": WEIGHTS[1:]}
        served.repositories["models/some/model"] = Repository(files)
        served.token = TOKEN
        yield served


def test_a_killed_download_is_resumed_at_its_commit_and_keeps_the_token_secret(
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
