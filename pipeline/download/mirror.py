"""Links to repositories in a folder that has them already."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from pipeline.download.repository_files import clear_place
from pipeline.download.repository_plan import RepositoryPaths
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.base.files import make_private_dir
from slurm_jobs.base.regular_files import read_text
from slurm_jobs.formats.configs.download import RepositoryRequest

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class _MirroredFolder:
    path: Path
    commit: str | None
    """None if the layout does not tell it."""


def link_mirrored(mirror: Path, paths: RepositoryPaths) -> str | None:
    """Link a repository of a mirror into the output, and return its commit if that is known.

    Raises:
        StageConfigError: the mirror does not have the repository, or not that revision.
    """
    request = paths.request
    mirrored = _find(mirror, request)
    first = "config.json" if request.kind == "model" else "*"
    if next(mirrored.path.glob(first), None) is None:
        lacking = "no config.json" if request.kind == "model" else "no files"
        message = f"mirror: {mirrored.path} has {lacking}; copy the repository there again"
        raise StageConfigError(message)
    if request.revision is not None and mirrored.commit is None:
        log.warning(
            "%s: whether it is revision %s of %s is not known",
            mirrored.path, request.revision, request.folder,
        )  # fmt: skip
    clear_place(paths.folder)
    make_private_dir(paths.folder.parent)
    paths.folder.symlink_to(mirrored.path.resolve(), target_is_directory=True)
    return mirrored.commit


def _find(mirror: Path, request: RepositoryRequest) -> _MirroredFolder:
    plain = mirror / request.folder
    if plain.is_dir():
        return _MirroredFolder(path=plain, commit=None)
    cache = mirror / request.cache_folder
    revision = request.revision or "main"
    if not cache.is_dir():
        message = (
            f"mirror: {mirror} has neither {request.folder}/ nor {request.cache_folder}/. "
            f"Download the repository there where there is a network: `hf download {request.repo} "
            f"--repo-type {request.kind} --local-dir {plain}`"
        )
        raise StageConfigError(message)
    commit = revision
    reference = cache / "refs" / revision
    if reference.is_file():
        commit = read_text(reference).strip()
    snapshot = cache / "snapshots" / commit
    if not snapshot.is_dir():
        names = ", ".join(sorted(path.name for path in (cache / "snapshots").glob("*"))) or "none"
        message = (
            f"mirror: {cache} does not have the revision {revision}; it has the commits {names}"
        )
        raise StageConfigError(message)
    return _MirroredFolder(path=snapshot, commit=commit)
