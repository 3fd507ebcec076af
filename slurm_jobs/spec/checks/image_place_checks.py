"""Check that the images of a manifest's first rows exist in an allowed folder. PURE."""

from __future__ import annotations

import functools
import math
import posixpath
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from slurm_jobs.common.errors import Problem
from slurm_jobs.common.image_places import lies_within, missing_hint, normal_forms, place_of
from slurm_jobs.common.manifests.rows import ManifestRow, RowOrigin
from slurm_jobs.common.manifests.values import RowOptions
from slurm_jobs.common.row_sizes import spread
from slurm_jobs.common.stage_config.consolidate import ConsolidateConfig
from slurm_jobs.common.stage_config.preprocess import PreprocessConfig
from slurm_jobs.common.truncation import truncated
from slurm_jobs.spec.checks.manifest_checks import MANIFESTS, columns_of, has_all_rows, row_problem
from slurm_jobs.spec.files import Files
from slurm_jobs.spec.graph import StageView, ancestors
from slurm_jobs.spec.markers import MarkedString
from slurm_jobs.spec.plain_text import printable, shortened
from slurm_jobs.spec.validation import path_text, problem_at
from slurm_jobs.spec.value_types import BUILTIN_STAGES
from slurm_jobs.spec.yaml_values import Path, YamlDocument

_KEY = "images_within"
_MAX_IMAGES = 100
"""Number of images of one manifest whose files are checked."""
_MAX_REASONS = 10
DOWNLOADER = "recipes:models"
"""`run` of the stage that `init` writes to download a model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _NamedImages:
    """Images that the first rows of a manifest name."""

    path: Path
    """Path of the manifest's key in the spec."""
    manifest: str
    root: str
    """Absolute folder that relative paths start from."""
    files: Sequence[tuple[str, str]]
    """Names in the manifest, with the file or archive that each refers to."""


def image_place_problems(
    marked: Sequence[MarkedString], document: YamlDocument, files: Files
) -> list[Problem]:
    """Return the manifests of which the job would reject rows, with the key to set.

    A spec that sets this key may allow any folder: the job checks the rest.
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
            f"{_shown(elsewhere[0][0])}, which is outside of {images.root}; if this list may "
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

    It is an error if none of the images exists. It is a note if an earlier stage may create them,
    if their folder is not visible here, if `max_reject_share: 1` lets the job lose any number of
    rows, and for commands that submit nothing.
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
        may_come = may_be_made(views, stage) or not files.is_folder(folder)
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


def unusable_row_problems(
    views: Mapping[str, StageView],
    configs: Mapping[str, Any],
    marked: Sequence[MarkedString],
    document: YamlDocument,
    files: Files,
    *,
    is_fatal: bool,
) -> list[Problem]:
    """Return the manifests of which some first rows cannot be used: the errors, or the notes.

    It is an error if the stage certainly fails: all rows were read, no earlier stage can write
    others, `max_reject_share` does not allow so many, and it counts for all rows together. A row
    whose image does not exist counts, too. Manifests without a usable row are left to the other
    checks.
    """
    problems = []
    adds_up = any(isinstance(config, ConsolidateConfig) for config in configs.values())
    for images in _named_images(marked, document, files):
        stage = str(images.path[1])
        config = configs.get(stage)
        config = config if isinstance(config, PreprocessConfig) else None
        rows = files.first_rows(
            images.manifest, RowOptions(columns=columns_of(images.path, document))
        )
        # The first rows of a table end after a number of bytes that its size does not determine.
        is_table = files.table(images.manifest) is not None
        is_whole = not is_table and has_all_rows(images.manifest, rows, files)
        limit = document.value.get("limit") if isinstance(document.value, Mapping) else None
        if config is not None and isinstance(limit, int) and 0 < limit < len(rows):
            rows, is_whole = rows[:limit], True
        bad = [(row.origin, problem) for row in rows if (problem := row_problem(row))]
        if len(bad) == len(rows):
            continue
        num_missing = 0
        is_final = is_whole and not may_be_made(views, stage)
        if is_final:
            max_images = None if config is None else config.max_images
            num_missing = _num_rows_without_images(rows, images, files, max_images)
        counts = Counter(problem for _, problem in bad)
        reasons = _listed_reasons(counts, {problem: origin for origin, problem in reversed(bad)})
        if num_missing:
            reasons += f"{'; ' * bool(bad)}{num_missing:,} x an image does not exist"
        num_bad, which = len(bad) + num_missing, "" if is_whole else "the first "
        message = f"{num_bad:,} of {which}{len(rows):,} rows cannot be used: {reasons}"
        share = None if config is None else _allowed_share(config, configs)
        fails = share is not None and num_bad > math.ceil(Fraction(str(share)) * len(rows))
        if not (bad or fails):
            continue  # missing images alone are noted elsewhere
        is_final &= adds_up or not views[stage].has_array  # a slice alone counts its own rows
        if share is not None and fails:
            message += (
                f". The stage {'fails' if is_final else 'would fail with rows like these'}, "
                f"because max_reject_share: {share:g} allows "
                f"{math.ceil(Fraction(str(share)) * len(rows)):,}; fix or remove these rows, or "
                "raise max_reject_share"
            )
        if is_fatal == (fails and is_final and files.needs_images):
            text = f"{path_text(images.path)}: {images.manifest}: {message}"
            problems.append(problem_at(document, images.path, text))
    return problems


def _allowed_share(config: PreprocessConfig, configs: Mapping[str, Any]) -> float:
    """Return the share of rows that may be lost; `consolidate` may allow more."""
    shares = [c.max_reject_share for c in configs.values() if isinstance(c, ConsolidateConfig)]
    return max([config.max_reject_share, *(share for share in shares if share is not None)])


def _num_rows_without_images(
    rows: Sequence[ManifestRow], images: _NamedImages, files: Files, max_images: int | None
) -> int:
    """Return how many usable rows name a missing image; 0 if there are too many to check.

    Rows with more than `max_images` are rejected as too long, and do not count.
    """
    if len(images.files) > _MAX_IMAGES:
        return 0
    placed = dict(images.files)

    def is_gone(name: str, file: str) -> bool:
        folder = images.root if lies_within(file, images.root) else posixpath.dirname(file)
        return files.is_folder(folder) and _is_missing(name, file, images.root, files)

    return sum(
        any(
            image.data is None and is_gone(image.value, placed[image.value]) for image in row.images
        )
        for row in rows
        if not row_problem(row) and (max_images is None or len(row.images) <= max_images)
    )


def _listed_reasons(counts: Counter[str], first: Mapping[str, RowOrigin]) -> str:
    """Return `2 x REASON (the first: m.jsonl:4); ...`, those of most rows first."""
    shown = [
        f"{number:,} x {problem} ({'the first: ' if number > 1 else ''}{first[problem]})"
        for problem, number in counts.most_common(_MAX_REASONS)
    ]
    left = len(counts) - _MAX_REASONS
    more = f"; {left} other reason{'s' if left > 1 else ''}" if left > 0 else ""
    return "; ".join(shown) + more


def may_be_made(views: Mapping[str, StageView], stage: str) -> bool:
    """Check whether a stage before this one may create files that a manifest names.

    Built-in stages write elsewhere, and the one that `init` writes only downloads models.
    """
    runs = {views[name].run for name in ancestors(views, stage)}
    return not runs <= {*BUILTIN_STAGES, DOWNLOADER}


def _share_text(num_missing: int, num_images: int) -> str:
    if num_missing < num_images:
        return f"{num_missing} of {num_images} images do not exist"
    return f"none of {num_images} images exists" if num_images > 1 else "its image does not exist"


def _is_missing(name: str, file: str, root: str, files: Files) -> bool:
    """Check that neither the name nor another normal form of it is a file."""
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
