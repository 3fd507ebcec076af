"""Whether the first rows of a manifest name images where the spec lets them lie. PURE."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from slurm_jobs.common.errors import Problem
from slurm_jobs.spec.files import Files
from slurm_jobs.spec.first_images import images_outside
from slurm_jobs.spec.markers import MarkedString
from slurm_jobs.spec.plain_text import printable, shortened
from slurm_jobs.spec.validation import path_text, problem_at
from slurm_jobs.spec.yaml_values import YamlDocument

_MANIFESTS = (("config", "manifest"), ("config", "evaluate", "manifest"))


def image_place_problems(
    marked: Sequence[MarkedString], document: YamlDocument, files: Files
) -> list[Problem]:
    """Manifests of which the job would reject rows, at their lines, with the key to set."""
    resolved = {item.path: item.resolved for item in marked if item.given}
    problems = []
    for path, manifest in resolved.items():
        if path[2:] not in _MANIFESTS or not manifest.startswith("/"):
            continue
        root = resolved.get((*path[:-1], "image_root"), posixpath.dirname(manifest))
        within = resolved.get((*path[:-1], "images_within"), root)
        if not (root.startswith("/") and within.startswith("/")):
            continue
        found = images_outside(manifest, files.beginning(manifest), root, within)
        if found is not None:
            name, folder = shortened(printable(found[0])), printable(found[1])
            message = (
                f"{path_text(path)}: {manifest} names the image {name}, which lies outside of "
                f"{within}; if this list may bring such files into the data set, set "
                f"`images_within: {folder}` beside it"
            )
            problems.append(problem_at(document, path, message))
    return problems
