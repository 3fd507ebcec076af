"""Check of the folders of `download` stages: named as they will be, and in the mirror. PURE."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from slurm_jobs.base.errors import Problem
from slurm_jobs.base.texts.did_you_mean import did_you_mean
from slurm_jobs.formats.configs.output_references import REFERENCE, referenced_stage
from slurm_jobs.spec.checked_spec import CheckedSpec
from slurm_jobs.spec.yaml.document import KeyPath

if TYPE_CHECKING:
    from slurm_jobs.formats.configs.download import RepositoryRequest

DOWNLOAD_RUN = "download"


def downloading_stage(spec: CheckedSpec, given: str) -> tuple[str, str] | None:
    """Return the `download` stage that a path begins with, and the rest of the path, if it does."""
    match = REFERENCE.match(given)
    stage = referenced_stage(match[1]) if match is not None else None
    if match is None or stage is None or stage not in spec.configs:
        return None
    if spec.views[stage].run != DOWNLOAD_RUN:
        return None
    return stage, given[match.end() :].strip("/")


def _requests(spec: CheckedSpec, stage: str) -> list[RepositoryRequest]:
    from slurm_jobs.formats.configs.download import requests_of  # most specs have no such stage

    return requests_of(spec.configs[stage])


def downloaded_repository(spec: CheckedSpec, stage: str, path: str) -> RepositoryRequest | None:
    """Return the repository of a `download` stage in which a path below its output is."""
    for request in _requests(spec, stage):
        if f"{path}/".startswith(f"{request.folder}/"):
            return request
    return None


def mirror_of(spec: CheckedSpec, stage: str) -> str | None:
    """Return the folder of a stage's `mirror`; None without one."""
    place: KeyPath = ("stages", stage, "config", "mirror")
    return next((item.resolved for item in spec.expanded if item.path == place), None)


def downloaded_folder_problems(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield paths in no repository of their `download` stage, and what a mirror lacks."""
    for item in spec.expanded:
        target = downloading_stage(spec, item.given)
        if target is None or downloaded_repository(spec, *target) is not None:
            continue
        stage, path = target
        folders = [request.folder for request in _requests(spec, stage)]
        message = (
            f"stage `{stage}` downloads no `{path}`{did_you_mean(path, folders)} (below its output "
            f"are {', '.join(folders)})"
        )
        yield spec.problem(item.path, message)
    for name in spec.configs:
        mirror = mirror_of(spec, name) if spec.views[name].run == DOWNLOAD_RUN else None
        if mirror is None or not spec.files.holds(mirror):
            continue
        for request in _requests(spec, name):
            if all(
                spec.files.lacks(f"{mirror}/{folder}")
                for folder in (request.folder, request.cache_folder)
            ):
                message = (
                    f"{mirror} has neither {request.folder}/ nor {request.cache_folder}/; "
                    "download the repository there, or leave mirror out"
                )
                yield spec.problem(("stages", name, "config", "mirror"), message)
