"""Repositories that a folder has already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from slurm_jobs.base.errors import StageConfigError
from tests.hub_server import Hub
from tests.pipeline.download.hub_stage import DATA, MODEL, download, names_below

COMMIT = "c" * 40


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """As this stage writes it, and `hf download --local-dir`."""
    for name in ("some/model/config.json", "some/model/.cache/x", "datasets/some/data/a.csv"):
        file = tmp_path / "plain" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    return tmp_path / "plain"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """As huggingface_hub lays out its cache."""
    folder = tmp_path / "cache/models--some--model"
    snapshot = folder / "snapshots" / COMMIT
    for made in (snapshot, folder / "refs", folder / "blobs"):
        made.mkdir(parents=True)
    (folder / "refs/main").write_text(COMMIT)
    (folder / "blobs/b1").write_text("{}")
    (snapshot / "config.json").symlink_to("../../blobs/b1")
    return tmp_path / "cache"


def test_a_folder_of_repositories_is_linked(plain: Path, tmp_path: Path) -> None:
    config = {"models": [MODEL], "datasets": [DATA], "mirror": str(plain)}
    for _attempt in range(2):
        result = download(tmp_path, config)
    assert (tmp_path / "get/some/model").resolve() == plain / "some/model"
    assert result["outputs"] == {"some/model/config.json": 2, "datasets/some/data/a.csv": 2}
    assert [each["commit"] for each in result["repositories"]] == [None, None]


@pytest.mark.parametrize("revision", [None, "main", COMMIT])
def test_a_cache_of_the_hub_gives_the_commit(
    cache: Path, tmp_path: Path, revision: str | None
) -> None:
    config = {"models": [{"repo": MODEL, "revision": revision}], "mirror": str(cache)}
    (repository,) = download(tmp_path, config)["repositories"]
    assert repository["commit"] == COMMIT
    assert names_below(tmp_path / "get/some/model") == {"config.json"}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"models": ["a/b"]}, r"has neither a/b/ nor models--a--b/\. .*`hf download a/b --repo-ty"),
        (
            {"models": [{"repo": MODEL, "revision": "v9"}]},
            f"revision v9; it has the commits {COMMIT}",
        ),
    ],
)
def test_what_a_mirror_lacks_is_named(
    cache: Path, tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(StageConfigError, match=words):
        download(tmp_path, {**change, "mirror": str(cache)})


def test_a_link_never_leads_a_later_download_into_the_mirror(
    hub: Hub, plain: Path, tmp_path: Path
) -> None:
    download(tmp_path, {"models": [MODEL], "mirror": str(plain)})
    download(tmp_path, {"models": [MODEL]})
    assert not (tmp_path / "get/some/model").is_symlink()
    assert (plain / "some/model/config.json").read_text() == "{}"
    download(tmp_path, {"models": [MODEL], "mirror": str(plain)})
    assert (tmp_path / "get/some/model").is_symlink()
