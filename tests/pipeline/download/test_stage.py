"""The stage against a hub on this machine: what it provides, and after which faults."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.download.repository_plan import RepositoryPaths, stored_plan
from slurm_jobs.base.errors import FullDiskError, StageConfigError, StageError, StageStoppedError
from slurm_jobs.base.processes import stop_requests
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.download import DownloadConfig, requests_of
from tests.hub_server import Hub, Repository
from tests.pipeline.download.hub_stage import (
    DATA,
    MODEL,
    SHARDS,
    USEFUL,
    WEIGHTS,
    download,
    names_below,
    use_hub,
)


def test_models_and_data_sets_become_folders_with_their_commits(hub: Hub, tmp_path: Path) -> None:
    config = {"models": [MODEL], "datasets": [{"repo": DATA, "include": ["data/train-*"]}]}
    result = download(tmp_path, config)
    assert names_below(tmp_path / "get/some/model") == USEFUL
    assert (tmp_path / "get/some/model" / SHARDS[1]).read_bytes() == b"2" + WEIGHTS
    assert names_below(tmp_path / "get/datasets/some/data") == {"data/train-0.parquet"}
    model, data = (hub.repositories[f"{kind}"] for kind in (f"models/{MODEL}", f"datasets/{DATA}"))
    assert result["repositories"] == [
        {
            "folder": MODEL,
            "revision": None,
            "commit": model.commit,
            "num_files": 4,
            "num_bytes": sum(len(model.files[name]) for name in USEFUL),
        },
        {
            "folder": f"datasets/{DATA}",
            "revision": None,
            "commit": data.commit,
            "num_files": 1,
            "num_bytes": len(WEIGHTS),
        },
    ]
    assert result["outputs"]["datasets/some/data/data/train-0.parquet"] == len(WEIGHTS)
    num_requests = len(hub.requests)
    again = download(tmp_path, config, attempt=2)
    assert again["repositories"] == result["repositories"]
    assert len(hub.requests) == num_requests


def test_a_stop_request_ends_the_download_and_keeps_what_is_complete(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"models": [MODEL]}
    paths = RepositoryPaths(
        output_dir=tmp_path / "get", request=requests_of(build_config(DownloadConfig, config))[0]
    )
    hub.failing = [503] * 99
    with pytest.raises(StageError):
        download(tmp_path, config)
    hub.failing = []
    monkeypatch.setattr(stop_requests, "_signals_seen", {signal.SIGTERM})
    with pytest.raises(StageStoppedError, match="complete are kept"):
        download(tmp_path, config)
    assert stored_plan(paths) is None
    monkeypatch.setattr(stop_requests, "_signals_seen", set())
    download(tmp_path, config)
    (tmp_path / "get/some/model/config.json").unlink()
    monkeypatch.setattr(stop_requests, "_signals_seen", {signal.SIGTERM})
    limit = time.time() + 5
    with pytest.raises(StageConfigError, match=r"limit is too short: .*raise resources.timeout"):
        download(tmp_path, config, deadline_unix_s=limit)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"models": ["some/typo"]}, StageConfigError, "some/typo .*no such repository, or a priv"),
        ({"models": [{"repo": MODEL, "revision": "v9"}]}, StageConfigError, "no such revision"),
        ({"datasets": ["some/gated"]}, StageConfigError, r"is gated\. .*/datasets/some/gated, and"),
        ({"models": ["some/huge"]}, FullDiskError, r"still to be downloaded have .* free\. Make"),
    ],
)
def test_what_the_hub_cannot_give_is_refused_with_the_remedy(
    hub: Hub, tmp_path: Path, change: dict[str, Any], error: type[StageError], words: str
) -> None:
    hub.repositories["datasets/some/gated"] = Repository({"a.csv": b"a"}, is_gated=True)
    hub.repositories["models/some/huge"] = Repository({"huge.safetensors": b"h"})
    hub.claimed = {"huge.safetensors": 10**18}
    with pytest.raises(error, match=words) as caught:
        download(tmp_path, change)
    assert type(caught.value) is error
    assert not (tmp_path / "get/some").exists()


def test_a_hub_with_a_fault_may_be_tried_again(hub: Hub, tmp_path: Path) -> None:
    hub.failing = [501] * 9
    with pytest.raises(StageError, match=r"answered 501\. Resume the run later") as caught:
        download(tmp_path, {"models": [MODEL]})
    assert not isinstance(caught.value, StageConfigError)


def test_without_a_network_the_mirror_is_the_remedy(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_hub(monkeypatch, "http://127.0.0.1:9")
    with pytest.raises(StageError) as caught:
        download(tmp_path, {"datasets": [{"repo": DATA, "revision": "v1"}]})
    command = f"hf download {DATA} --repo-type dataset --revision v1 --local-dir FOLDER/datasets/"
    assert f"`{command}{DATA}`" in str(caught.value)
    option = "--set stages.get.config.mirror=FOLDER"
    assert str(caught.value).endswith(f"`slurm-jobs resume {tmp_path} {option}`")
    assert caught.value.resumes == [("--set", "stages.get.config.mirror=FOLDER")]
    assert hub.requests == []


def test_offline_by_a_variable_the_variable_is_named(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(StageConfigError, match=r'environment: \{HF_HUB_OFFLINE: "0"\}` for stage'):
        download(tmp_path, {"models": [MODEL]})
    assert hub.requests == []


def test_the_token_goes_to_the_hub_and_not_to_its_storage(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.token = "hf_planted"
    with pytest.raises(StageConfigError, match="a private one that your HF_TOKEN cannot read"):
        download(tmp_path, {"models": [MODEL]})
    monkeypatch.setenv("HF_TOKEN", hub.token)
    download(tmp_path, {"models": [MODEL]})
    paths = {path for path, _ in hub.tokens}
    assert f"/{MODEL}/resolve/{hub.repositories[f'models/{MODEL}'].commit}/config.json" in paths
    assert not any(path.startswith("/storage/") for path in paths)
