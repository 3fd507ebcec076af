"""The commit and files of a repository, looked up once for each request."""

from __future__ import annotations

from pathlib import Path

from tests.hub_server import Hub
from tests.pipeline.download.hub_stage import MODEL, SHARDS, download, model_files


def test_another_request_takes_the_place_of_an_earlier_one(hub: Hub, tmp_path: Path) -> None:
    repository = hub.repositories[f"models/{MODEL}"]
    first_commit = repository.commit
    download(tmp_path, {"models": [{"repo": MODEL, "revision": first_commit}]})
    repository.files = {**model_files("a later commit"), SHARDS[0]: b"other"}
    result = download(tmp_path, {"models": [MODEL]})
    assert result["repositories"][0]["commit"] == repository.commit
    assert (tmp_path / "get/some/model" / SHARDS[0]).read_bytes() == b"other"
