"""Plan of a download: the commit of a repository, and its files as the hub describes them.

It is stored before the first file is downloaded, so that every later attempt downloads the same
commit, even if the branch has moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi
from huggingface_hub.hf_api import RepoFile

from pipeline.download.file_choice import chosen_names
from slurm_jobs.base.files import make_private_dir, read_json, write_json_atomic
from slurm_jobs.formats.configs.download import RepositoryRequest
from slurm_jobs.formats.records.record_json import record_from_json, record_to_json

_WORK_DIR = ".downloads"
_TIMEOUT_S = 30.0


@dataclass(frozen=True, kw_only=True, slots=True)
class HubFile:
    """File of a repository at one commit."""

    name: str
    """Path in the repository."""
    num_bytes: int
    sha256: str | None
    """SHA-256 of its content, for a file in the hub's large storage."""
    git_blob: str
    """Git's hash of its content, for any other file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RepositoryPlan:
    """Repository at one commit, with the files that are downloaded."""

    request: RepositoryRequest
    commit: str
    files: tuple[HubFile, ...]

    @property
    def num_bytes(self) -> int:
        """Return the size of all files."""
        return sum(file.num_bytes for file in self.files)


@dataclass(frozen=True, kw_only=True, slots=True)
class RepositoryPaths:
    """Paths of a repository in the stage's output folder."""

    output_dir: Path
    request: RepositoryRequest

    @property
    def folder(self) -> Path:
        """Return the folder that other stages read; it exists only once it is complete."""
        return self.output_dir / self.request.folder

    @property
    def plan(self) -> Path:
        """Return the file with the plan."""
        return self._work_dir / "plan.json"

    @property
    def files(self) -> Path:
        """Return the folder that is filled, and then becomes `folder`."""
        return self._work_dir / "files"

    @property
    def _work_dir(self) -> Path:
        return self.output_dir / _WORK_DIR / self.request.cache_folder


def stored_plan(paths: RepositoryPaths) -> RepositoryPlan | None:
    """Return the plan of an earlier attempt; None without one, or if it is of another request."""
    try:
        plan = record_from_json(RepositoryPlan, read_json(paths.plan))
    except FileNotFoundError:
        return None
    return plan if plan.request == paths.request else None


def plan_repository(paths: RepositoryPaths) -> RepositoryPlan:
    """Ask the hub for the commit and the files of a repository, and store the answer.

    Raises:
        StageConfigError: the request matches no usable files.
        OSError, ValueError, HTTPError: the hub did not answer, or refused.
    """
    request, hub = paths.request, HfApi()
    info = hub.repo_info(
        request.repo, repo_type=request.kind, revision=request.revision, timeout=_TIMEOUT_S
    )
    commit = info.sha
    assert commit is not None  # only answers that leave it out on request lack it
    entries = {}
    for entry in hub.list_repo_tree(
        request.repo, repo_type=request.kind, revision=commit, recursive=True
    ):
        if isinstance(entry, RepoFile):
            entries[entry.path] = entry
    files = []
    for name in chosen_names(request, list(entries)):
        entry = entries[name]
        sha256 = None if entry.lfs is None else entry.lfs.sha256
        files.append(
            HubFile(name=name, num_bytes=entry.size, sha256=sha256, git_blob=entry.blob_id)
        )
    plan = RepositoryPlan(request=request, commit=commit, files=tuple(files))
    make_private_dir(paths.plan.parent)
    write_json_atomic(paths.plan, record_to_json(plan))
    return plan
