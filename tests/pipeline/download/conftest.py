"""A hub on this machine, to which huggingface_hub of this process is directed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from pipeline.download import repository_files
from tests.hub_server import Hub, serve
from tests.pipeline.download.hub_stage import repositories, use_hub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache/hub"))
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "cache/token"))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(repository_files, "WAITS_S", (0.05, 0.05))
    with serve() as served:
        served.repositories = repositories()
        use_hub(monkeypatch, served.address)
        yield served
