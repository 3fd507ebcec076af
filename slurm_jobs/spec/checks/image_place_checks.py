"""Whether the images of a manifest's first rows exist, in the folder that they must be in. PURE."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slurm_jobs.common.errors import Problem
from slurm_jobs.common.image_places import lies_within, place_of
from slurm_jobs.common.manifests.values import RowOptions
from slurm_jobs.common.row_sizes import spread
from slurm_jobs.spec.checks.manifest_checks import MANIFESTS, columns_of
from slurm_jobs.spec.files import Files
from slurm_jobs.spec.markers import MarkedString
from slurm_jobs.spec.plain_text import printable, shortened
from slurm_jobs.spec.validation import path_text, problem_at
from slurm_jobs.spec.yaml_values import Path, YamlDocument

_KEY = "images_within"
_MAX_LOOKED_FOR = 20
"""Images whose files are looked for, for one manifest."""


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
            f"bring such files into the data set, set `{_KEY}` beside it, to a folder that holds "
            f"them all; those of the first rows lie in {printable(folder)}"
        )
        problems.append(problem_at(document, images.path, message))
    return problems


def missing_image_notes(
    marked: Sequence[MarkedString], document: YamlDocument, files: Files
) -> list[Problem]:
    """Return the manifests of whose images none exists, as far as this machine can see."""
    notes = []
    for images in _named_images(marked, document, files):
        looked_for = [images.files[place] for place in spread(len(images.files), _MAX_LOOKED_FOR)]
        if not looked_for or not all(files.lacks(file) for _, file in looked_for):
            continue
        name, file = looked_for[0]
        num = len(looked_for)
        missing = f"none of {num} images exists" if num > 1 else "its image does not exist"
        message = (
            f"{path_text(images.path)}: {images.manifest}: {missing}; {_shown(name)} means "
            f"{printable(file)}. Set image_root to the folder that these names start from"
        )
        notes.append(problem_at(document, images.path, message))
    return notes


def _named_images(
    marked: Sequence[MarkedString], document: YamlDocument, files: Files
) -> Iterator[_NamedImages]:
    resolved = {item.path: item.resolved for item in marked if item.given}
    for path, manifest in resolved.items():
        root = resolved.get((*path[:-1], "image_root"), posixpath.dirname(manifest))
        if path[2:] in MANIFESTS and manifest.startswith("/") and root.startswith("/"):
            options = RowOptions(columns=columns_of(path, document))
            names = [
                image.value
                for row in files.first_rows(manifest, options)
                for image in row.images
                if image.data is None and not image.problem and image.value
            ]
            placed = [(name, place_of(name, root)[0]) for name in names]
            yield _NamedImages(path=path, manifest=manifest, root=root, files=placed)


def _shown(name: str) -> str:
    return shortened(printable(name))
