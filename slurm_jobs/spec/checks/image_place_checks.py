"""Whether the images of a manifest's first rows exist, in the folder that they must be in. PURE."""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_jobs.common.errors import Problem
from slurm_jobs.common.image_places import lies_within, missing_hint, normal_forms, place_of
from slurm_jobs.common.manifests.values import RowOptions
from slurm_jobs.common.row_sizes import spread
from slurm_jobs.common.stage_config.preprocess import PreprocessConfig
from slurm_jobs.common.truncation import truncated
from slurm_jobs.spec.checks.manifest_checks import MANIFESTS, columns_of, row_problem
from slurm_jobs.spec.files import Files
from slurm_jobs.spec.graph import StageView
from slurm_jobs.spec.markers import MarkedString
from slurm_jobs.spec.plain_text import printable, shortened
from slurm_jobs.spec.validation import path_text, problem_at
from slurm_jobs.spec.yaml_values import Path, YamlDocument

_KEY = "images_within"
_MAX_IMAGES = 100
"""Images of one manifest whose files must exist."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _NamedImages:
    """Images that the first rows of a manifest name."""

    path: Path
    """Of the manifest, in the spec."""
    manifest: str
    root: str
    """Absolute folder that relative paths start from."""
    files: Sequence[tuple[str, str]]
    """Each name as the manifest has it, and the file or archive that it means."""


def image_place_problems(
    marked: Sequence[MarkedString], document: YamlDocument, files: Files
) -> list[Problem]:
    """Return the manifests of which the job would reject rows, with the key to set.

    A spec that has this key may let in what it wants: the job judges the rest.
    """
    is_let_in = {item.path[:-1] for item in marked if item.given and item.path[-1:] == (_KEY,)}
    problems = []
    for images in _named_images(marked, document, files):
        elsewhere = [item for item in images.files if not lies_within(item[1], images.root)]
        if not elsewhere or images.path[:-1] in is_let_in:
            continue
        folder = posixpath.commonpath([posixpath.dirname(file) for _, file in elsewhere])
        message = (
            f"{path_text(images.path)}: {images.manifest} names the image "
            f"{_shown(elsewhere[0][0])}, which lies outside of {images.root}; if this list may "
            f"bring such files into the data set, set `{_KEY}` next to it, to a folder that "
            f"holds them all; those of the first rows are in {printable(folder)}"
        )
        problems.append(problem_at(document, images.path, message))
    return problems


def missing_image_problems(
    views: Mapping[str, StageView],
    configs: Mapping[str, Any],
    marked: Sequence[MarkedString],
    document: YamlDocument,
    files: Files,
    *,
    is_fatal: bool,
) -> list[Problem]:
    """Return the manifests that name missing images: the errors, or else the notes.

    It is an error if none of the images exists. It is a note where an earlier stage may make them,
    where their folder cannot be seen from here, where `max_reject_share: 1` lets the job lose any
    number of rows, and for commands that submit nothing.
    """
    problems = []
    for images in _named_images(marked, document, files):
        chosen = [images.files[place] for place in spread(len(images.files), _MAX_IMAGES)]
        missing = [item for item in chosen if _is_missing(*item, images.root, files)]
        if not missing:
            continue
        name, file = missing[0]
        stage = str(images.path[1])
        config = configs.get(stage)
        loses_any = isinstance(config, PreprocessConfig) and config.max_reject_share == 1
        folder = images.root if lies_within(file, images.root) else posixpath.dirname(file)
        may_come = bool(views[stage].parents) or not files.is_folder(folder)
        is_all = len(missing) == len(chosen)
        if is_fatal == (is_all and files.needs_images and not (loses_any or may_come)):
            hint = missing_hint(name, functools.partial(_exists, root=images.root, files=files))
            remedy = hint or "set image_root to the folder that these names start from" * is_all
            message = (
                f"{path_text(images.path)}: {images.manifest}: "
                f"{_share_text(len(missing), len(chosen))}; {_shown(name)} means "
                f"{printable(truncated(file))}{remedy and f': {remedy}'}"
            )
            problems.append(problem_at(document, images.path, message))
    return problems


def _share_text(num_missing: int, num_images: int) -> str:
    if num_missing < num_images:
        return f"{num_missing} of {num_images} images do not exist"
    return f"none of {num_images} images exists" if num_images > 1 else "its image does not exist"


def _is_missing(name: str, file: str, root: str, files: Files) -> bool:
    """Check whether neither the name nor another normal form of it is a file."""
    forms = normal_forms(name)
    return files.lacks(file) and not any(_exists(form, root, files) for form in forms)


def _exists(name: str, root: str, files: Files) -> bool:
    return files.holds(place_of(name, root)[0])


def _named_images(
    marked: Sequence[MarkedString], document: YamlDocument, files: Files
) -> Iterator[_NamedImages]:
    resolved = {item.path: item.resolved for item in marked if item.given}
    for path, manifest in resolved.items():
        if path[2:] not in MANIFESTS or not manifest.startswith("/"):
            continue
        root = resolved.get((*path[:-1], "image_root")) or files.image_root_of(manifest)
        if root.startswith("/"):
            names = [
                image.value
                for row in files.first_rows(
                    manifest, RowOptions(columns=columns_of(path, document))
                )
                if not row_problem(row)
                for image in row.images
                if image.data is None
            ]
            placed = [(name, place_of(name, root)[0]) for name in names]
            yield _NamedImages(path=path, manifest=manifest, root=root, files=placed)


def _shown(name: str) -> str:
    return shortened(printable(name))
