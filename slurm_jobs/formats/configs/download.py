"""Config of the built-in `download` stage, and the folder of each repository in its output."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from slurm_jobs.formats.config import CheckedConfig, Count, InputPath

RepositoryKind = Literal["model", "dataset"]
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class HubRepository:
    """Repository on the Hugging Face hub, and the part of it that is downloaded."""

    repo: str
    """Its name on the hub: `OWNER/NAME`."""
    revision: str | None = None
    """Branch, tag or commit. Null takes the newest commit. A name is looked up once, and a resume
    downloads the same commit."""
    include: tuple[str, ...] = ()
    """Patterns of the files to download, such as `data/train-*`. Without patterns: of a model its
    safetensors and text files, without copies in other formats (`original/`, `onnx/`); of a data
    set all files but pickles."""
    exclude: tuple[str, ...] = ()
    """Patterns of files to leave out in addition."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RepositoryRequest:
    """Model or data set that a `download` stage provides."""

    kind: RepositoryKind
    repo: str
    revision: str | None
    include: tuple[str, ...]
    exclude: tuple[str, ...]

    @property
    def folder(self) -> str:
        """Return its folder below the stage's output, which is its path in the hub's addresses."""
        return self.repo if self.kind == "model" else f"datasets/{self.repo}"

    @property
    def cache_folder(self) -> str:
        """Return the name of its folder in a cache of huggingface_hub."""
        return "--".join([f"{self.kind}s", *self.repo.split("/")])


@dataclass(frozen=True, kw_only=True, slots=True)
class DownloadConfig(CheckedConfig):
    """Models and data sets from the Hugging Face hub, for the stages that come after."""

    models: tuple[str | HubRepository, ...] = ()
    """Models: names (`Qwen/Qwen3-VL-2B-Instruct`), or mappings with a `revision` or patterns. Other
    stages name the folder of a model as `${STAGE.output_dir}/OWNER/NAME`."""
    datasets: tuple[str | HubRepository, ...] = ()
    """Data sets, in the same way. Their folders are `${STAGE.output_dir}/datasets/OWNER/NAME`."""
    mirror: InputPath | None = None
    """Folder that has the repositories already, so that no network is needed: as `OWNER/NAME` and
    `datasets/OWNER/NAME`, or as a cache of the hub (`HF_HOME/hub`). The output folder gets links
    to it."""
    num_threads: Count = 8
    """Files that are downloaded at the same time."""

    def problems(self) -> Iterator[str]:
        """Yield broken rules."""
        if not self.models and not self.datasets:
            yield "models and datasets are empty: name at least one repository of the hub"
        seen = set()
        for key, given in (("models", self.models), ("datasets", self.datasets)):
            for number, entry in enumerate(given):
                repo = entry if isinstance(entry, str) else entry.repo
                if not _NAME.fullmatch(repo):
                    yield (
                        f"{key}.{number} is {repo}, which is no name on the hub: write OWNER/NAME, "
                        "without the address of the hub"
                    )
                if (key, repo) in seen:
                    yield f"{key}.{number} is {repo}, which is named twice: name it once"
                seen.add((key, repo))


def requests_of(config: DownloadConfig) -> list[RepositoryRequest]:
    """Return all repositories that a stage provides, models first."""
    requests = []
    kinds: tuple[tuple[RepositoryKind, tuple[str | HubRepository, ...]], ...] = (
        ("model", config.models),
        ("dataset", config.datasets),
    )
    for kind, given in kinds:
        for entry in given:
            chosen = HubRepository(repo=entry) if isinstance(entry, str) else entry
            requests.append(
                RepositoryRequest(
                    kind=kind,
                    repo=chosen.repo,
                    revision=chosen.revision,
                    include=chosen.include,
                    exclude=chosen.exclude,
                )
            )
    return requests
