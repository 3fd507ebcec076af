"""Rows of a manifest that cannot be used, and whether the stage fails because of them. PURE."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction

from slurm_jobs.formats.configs.stages import ConsolidateConfig, PreprocessConfig
from slurm_jobs.formats.file_signatures import begins_as_image
from slurm_jobs.formats.manifests.messages import ManifestRow
from slurm_jobs.spec.checked_spec import CheckedSpec, Finding
from slurm_jobs.spec.checks.data.image_files import (
    MAX_CHECKED_IMAGES,
    NamedImages,
    named_images,
    shown_name,
)
from slurm_jobs.spec.checks.data.manifests import (
    has_all_rows,
    is_listed,
    reason_lines,
    row_problem,
)
from slurm_jobs.spec.graph import may_be_made

_MAX_REASONS = 10


def unusable_row_findings(spec: CheckedSpec) -> Iterator[Finding]:
    """Yield the manifests of which some first rows cannot be used.

    It is an error if the stage certainly fails: all rows were read, no earlier stage can write
    others, `max_reject_share` does not allow so many, and it counts for all rows together. A row
    whose image is missing or not an image counts, too. Manifests without a usable row are left to
    the other checks. Of several manifests each is noted alone, because the share is of all rows.
    """
    values, configs = spec.document.value, spec.configs
    limit = values.get("limit") if isinstance(values, Mapping) else None
    merging = [config for config in configs.values() if isinstance(config, ConsolidateConfig)]
    for images in named_images(spec):
        stage, rows = str(images.path[1]), images.rows
        config = configs.get(stage)
        config = config if isinstance(config, PreprocessConfig) else None
        # The first rows of a table end after a number of bytes that its size does not determine.
        is_table = spec.files.table(images.manifest) is not None
        is_whole = not is_table and has_all_rows(images.manifest, rows, spec.files)
        is_alone = not is_listed(images.path)
        if is_alone and config is not None and isinstance(limit, int) and 0 < limit < len(rows):
            rows, is_whole = rows[:limit], True
        reasons: dict[str, list[str]] = {}
        for row in rows:
            if problem := row_problem(row):
                reasons.setdefault(problem, []).append(f"{row.origin}: {problem}")
        num_bad = sum(map(len, reasons.values()))
        if num_bad == len(rows):
            continue
        has_bad = num_bad > 0
        is_final = is_alone and is_whole and not may_be_made(spec, stage)
        max_images = None if config is None else config.max_images
        if is_final:
            for kind, place in _unusable_images(rows, images, max_images):
                reasons.setdefault(kind, []).append(place)
                num_bad += 1
        which, remedy = "" if is_whole else "the first ", ""
        fails = False
        is_final &= bool(merging) or not spec.views[stage].has_array  # a slice counts its own rows
        if config is not None:  # `consolidate` may allow more
            shares = [config.max_reject_share, *(other.max_reject_share for other in merging)]
            share = max(share for share in shares if share is not None)
            allowed = math.ceil(Fraction(str(share)) * len(rows))
            fails = num_bad > allowed
            if fails:
                remedy = (
                    f". The stage {'fails' if is_final else 'would fail with rows like these'}, "
                    f"because max_reject_share: {share:g} allows {allowed:,}. Raise "
                    "max_reject_share, or fix or remove these rows"
                )
        if has_bad or fails:  # images alone are noted elsewhere
            count = f"{num_bad:,} of {which}{len(rows):,} rows cannot be used"
            lines = reason_lines(reasons, _MAX_REASONS)
            message = f"{images.manifest}: {count}{remedy}:{lines}"
            is_error = fails and is_final and spec.files.needs_images
            yield spec.problem(images.path, message), is_error


def _unusable_images(
    rows: Sequence[ManifestRow], images: NamedImages, max_images: int | None
) -> Iterator[tuple[str, str]]:
    """Yield a kind and a message for each usable row with a file that is missing or not an image.

    Nothing if there are too many images to check. Rows with more than `max_images` are rejected as
    too long, and do not count.
    """
    if len(images.names) > MAX_CHECKED_IMAGES:
        return
    missing = {
        name
        for name, file in images.names
        if images.is_missing(name, file) and not images.may_be_on_nodes(file)
    }
    for row in rows:
        if row_problem(row) or (max_images is not None and len(row.images) > max_images):
            continue
        for image in row.images:
            head, kind = images.head(image), ""
            if image.data is None and image.value in missing:
                kind = "does not exist"
            elif head is not None and not begins_as_image(head):
                kind = "is not an image file"
            if kind:
                yield kind, f"{row.origin}: {shown_name(image.value)} {kind}"
                break
