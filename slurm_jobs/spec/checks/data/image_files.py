"""Check that the images of a manifest's first rows exist in an allowed folder. PURE."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from slurm_jobs.base.errors import Problem
from slurm_jobs.base.texts.truncation import truncated
from slurm_jobs.base.written_values import printable, shortened
from slurm_jobs.formats.configs.stages import PreprocessConfig
from slurm_jobs.formats.file_signatures import begins_as_image
from slurm_jobs.formats.manifests.image_paths import (
    ABSOLUTE_HINT,
    is_within,
    missing_hint,
    normal_forms,
    place_of,
)
from slurm_jobs.formats.manifests.messages import Content, ManifestRow
from slurm_jobs.formats.manifests.row_sizes import pick_rows, spread
from slurm_jobs.spec.checked_spec import CheckedSpec, Finding
from slurm_jobs.spec.checks.data.image_sizes import MAX_MEASURED_ROWS
from slurm_jobs.spec.checks.data.manifests import (
    holder_of,
    image_root,
    is_listed,
    is_manifest,
    row_options,
    row_problem,
)
from slurm_jobs.spec.graph import may_be_made
from slurm_jobs.spec.spec_files import Files
from slurm_jobs.spec.yaml.document import KeyPath

_KEY = "images_within"
MAX_CHECKED_IMAGES = 100
"""Number of images of one manifest whose files are checked."""
_SHOWN_BYTES = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedImages:
    """First rows of a manifest, and the images that the usable ones name."""

    path: KeyPath
    """Path of the manifest's key in the spec."""
    manifest: str
    rows: Sequence[ManifestRow]
    root: str
    """Absolute folder that relative paths start from."""
    names: Sequence[tuple[str, str]]
    """Names in the manifest, with the file or archive that each refers to."""
    files: Files
    runs_here: bool
    """True if the jobs run on this machine."""

    def may_be_on_nodes(self, file: str) -> bool:
        """Check whether a file may be in a folder outside of the root that only the nodes see."""
        is_hidden = not self.files.is_folder(posixpath.dirname(file))
        return is_hidden and not self.runs_here and not is_within(file, self.root)

    def is_missing(self, name: str, file: str) -> bool:
        """Check that neither the name nor another normal form of it is a file."""
        return self.files.lacks(file) and not any(map(self.exists, normal_forms(name)))

    def exists(self, name: str) -> bool:
        """Check whether a name refers to a file."""
        return self.files.holds(place_of(name, self.root)[0])

    def head(self, image: Content) -> bytes | None:
        """Return the first bytes of an image; None if it is not read."""
        return self.files.image_head(image, self.root)


def named_images(spec: CheckedSpec) -> Iterator[NamedImages]:
    """Yield the manifests with an absolute path, and the images that their first rows name."""
    files, resolved = spec.files, {item.path: item.resolved for item in spec.marked if item.given}
    for path, manifest in resolved.items():
        if not is_manifest(path) or not manifest.startswith("/"):
            continue
        root = image_root(path, manifest, resolved, files)
        if root.startswith("/"):
            rows = files.first_rows(manifest, row_options(spec, path))
            usable = (row for row in rows if not row_problem(row))
            names = [i.value for row in usable for i in row.images if i.data is None]
            placed = [(name, place_of(name, root)[0]) for name in names]
            yield NamedImages(
                path=path,
                manifest=manifest,
                rows=rows,
                root=root,
                names=placed,
                files=files,
                runs_here=spec.document.value.get("cluster") == "local",
            )


def image_place_problems(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield the manifests of which the job would reject rows, with the key to set.

    A spec that sets this key may allow any folder: the job checks the rest.
    """
    allowed = {item.path[:-1] for item in spec.marked if item.given and item.path[-1:] == (_KEY,)}
    for images in named_images(spec):
        elsewhere = [item for item in images.names if not is_within(item[1], images.root)]
        if elsewhere and holder_of(images.path) not in allowed:
            folder = posixpath.commonpath([posixpath.dirname(file) for _, file in elsewhere])
            fault = remedy = ""
            key = "`manifest`" if is_listed(images.path) else "it"
            if images.is_missing(*elsewhere[0]):
                fault = "does not exist here and "
                remedy = "correct the path, or write it relative to image_root; "
            message = (
                f"{images.manifest} names the image {shown_name(elsewhere[0][0])}, which {fault}is "
                f"outside of {images.root}; {remedy}if the data set may contain such "
                f"files, set `{_KEY}` next to {key} to a folder that contains them all; those of "
                f"the first rows are in {printable(folder)}"
            )
            yield spec.problem(images.path, message)


def missing_image_findings(spec: CheckedSpec) -> Iterator[Finding]:
    """Yield the manifests that name missing images.

    It is an error if none of the images exists. It is a note if an earlier stage may create them,
    if only the nodes may see their folder, if `max_reject_share: 1` lets the job lose any number
    of rows, and for commands that submit nothing.
    """
    for images in named_images(spec):
        chosen = [images.names[place] for place in spread(len(images.names), MAX_CHECKED_IMAGES)]
        missing = [item for item in chosen if images.is_missing(*item)]
        if not missing:
            continue
        name, file = missing[0]
        is_all = len(missing) == len(chosen)
        share = f"{len(missing)} of {len(chosen)} images do not exist"
        if is_all:
            many = f"none of {len(chosen)} images exists"
            share = many if len(chosen) > 1 else "its image does not exist"
        remedy = missing_hint(name, images.exists)
        remedy = remedy or "set image_root to the folder that these names start from" * is_all
        place = f"{printable(truncated(name))} does not exist here"
        if remedy != ABSOLUTE_HINT:
            place = f"{shown_name(name)} means {printable(truncated(file))}"
        message = f"{images.manifest}: {share}; {place}{remedy and f': {remedy}'}"
        is_error = is_all and not images.may_be_on_nodes(file) and _must_be_usable(spec, images)
        yield spec.problem(images.path, message), is_error


def foreign_image_findings(spec: CheckedSpec) -> Iterator[Finding]:
    """Yield the manifests that name files which are not images, by their first bytes.

    It is an error if none of those read is an image, with the exceptions of missing images. A
    broken header is left to the job.
    """
    for images in named_images(spec):
        rows = pick_rows([row for row in images.rows if not row.problem], MAX_MEASURED_ROWS)
        named = [(image, row.origin) for row in rows for image in row.images][:MAX_MEASURED_ROWS]
        heads = [(images.head(image), image, origin) for image, origin in named]
        read = [item for item in heads if item[0] is not None]
        foreign = [item for item in read if not begins_as_image(item[0] or b"")]
        if not foreign:
            continue
        head, image, origin = foreign[0]
        is_all = len(foreign) == len(read)
        share = f"{len(foreign)} of {len(read)} images checked are not image files"
        if is_all:
            many = f"none of {len(read)} images checked is an image file"
            share = many if len(read) > 1 else "its image is not an image file"
        fault = "is empty: copy or download such files again"
        if head:
            start = f"begins with {head[:_SHOWN_BYTES]!r}"
            fault = f"{start}: convert such files to PNG or JPEG, or correct the names"
        message = f"{images.manifest}: {share}; {shown_name(image.value)} ({origin}) {fault}"
        yield spec.problem(images.path, message), is_all and _must_be_usable(spec, images)


def _must_be_usable(spec: CheckedSpec, images: NamedImages) -> bool:
    """Check whether a run fails if none of the images of a manifest can be used now."""
    stage = str(images.path[1])
    config = spec.configs.get(stage)
    loses_any = isinstance(config, PreprocessConfig) and config.max_reject_share == 1
    return spec.files.needs_images and not loses_any and not may_be_made(spec, stage)


def shown_name(name: str) -> str:
    """Return the name of an image, printable and short."""
    return shortened(printable(name))
