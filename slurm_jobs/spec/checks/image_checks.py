"""Check that a `preprocess` makes images that its processor and the training's model allow. PURE.

It compares the kinds of images if the folders of processor and model exist here. Details of one
kind (sizes, tokens), and facts that a folder lacks, are left to the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_jobs.common.errors import Problem
from slurm_jobs.common.model_kinds import (
    MADE_IMAGES,
    MODEL_CONFIG,
    SMALL_VLM,
    SMALL_VLM_IMAGES,
    TAKEN_IMAGES,
    ImageKind,
    image_processor_class,
)
from slurm_jobs.common.processors.budget import PixelLimitsError, with_image_pixels
from slurm_jobs.common.stage_config.preprocess import ImagePixels
from slurm_jobs.spec.files import Files
from slurm_jobs.spec.graph import StageView, Views, preprocess_of, stage_views
from slurm_jobs.spec.markers import MarkedString
from slurm_jobs.spec.validation import path_text, problem_at, was_set
from slurm_jobs.spec.yaml_values import Path, YamlDocument

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
            place: Path = ("stages", name, "config", "image_pixels")
            problems.append(problem_at(document, place, f"{path_text(place)}: {error}"))
        except (TypeError, ValueError):  # the config itself is refused elsewhere
            continue
    return problems


def _place(name: str, source: str, dataset: Path, document: YamlDocument) -> tuple[Path, bool]:
    """Return the place of the problem: a key set on the command line (and True), else the model.

    `dataset` is the key that names the data set, in the training's config.
    """
    config: Path = ("stages", name, "config")
    at_model: Path = (*config, "model")
    keys: list[Path] = [(*config, *dataset), (*at_model, "path"), (*at_model, "type")]
    for place in (("stages", source, "config", "processor", "images"), *keys):
        if was_set(document, place[:2], place):
            return next(p for p in _beginnings(place) if p in document.sources), True
    return at_model, False


def _beginnings(place: Path) -> list[Path]:
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
    name: str, view: StageView, folders: Mapping[Path, MarkedString], files: Files
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
    name: str, view: StageView, folders: Mapping[Path, MarkedString], files: Files
) -> _Side | None:
    """Return the image processor of a `preprocess`; None if unknown."""
    images, folder = _images_of(name, view, folders, files)
    class_name = image_processor_class(images)
    if class_name not in MADE_IMAGES:
        return None
    return _Side(kind=MADE_IMAGES[class_name], name=class_name, folder=folder)


def _images_of(
    name: str, view: StageView, folders: Mapping[Path, MarkedString], files: Files
) -> tuple[Mapping[str, Any], str]:
    """Return the values of a stage's image processor, and its folder as the spec names it.

    Empty if they cannot be read.
    """
    place: Path = ("stages", name, "config", "processor")
    processor = (view.config or {}).get("processor")
    whole = not isinstance(processor, Mapping)
    item = folders.get(place if whole else (*place, "images"))
    if item is None:
        return {}, ""
    images = files.json_values(f"{item.resolved}/processor_config.json").get("image_processor")
    if not isinstance(images, dict) or not images:
        images = files.json_values(f"{item.resolved}/preprocessor_config.json")
    return images, item.given


def _preprocesses(views: Views, name: str) -> dict[str, Path]:
    """Return `preprocess` stages whose output a training or its phases read.

    Each has the config key that names the data set, or would.
    """
    config = views[name].config or {}
    phases = config.get("phases") or ()
    own: dict[Path, Any] = {
        ("phases", number, "dataset"): phase.get("dataset")
        for number, phase in enumerate(phases)
        if isinstance(phase, Mapping)
    }
    whole = config.get("dataset")
    found: dict[str, Path] = {}
    for place, dataset in own.items() if own else [(("dataset",), None)]:
        stage = preprocess_of(views, name, dataset or whole)
        if stage:
            found.setdefault(stage, place if dataset else ("dataset",))
    return found
