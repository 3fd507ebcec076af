"""Checks of images against the limits of their `preprocess`. PURE."""

from __future__ import annotations

import functools
import math
import posixpath
from collections import Counter
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
from slurm_jobs.shared.manifest_formats import (
    MADE_IMAGES,
    MODEL_CONFIG,
    SMALL_VLM,
    SMALL_VLM_IMAGES,
    TAKEN_IMAGES,
    ImageKind,
    ImageSize,
    RowSize,
    image_processor_class,
    image_tokens,
    lies_within,
    measure,
    missing_hint,
    normal_forms,
    pick_rows,
    place_of,
    spread,
)
from slurm_jobs.shared.manifests.messages import Content, ManifestRow, RowOrigin
from slurm_jobs.shared.manifests.values import RowOptions
from slurm_jobs.shared.processors.folder import PixelLimitsError, with_image_pixels
from slurm_jobs.shared.processors.image_plans import ImageRules, NativeImages, Size
from slurm_jobs.shared.redact import printable, shortened
from slurm_jobs.spec.checks.manifests import MANIFESTS, columns_of, has_all_rows, row_problem
from slurm_jobs.spec.graph import StageView, Views, ancestors, preprocess_of, stage_views
from slurm_jobs.spec.model import BUILTIN_STAGES
from slurm_jobs.spec.spec_files import Files, MarkedString
from slurm_jobs.spec.yaml import KeyPath, YamlDocument, path_text, problem_at, was_set

# Check that a `preprocess` makes images that its processor and the training's model allow.
#
# It compares the kinds of images if the folders of processor and model exist here. Details of one
# kind (sizes, tokens), and facts that a folder lacks, are left to the job.


_WORDS: Mapping[ImageKind, str] = {
    "fixed": "images of one size",
    "tiled": "images cut into tiles",
    "native": "images of their own proportions",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Side:
    """Model or processor."""

    kind: ImageKind
    name: str
    """Type of the model or class of the processor."""
    folder: str
    """Folder in the spec; empty without one."""


def image_problems(
    marked: Sequence[MarkedString], document: YamlDocument, files: Files
) -> list[Problem]:
    """Return trainings whose model takes other images, at the model or a key set with `--set`."""
    views = stage_views(document.value)
    folders = {item.path: item for item in marked}
    problems = []
    for name, view in views.items():
        model = _model_of(name, view, folders, files) if view.run == "train" else None
        for source, dataset in _preprocesses(views, name).items() if model is not None else ():
            made = _processor_of(source, views[source], folders, files)
            if model is None or made is None or made.kind == model.kind:
                continue
            place, is_set = _place(name, source, dataset, document)
            message = f"{path_text(place)}: {_difference(model, made, source)}"
            problems.append(problem_at(document, place, message, at_key=not is_set))
    return problems


def image_pixels_problems(
    marked: Sequence[MarkedString], document: YamlDocument, files: Files
) -> list[Problem]:
    """Return each `image_pixels` that its processor lacks, or that leaves no valid size."""
    folders = {item.path: item for item in marked}
    problems = []
    for name, view in stage_views(document.value).items():
        config = (view.config if view.run == "preprocess" else None) or {}
        given = config.get("image_pixels")
        images, _ = _images_of(name, view, folders, files)
        if not isinstance(given, Mapping) or not images:
            continue
        if isinstance(config.get("processor"), Mapping):  # the config itself refuses these
            continue
        try:
            with_image_pixels(images, ImagePixels(**given))
        except PixelLimitsError as error:
            place: KeyPath = ("stages", name, "config", "image_pixels")
            problems.append(problem_at(document, place, f"{path_text(place)}: {error}"))
        except (TypeError, ValueError):  # the config itself is refused elsewhere
            continue
    return problems


def _place(
    name: str, source: str, dataset: KeyPath, document: YamlDocument
) -> tuple[KeyPath, bool]:
    """Return the place of the problem: a key set on the command line (and True), else the model.

    `dataset` is the key that names the data set, in the training's config.
    """
    config: KeyPath = ("stages", name, "config")
    at_model: KeyPath = (*config, "model")
    keys: list[KeyPath] = [(*config, *dataset), (*at_model, "path"), (*at_model, "type")]
    for place in (("stages", source, "config", "processor", "images"), *keys):
        if was_set(document, place[:2], place):
            return next(p for p in _beginnings(place) if p in document.sources), True
    return at_model, False


def _beginnings(place: KeyPath) -> list[KeyPath]:
    """Return the place and those that contain it, the innermost first."""
    return [place[:length] for length in range(len(place), 0, -1)]


def _difference(model: _Side, made: _Side, source: str) -> str:
    told = (
        f"a model of type {model.name} takes {_WORDS[model.kind]}, and the processor of stage "
        f"`{source}` ({made.name} of {made.folder}) makes {_WORDS[made.kind]}"
    )
    at_processor = path_text(("stages", source, "config", "processor"))
    if model.name == SMALL_VLM:
        return (
            f"{told}: set {at_processor} to `{{images: FOLDER, text: FOLDER}}` of the model's "
            f"parts, or train `model: {{type: hugging_face, path: {made.folder}}}`"
        )
    return f"{told}: set {at_processor} to the model's own, `{model.folder}`"


def _model_of(
    name: str, view: StageView, folders: Mapping[KeyPath, MarkedString], files: Files
) -> _Side | None:
    """Return the model that a training trains; None if unknown."""
    given = (view.config or {}).get("model", {})
    if not isinstance(given, Mapping):
        return None
    path = folders.get(("stages", name, "config", "model", "path"))
    kind = files.json_values(f"{path.resolved}/{MODEL_CONFIG}").get("model_type") if path else None
    if given.get("type", SMALL_VLM) == SMALL_VLM:
        if path is not None and kind != SMALL_VLM:
            return None
        return _Side(kind=SMALL_VLM_IMAGES, name=SMALL_VLM, folder="")
    taken = TAKEN_IMAGES.get(str(kind))
    if path is None or given.get("type") != "hugging_face" or taken is None:
        return None
    return _Side(kind=taken, name=str(kind), folder=path.given)


def _processor_of(
    name: str, view: StageView, folders: Mapping[KeyPath, MarkedString], files: Files
) -> _Side | None:
    """Return the image processor of a `preprocess`; None if unknown."""
    images, folder = _images_of(name, view, folders, files)
    class_name = image_processor_class(images)
    if class_name not in MADE_IMAGES:
        return None
    return _Side(kind=MADE_IMAGES[class_name], name=class_name, folder=folder)


def _images_of(
    name: str, view: StageView, folders: Mapping[KeyPath, MarkedString], files: Files
) -> tuple[Mapping[str, Any], str]:
    """Return the values of a stage's image processor, and its folder as the spec names it.

    Empty if they cannot be read.
    """
    place: KeyPath = ("stages", name, "config", "processor")
    processor = (view.config or {}).get("processor")
    whole = not isinstance(processor, Mapping)
    item = folders.get(place if whole else (*place, "images"))
    if item is None:
        return {}, ""
    images = files.json_values(f"{item.resolved}/processor_config.json").get("image_processor")
    if not isinstance(images, dict) or not images:
        images = files.json_values(f"{item.resolved}/preprocessor_config.json")
    return images, item.given


def _preprocesses(views: Views, name: str) -> dict[str, KeyPath]:
    """Return `preprocess` stages whose output a training or its phases read.

    Each has the config key that names the data set, or would.
    """
    config = views[name].config or {}
    phases = config.get("phases") or ()
    own: dict[KeyPath, Any] = {
        ("phases", number, "dataset"): phase.get("dataset")
        for number, phase in enumerate(phases)
        if isinstance(phase, Mapping)
    }
    whole = config.get("dataset")
    found: dict[str, KeyPath] = {}
    for place, dataset in own.items() if own else [(("dataset",), None)]:
        stage = preprocess_of(views, name, dataset or whole)
        if stage:
            found.setdefault(stage, place if dataset else ("dataset",))
    return found


# Check that the images of a manifest's first rows exist in an allowed folder.


_KEY = "images_within"
_MAX_IMAGES = 100
"""Number of images of one manifest whose files are checked."""
_MAX_REASONS = 10
DOWNLOADER = "recipes:models"
"""`run` of the stage that `init` writes to download a model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _NamedImages:
    """Images that the first rows of a manifest name."""

    path: KeyPath
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


# Check that the images of a manifest's first rows fit the limits of their `preprocess`.
#
# The headers of some images give their sizes, and the processor's rules the number of tokens. Text
# is not counted, so a row that is too long by its images alone is too long in the job.


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
        place: KeyPath = ("stages", name, "config")
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
            path: KeyPath = (*place, key)
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
