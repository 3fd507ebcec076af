"""Whether the first rows of a manifest name images where the spec lets them lie. PURE."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from slurm_jobs.common.errors import Problem
from slurm_jobs.common.manifests.values import RowOptions
from slurm_jobs.spec.checks.manifest_checks import MANIFESTS, columns_of
from slurm_jobs.spec.files import Files
from slurm_jobs.spec.first_images import images_outside
from slurm_jobs.spec.markers import MarkedString
from slurm_jobs.spec.plain_text import printable, shortened
from slurm_jobs.spec.validation import path_text, problem_at
from slurm_jobs.spec.yaml_values import Path, YamlDocument


def _read_names(place: Path, manifest: str, document: YamlDocument, files: Files) -> list[str]:
    """Names of the images of the first rows, as the job reads them."""
    options = RowOptions(columns=columns_of(place, document))
    rows = files.first_rows(manifest, options)
    return [image.value for row in rows for image in row.images if image.data is None]


def image_place_problems(
    marked: Sequence[MarkedString], document: YamlDocument, files: Files
) -> list[Problem]:
    """Manifests of which the job would reject rows, at their lines, with the key to set.

    Where the key is set, somebody has thought of it: what else lies elsewhere is left to the job.
    """
    resolved = {item.path: item.resolved for item in marked if item.given}
    problems = []
    for path, manifest in resolved.items():
        if path[2:] not in MANIFESTS or (*path[:-1], "images_within") in resolved:
            continue
        root = resolved.get((*path[:-1], "image_root"), posixpath.dirname(manifest))
        if not (manifest.startswith("/") and root.startswith("/")):
            continue
        outside = images_outside(
            manifest,
            files.beginning(manifest),
            root,
            also=_read_names(path, manifest, document, files),
        )
        if outside is not None:
            name, folder = shortened(printable(outside[0])), printable(outside[1])
            message = (
                f"{path_text(path)}: {manifest} names the image {name}, which lies outside of "
                f"{root}; if this list may bring such files into the data set, set `images_within` "
                "beside it, to a folder that holds them all; those of the first rows lie in "
                f"{folder}"
            )
            problems.append(problem_at(document, path, message))
    return problems
