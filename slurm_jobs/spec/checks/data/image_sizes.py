"""Check that the images of a manifest's first rows fit the limits of their `preprocess`.

The headers of some images give their sizes, and the processor's rules the number of tokens. Text
is not counted, so a row that is too long by its images alone is too long in the job. PURE.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from statistics import median

from slurm_jobs.formats.configs.stages import DEFAULT_MAX_PIXELS, PreprocessConfig
from slurm_jobs.formats.manifests.messages import Content, ManifestRow
from slurm_jobs.formats.manifests.row_sizes import ImageSize, image_tokens, measure, pick_rows
from slurm_jobs.formats.processors.image_plans import ImageRules, NativeImages, Size
from slurm_jobs.spec.checked_spec import CheckedSpec, Finding
from slurm_jobs.spec.checks.data.manifests import image_root, named_rows, row_options
from slurm_jobs.spec.spec_files import Files
from slurm_jobs.spec.yaml.document import KeyPath

MAX_MEASURED_ROWS = 200
"""Number of image headers read for one manifest: 0.2 seconds on a shared file system."""


def image_size_findings(spec: CheckedSpec) -> Iterator[Finding]:
    """Yield the limits of each `preprocess` that measured rows exceed.

    It is an error if all of them do. With a share of 1 the job may lose any number of rows, so this
    is a note. So it is for one of several manifests, because the share is of all rows.
    """
    files = spec.files
    resolved = {item.path: item.resolved for item in spec.expanded if item.given}
    for name, config in spec.configs.items():
        place: KeyPath = ("stages", name, "config")
        if not isinstance(config, PreprocessConfig):
            continue
        folder = resolved.get((*place, "processor"))
        rules, pixels = files.image_rules(folder) if folder else None, config.image_pixels
        if isinstance(rules, NativeImages) and pixels is not None:
            least, most = pixels.min or rules.min_pixels, pixels.max or rules.max_pixels
            rules = replace(rules, min_pixels=least, max_pixels=most)
        if rules is None and config.max_pixels >= DEFAULT_MAX_PIXELS:
            continue
        manifests = [item for item in named_rows(spec, name) if item.resolved.startswith("/")]
        for item in manifests:
            options = row_options(spec, item.path)
            rows = [row for row in files.first_rows(item.resolved, options) if not row.problem]
            root = image_root(item.path, item.resolved, resolved, files)
            size = functools.partial(_size_in, root, files)
            for key, message, is_fatal in _exceeded(rows, size, config, rules):
                if len(config.manifests) == 1:
                    yield spec.problem((*place, key), message), is_fatal
                else:
                    yield spec.problem(item.path, f"{item.resolved}: {message}"), False


def _size_in(root: str, files: Files, image: Content) -> Size | None:
    return files.image_size(image, root) if root.startswith("/") else None


def _exceeded(
    rows: Sequence[ManifestRow],
    size: ImageSize,
    config: PreprocessConfig,
    rules: ImageRules | None,
) -> Iterator[tuple[str, str, bool]]:
    """Yield key and message of each limit that rows exceed, and whether all rows do."""
    picked = pick_rows(rows, MAX_MEASURED_ROWS)
    num_images = [len(row.images) for row in picked if len(row.images) > config.max_images]
    within = [row for row in picked if len(row.images) <= config.max_images]
    measured = [
        row for row in (measure(row, size, most=MAX_MEASURED_ROWS) for row in within) if row
    ]
    if not num_images and not any(row.images for row in measured):
        return
    largest = [max(row.images, key=math.prod, default=(0, 0)) for row in measured]
    too_large = [image for image in largest if math.prod(image) > config.max_pixels]
    fitting = [
        row
        for row, image in zip(measured, largest, strict=True)
        if math.prod(image) <= config.max_pixels
    ]
    lengths = [image_tokens(row, rules) for row in fitting] if rules is not None else []
    long = [length for length in lengths if length > config.max_tokens]
    num_rows = len(num_images) + len(measured)

    def share(part: int) -> str:
        return f"{part:,} of {num_rows:,} rows checked ({100 * part / num_rows:.3g} %)"

    if too_large:
        width, height = max(too_large, key=math.prod)
        message = (
            f"{share(len(too_large))} have an image of more than {config.max_pixels:,} pixels "
            f"(the largest: {width} x {height}), and are rejected. max_pixels rejects image files "
            "and makes none smaller; image_pixels.max is the limit that images are resized to. "
            "Raise max_pixels, or leave it out"
        )
        is_all = len(too_large) == num_rows
        yield "max_pixels", message, is_all and config.max_reject_share < 1
    num_over = len(long) + len(num_images)
    end = _failure_clause(num_over, num_rows, config)
    is_all = num_over == num_rows and config.max_too_long_share < 1
    if num_images:
        message = (
            f"max_images is {config.max_images}, but {share(len(num_images))} have more images (at "
            f"most {max(num_images):,}){end}. Raise max_images"
        )
        yield "max_images", message, is_all
    if long:
        remedy = "Raise max_tokens"
        if isinstance(rules, NativeImages):
            tokens = config.max_tokens // 2 // max(1, *(len(row.images) for row in fitting))
            pixels = tokens * (rules.patch_size * rules.merge_size) ** 2
            if pixels >= rules.min_pixels:
                remedy = (
                    f"Set image_pixels.max ({pixels} gives at most {tokens:,} tokens an image), or "
                    "raise max_tokens"
                )
        message = (
            f"max_tokens is {config.max_tokens:,}, but {share(len(long))} are longer by their "
            f"images alone (median {median(lengths):,.0f} tokens, at most "
            f"{max(lengths):,}){end}. {remedy}"
        )
        yield "max_tokens", message, is_all


def _failure_clause(num_over: int, num_rows: int, config: PreprocessConfig) -> str:
    """Return a clause that the stage fails, if it does with rows like these."""
    if config.too_long == "error":
        return "; too_long: error fails the stage at the first of them"
    if num_over == num_rows:
        other = "if other rows are shorter, set max_too_long_share: 1"
        hint = f" ({other})" if config.max_too_long_share < 1 else ""
        return f"; none of them becomes a sample{hint}"
    if num_over <= math.ceil(Fraction(str(config.max_too_long_share)) * num_rows):
        return ""
    return f"; the stage fails, because max_too_long_share allows {config.max_too_long_share:.3g}"
