"""Check that the images of a manifest's first rows fit the limits of their `preprocess`. PURE.

The headers of some images give their sizes, and the processor's rules the number of tokens. Text is
not counted, so a row that is too long by its images alone is too long in the job.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import median
from typing import Any

from slurm_jobs.common.errors import Problem
from slurm_jobs.common.manifests.rows import Content, ManifestRow
from slurm_jobs.common.manifests.values import RowOptions
from slurm_jobs.common.processors.native import NativeImages
from slurm_jobs.common.processors.plan import ImageRules, Size
from slurm_jobs.common.row_sizes import ImageSize, RowSize, image_tokens, measure, pick_rows
from slurm_jobs.common.stage_config.preprocess import (
    DEFAULT_MAX_PIXELS,
    ImagePixels,
    PreprocessConfig,
)
from slurm_jobs.spec.checks.manifest_checks import columns_of
from slurm_jobs.spec.files import Files
from slurm_jobs.spec.markers import MarkedString
from slurm_jobs.spec.validation import path_text, problem_at
from slurm_jobs.spec.yaml_values import Path, YamlDocument

MAX_HEADERS = 200
"""Number of image headers read for one manifest: 0.2 seconds on a shared file system."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Seen:
    """Rows that were measured, by result."""

    num_rows: int
    too_large: Sequence[Size]
    """Largest image of each row with one over `max_pixels`."""
    num_images: Sequence[int]
    """Number of images of each row with more than `max_images`."""
    lengths: Sequence[int]
    """Image tokens of each other row; empty if the processor is unknown."""
    most_images: int
    """Most images of a row in `lengths`."""


def image_size_problems(
    configs: Mapping[str, Any], marked: Sequence[MarkedString], document: YamlDocument, files: Files
) -> list[Problem]:
    """Return the limits that all measured rows exceed.

    With a share of 1 the job may lose any number of rows, so this is a note.
    """
    findings = _findings(configs, marked, document, files)
    return [problem for problem, is_fatal in findings if is_fatal]


def image_size_notes(
    configs: Mapping[str, Any], marked: Sequence[MarkedString], document: YamlDocument, files: Files
) -> list[Problem]:
    """Return the limits that some of the measured rows exceed."""
    findings = _findings(configs, marked, document, files)
    return [problem for problem, is_fatal in findings if not is_fatal]


def _findings(
    configs: Mapping[str, Any], marked: Sequence[MarkedString], document: YamlDocument, files: Files
) -> Iterator[tuple[Problem, bool]]:
    """Yield problems with the limits of each `preprocess`, and whether all rows exceed them."""
    resolved = {item.path: item.resolved for item in marked if item.given and not item.problem}
    for name, config in configs.items():
        place: Path = ("stages", name, "config")
        manifest = resolved.get((*place, "manifest"), "")
        if not manifest.startswith("/") or not isinstance(config, PreprocessConfig):
            continue
        folder = resolved.get((*place, "processor"))
        processor_rules = files.image_rules(folder) if folder else None
        rules = _with_limits(processor_rules, config.image_pixels)
        if rules is None and config.max_pixels >= DEFAULT_MAX_PIXELS:
            continue
        root = resolved.get((*place, "image_root"), files.image_root_of(manifest))
        options = RowOptions(columns=columns_of((*place, "manifest"), document))
        rows = [row for row in files.first_rows(manifest, options) if not row.problem]
        seen = _look(rows, functools.partial(_size_in, root, files), config, rules)
        for key, message, is_fatal in _messages(seen, config, rules) if seen is not None else ():
            path: Path = (*place, key)
            yield problem_at(document, path, f"{path_text(path)}: {message}"), is_fatal


def _with_limits(rules: ImageRules | None, pixels: ImagePixels | None) -> ImageRules | None:
    """Return the rules of a processor with the `image_pixels` of the config."""
    if not isinstance(rules, NativeImages) or pixels is None:
        return rules
    return replace(
        rules,
        min_pixels=pixels.min or rules.min_pixels,
        max_pixels=pixels.max or rules.max_pixels,
    )


def _size_in(root: str, files: Files, image: Content) -> Size | None:
    return files.image_size(image, root) if root.startswith("/") else None


def _look(
    rows: Sequence[ManifestRow],
    size: ImageSize,
    config: PreprocessConfig,
    rules: ImageRules | None,
) -> _Seen | None:
    """Measure rows of a manifest; None if no image can be measured."""
    if not any(row.images for row in rows):
        return None
    picked = pick_rows(rows, MAX_HEADERS)
    num_images = [len(row.images) for row in picked if len(row.images) > config.max_images]
    within = [row for row in picked if len(row.images) <= config.max_images]
    measured = [row for row in (measure(row, size, most=MAX_HEADERS) for row in within) if row]
    if not num_images and not any(row.images for row in measured):
        return None
    too_large = [largest for row in measured if _area(largest := _largest(row)) > config.max_pixels]
    fitting = [row for row in measured if _area(_largest(row)) <= config.max_pixels]
    return _Seen(
        num_rows=len(num_images) + len(measured),
        too_large=too_large,
        num_images=num_images,
        lengths=[image_tokens(row, rules) for row in fitting] if rules is not None else (),
        most_images=max((len(row.images) for row in fitting), default=0),
    )


def _area(size: Size) -> int:
    return size[0] * size[1]


def _largest(row: RowSize) -> Size:
    return max(row.images, key=_area, default=(0, 0))


def _messages(
    seen: _Seen, config: PreprocessConfig, rules: ImageRules | None
) -> Iterator[tuple[str, str, bool]]:
    """Yield key, message, and whether all rows exceed the limit."""
    long = [length for length in seen.lengths if length > config.max_tokens]
    if seen.too_large:
        width, height = max(seen.too_large, key=_area)
        message = (
            f"{_share(len(seen.too_large), seen.num_rows)} have an image of more than "
            f"{config.max_pixels:,} pixels (the largest: {width} x {height}), and are rejected. "
            "max_pixels rejects image files and makes none smaller; image_pixels.max is the limit "
            "that images are resized to. Raise max_pixels, or leave it out"
        )
        is_all = len(seen.too_large) == seen.num_rows
        yield "max_pixels", message, is_all and config.max_reject_share < 1
    end = _end(len(long) + len(seen.num_images), seen, config)
    is_all = len(long) + len(seen.num_images) == seen.num_rows and config.max_too_long_share < 1
    if seen.num_images:
        message = (
            f"max_images is {config.max_images}, but "
            f"{_share(len(seen.num_images), seen.num_rows)} have more images (at most "
            f"{max(seen.num_images):,}){end}. Raise max_images"
        )
        yield "max_images", message, is_all
    if long:
        message = (
            f"max_tokens is {config.max_tokens:,}, but {_share(len(long), seen.num_rows)} are "
            f"longer by their images alone (median {median(seen.lengths):,.0f} tokens, at most "
            f"{max(seen.lengths):,}){end}. {_remedy(seen, config, rules)}"
        )
        yield "max_tokens", message, is_all


def _share(part: int, whole: int) -> str:
    return f"{part:,} of {whole:,} rows checked ({100 * part / whole:.3g} %)"


def _end(num_over: int, seen: _Seen, config: PreprocessConfig) -> str:
    """Return a clause that the stage fails, if it does with rows like these."""
    if config.too_long == "error":
        return "; too_long: error fails the stage at the first of them"
    if num_over == seen.num_rows:
        other = "if other rows are shorter, set max_too_long_share: 1"
        hint = f" ({other})" if config.max_too_long_share < 1 else ""
        return f"; none of them becomes a sample{hint}"
    share = Fraction(str(config.max_too_long_share))
    if num_over <= math.ceil(share * seen.num_rows):
        return ""
    return f"; the stage fails, because max_too_long_share allows {config.max_too_long_share:.3g}"


def _remedy(seen: _Seen, config: PreprocessConfig, rules: ImageRules | None) -> str:
    if not isinstance(rules, NativeImages):
        return "Raise max_tokens"
    tokens = config.max_tokens // 2 // max(1, seen.most_images)
    pixels = tokens * (rules.patch_size * rules.merge_size) ** 2
    if pixels < rules.min_pixels:
        return "Raise max_tokens"
    return (
        f"Set image_pixels.max ({pixels} gives at most {tokens:,} tokens an image), or raise "
        "max_tokens"
    )
