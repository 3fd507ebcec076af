"""Checks of images against the limits of their `preprocess`. PURE."""

from __future__ import annotations

import functools
import math
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import median
from typing import Any

from slurm_jobs.shared.configs.stages import (
    DEFAULT_MAX_PIXELS,
    ConsolidateConfig,
    ImagePixels,
    PreprocessConfig,
)
from slurm_jobs.shared.errors import Problem, truncated
from slurm_jobs.shared.manifests.image_heads import begins_as_image
from slurm_jobs.shared.manifests.image_paths import (
    ABSOLUTE_HINT,
    is_within,
    missing_hint,
    normal_forms,
    place_of,
)
from slurm_jobs.shared.manifests.messages import Content, ManifestRow
from slurm_jobs.shared.manifests.row_sizes import (
    ImageSize,
    image_tokens,
    measure,
    pick_rows,
    spread,
)
from slurm_jobs.shared.processors.image_plans import ImageRules, NativeImages, Size
from slurm_jobs.shared.processors.model_types import (
    MADE_IMAGES,
    MODEL_CONFIG,
    SMALL_VLM,
    SMALL_VLM_IMAGES,
    TAKEN_IMAGES,
    ImageKind,
    image_processor_class,
)
from slurm_jobs.shared.processors.pixel_limits import PixelLimitsError, with_image_pixels
from slurm_jobs.shared.redact import printable, shortened
from slurm_jobs.spec.checks.manifests import (
    MANIFESTS,
    has_all_rows,
    reason_lines,
    row_options,
    row_problem,
)
from slurm_jobs.spec.graph import CheckedSpec, Finding, may_be_made, preprocess_of
from slurm_jobs.spec.spec_files import Files, MarkedString
from slurm_jobs.spec.yaml.document import KeyPath, path_text, was_set

# Check that a `preprocess` makes images that its processor and the training's model allow.
#
# It compares the kinds of images if the folders of processor and model exist here. Details of one
# kind (sizes, tokens), and facts that a folder lacks, are left to the job.


_WORDS: Mapping[ImageKind, str] = {
    "fixed": "images of one size",
    "tiled": "images cut into tiles",
    "native": "images of their own proportions",
}


def image_problems(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield trainings whose model takes other images, at the model or a key set with `--set`."""
    folders = {item.path: item for item in spec.expanded}
    for name, view in spec.views.items():
        model = _model_of(spec, name, folders) if view.run == "train" else None
        for source, dataset in _preprocesses(spec, name).items() if model is not None else ():
            images, folder = _processor_images(spec, source, folders)
            class_name = image_processor_class(images)
            if model is None or MADE_IMAGES.get(class_name, model[0]) == model[0]:
                continue
            kind, model_type, model_folder = model
            at_processor = path_text(("stages", source, "config", "processor"))
            remedy = f"set {at_processor} to the model's own, `{model_folder}`"
            if model_type == SMALL_VLM:
                remedy = (
                    f"set {at_processor} to `{{images: FOLDER, text: FOLDER}}` of the model's "
                    f"parts, or train `model: {{type: hugging_face, path: {folder}}}`"
                )
            message = (
                f"a model of type {model_type} takes {_WORDS[kind]}, and the processor of stage "
                f"`{source}` ({class_name} of {folder}) makes {_WORDS[MADE_IMAGES[class_name]]}: "
                f"{remedy}"
            )
            given = _set_place(spec, name, source, dataset)
            place = given or ("stages", name, "config", "model")
            yield spec.problem(place, message, at_key=not given)


def image_pixels_problems(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield each `image_pixels` that its processor lacks, or that leaves no valid size."""
    folders = {item.path: item for item in spec.expanded}
    for name, view in spec.views.items():
        config = (view.config if view.run == "preprocess" else None) or {}
        given = config.get("image_pixels")
        # With the folders of two processors the config itself refuses these keys.
        if not isinstance(given, Mapping) or isinstance(config.get("processor"), Mapping):
            continue
        images, _ = _processor_images(spec, name, folders)
        try:
            if images:
                with_image_pixels(images, ImagePixels(**given))
        except PixelLimitsError as error:
            yield spec.problem(("stages", name, "config", "image_pixels"), str(error))
        except (TypeError, ValueError):  # the config itself is refused elsewhere
            continue


def _set_place(spec: CheckedSpec, name: str, source: str, dataset: KeyPath) -> KeyPath:
    """Return the outermost place of the cause that was set on the command line; else empty.

    `dataset` is the key that names the data set, in the training's config.
    """
    config: KeyPath = ("stages", name, "config")
    keys = [(*config, *dataset), (*config, "model", "path"), (*config, "model", "type")]
    for place in (("stages", source, "config", "processor", "images"), *keys):
        if was_set(spec.document, place[:2], place):
            beginnings = (place[:length] for length in range(len(place), 0, -1))
            return next(path for path in beginnings if path in spec.document.sources)
    return ()


def _model_of(
    spec: CheckedSpec, name: str, folders: Mapping[KeyPath, MarkedString]
) -> tuple[ImageKind, str, str] | None:
    """Return kind of images, type and folder of a training's model; None if unknown."""
    given = (spec.views[name].config or {}).get("model", {})
    if not isinstance(given, Mapping):
        return None
    path = folders.get(("stages", name, "config", "model", "path"))
    values = spec.files.json_values(f"{path.resolved}/{MODEL_CONFIG}") if path else {}
    kind = values.get("model_type")
    if given.get("type", SMALL_VLM) == SMALL_VLM:
        is_other = path is not None and kind != SMALL_VLM
        return None if is_other else (SMALL_VLM_IMAGES, SMALL_VLM, "")
    limits = TAKEN_IMAGES.get(str(kind))
    if path is None or given.get("type") != "hugging_face" or limits is None:
        return None
    return limits, str(kind), path.given


def _processor_images(
    spec: CheckedSpec, name: str, folders: Mapping[KeyPath, MarkedString]
) -> tuple[Mapping[str, Any], str]:
    """Return the values of a stage's image processor, and its folder as the spec names it.

    Empty if they cannot be read.
    """
    place: KeyPath = ("stages", name, "config", "processor")
    processor = (spec.views[name].config or {}).get("processor")
    item = folders.get((*place, "images") if isinstance(processor, Mapping) else place)
    if item is None:
        return {}, ""
    values = spec.files.json_values(f"{item.resolved}/processor_config.json")
    images = values.get("image_processor")
    if not isinstance(images, dict) or not images:
        images = spec.files.json_values(f"{item.resolved}/preprocessor_config.json")
    return images, item.given


def _preprocesses(spec: CheckedSpec, name: str) -> dict[str, KeyPath]:
    """Return `preprocess` stages whose output a training or its phases read.

    Each has the config key that names the data set, or would.
    """
    config = spec.views[name].config or {}
    datasets: dict[KeyPath, Any] = {
        ("phases", number, "dataset"): phase.get("dataset")
        for number, phase in enumerate(config.get("phases") or ())
        if isinstance(phase, Mapping)
    }
    sources: dict[str, KeyPath] = {}
    for place, dataset in (datasets or {("dataset",): None}).items():
        stage = preprocess_of(spec.views, name, dataset or config.get("dataset"))
        if stage:
            sources.setdefault(stage, place if dataset else ("dataset",))
    return sources


# Check that the images of a manifest's first rows exist in an allowed folder.


_KEY = "images_within"
_MAX_IMAGES = 100
"""Number of images of one manifest whose files are checked."""
_MAX_REASONS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class _NamedImages:
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


def _named_images(spec: CheckedSpec) -> Iterator[_NamedImages]:
    files, resolved = spec.files, {item.path: item.resolved for item in spec.marked if item.given}
    for path, manifest in resolved.items():
        if path[2:] not in MANIFESTS or not manifest.startswith("/"):
            continue
        root = resolved.get((*path[:-1], "image_root")) or files.image_root_of(manifest)
        if root.startswith("/"):
            rows = files.first_rows(manifest, row_options(spec, path))
            usable = (row for row in rows if not row_problem(row))
            names = [i.value for row in usable for i in row.images if i.data is None]
            placed = [(name, place_of(name, root)[0]) for name in names]
            yield _NamedImages(
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
    for images in _named_images(spec):
        elsewhere = [item for item in images.names if not is_within(item[1], images.root)]
        if elsewhere and images.path[:-1] not in allowed:
            folder = posixpath.commonpath([posixpath.dirname(file) for _, file in elsewhere])
            fault = remedy = ""
            if images.is_missing(*elsewhere[0]):
                fault = "does not exist here and "
                remedy = "correct the path, or write it relative to image_root; "
            message = (
                f"{images.manifest} names the image {_shown(elsewhere[0][0])}, which {fault}is "
                f"outside of {images.root}; {remedy}if the data set may contain such "
                f"files, set `{_KEY}` next to it to a folder that contains them all; those of the "
                f"first rows are in {printable(folder)}"
            )
            yield spec.problem(images.path, message)


def missing_image_findings(spec: CheckedSpec) -> Iterator[Finding]:
    """Yield the manifests that name missing images.

    It is an error if none of the images exists. It is a note if an earlier stage may create them,
    if only the nodes may see their folder, if `max_reject_share: 1` lets the job lose any number
    of rows, and for commands that submit nothing.
    """
    for images in _named_images(spec):
        chosen = [images.names[place] for place in spread(len(images.names), _MAX_IMAGES)]
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
            place = f"{_shown(name)} means {printable(truncated(file))}"
        message = f"{images.manifest}: {share}; {place}{remedy and f': {remedy}'}"
        is_error = is_all and not images.may_be_on_nodes(file) and _must_be_usable(spec, images)
        yield spec.problem(images.path, message), is_error


def foreign_image_findings(spec: CheckedSpec) -> Iterator[Finding]:
    """Yield the manifests that name files which are not images, by their first bytes.

    It is an error if none of those read is an image, with the exceptions of missing images. A
    broken header is left to the job.
    """
    for images in _named_images(spec):
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
            fault = f"begins with {head!r}: convert such files to PNG or JPEG, or correct the names"
        message = f"{images.manifest}: {share}; {_shown(image.value)} ({origin}) {fault}"
        yield spec.problem(images.path, message), is_all and _must_be_usable(spec, images)


def _must_be_usable(spec: CheckedSpec, images: _NamedImages) -> bool:
    """Check whether a run fails if none of the images of a manifest can be used now."""
    stage = str(images.path[1])
    config = spec.configs.get(stage)
    loses_any = isinstance(config, PreprocessConfig) and config.max_reject_share == 1
    return spec.files.needs_images and not loses_any and not may_be_made(spec, stage)


def unusable_row_findings(spec: CheckedSpec) -> Iterator[Finding]:
    """Yield the manifests of which some first rows cannot be used.

    It is an error if the stage certainly fails: all rows were read, no earlier stage can write
    others, `max_reject_share` does not allow so many, and it counts for all rows together. A row
    whose image is missing or not an image counts, too. Manifests without a usable row are left to
    the other checks.
    """
    values, configs = spec.document.value, spec.configs
    limit = values.get("limit") if isinstance(values, Mapping) else None
    merging = [config for config in configs.values() if isinstance(config, ConsolidateConfig)]
    for images in _named_images(spec):
        stage, rows = str(images.path[1]), images.rows
        config = configs.get(stage)
        config = config if isinstance(config, PreprocessConfig) else None
        # The first rows of a table end after a number of bytes that its size does not determine.
        is_table = spec.files.table(images.manifest) is not None
        is_whole = not is_table and has_all_rows(images.manifest, rows, spec.files)
        if config is not None and isinstance(limit, int) and 0 < limit < len(rows):
            rows, is_whole = rows[:limit], True
        reasons: dict[str, list[str]] = {}
        for row in rows:
            if problem := row_problem(row):
                reasons.setdefault(problem, []).append(f"{row.origin}: {problem}")
        num_bad = sum(map(len, reasons.values()))
        if num_bad == len(rows):
            continue
        has_bad = num_bad > 0
        is_final = is_whole and not may_be_made(spec, stage)
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
    rows: Sequence[ManifestRow], images: _NamedImages, max_images: int | None
) -> Iterator[tuple[str, str]]:
    """Yield a kind and a message for each usable row with a file that is missing or not an image.

    Nothing if there are too many images to check. Rows with more than `max_images` are rejected as
    too long, and do not count.
    """
    if len(images.names) > _MAX_IMAGES:
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
                yield kind, f"{row.origin}: {_shown(image.value)} {kind}"
                break


def _shown(name: str) -> str:
    return shortened(printable(name))


# Check that the images of a manifest's first rows fit the limits of their `preprocess`.
#
# The headers of some images give their sizes, and the processor's rules the number of tokens. Text
# is not counted, so a row that is too long by its images alone is too long in the job.


MAX_MEASURED_ROWS = 200
"""Number of image headers read for one manifest: 0.2 seconds on a shared file system."""


def image_size_findings(spec: CheckedSpec) -> Iterator[Finding]:
    """Yield the limits of each `preprocess` that measured rows exceed.

    It is an error if all of them do. With a share of 1 the job may lose any number of rows, so this
    is a note.
    """
    files = spec.files
    resolved = {item.path: item.resolved for item in spec.expanded if item.given}
    for name, config in spec.configs.items():
        place: KeyPath = ("stages", name, "config")
        manifest = resolved.get((*place, "manifest"), "")
        if not manifest.startswith("/") or not isinstance(config, PreprocessConfig):
            continue
        folder = resolved.get((*place, "processor"))
        rules, pixels = files.image_rules(folder) if folder else None, config.image_pixels
        if isinstance(rules, NativeImages) and pixels is not None:
            least, most = pixels.min or rules.min_pixels, pixels.max or rules.max_pixels
            rules = replace(rules, min_pixels=least, max_pixels=most)
        root = resolved.get((*place, "image_root"), files.image_root_of(manifest))
        if rules is not None or config.max_pixels < DEFAULT_MAX_PIXELS:
            options = row_options(spec, (*place, "manifest"))
            rows = [row for row in files.first_rows(manifest, options) if not row.problem]
            size = functools.partial(_size_in, root, files)
            for key, message, is_fatal in _exceeded(rows, size, config, rules):
                yield spec.problem((*place, key), message), is_fatal


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
