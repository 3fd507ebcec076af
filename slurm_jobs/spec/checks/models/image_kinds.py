"""Check that a `preprocess` makes images that its processor and the training's model allow.

It compares the kinds of images if the folders of processor and model exist here. Details of one
kind (sizes, tokens), and facts that a folder lacks, are left to the job. PURE.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from slurm_jobs.base.errors import Problem
from slurm_jobs.formats.configs.stages import ImagePixels
from slurm_jobs.formats.processors.model_types import (
    MADE_IMAGES,
    MODEL_CONFIG,
    SMALL_VLM,
    SMALL_VLM_IMAGES,
    TAKEN_IMAGES,
    ImageKind,
    image_processor_class,
)
from slurm_jobs.formats.processors.pixel_limits import PixelLimitsError, with_image_pixels
from slurm_jobs.spec.checked_spec import CheckedSpec
from slurm_jobs.spec.graph import preprocess_of
from slurm_jobs.spec.marked_paths import MarkedString
from slurm_jobs.spec.yaml.document import KeyPath, path_text, was_set

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
