"""Settings of built-in stages that have no effect because of other settings.

They are noted, not refused: `--set stages.train.config.batching.kind=shuffled` is a way to try
something, and may leave settings of the other kind behind. PURE.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_jobs.base.errors import Problem
from slurm_jobs.base.written_values import describe
from slurm_jobs.formats.configs.model_parts import RANDOM_LANGUAGE, RANDOM_VISION
from slurm_jobs.formats.configs.training_phases import OWN
from slurm_jobs.formats.processors.model_types import LANGUAGE_PART, SMALL_VLM, VISION_PART
from slurm_jobs.spec.checked_spec import CheckedSpec
from slurm_jobs.spec.checks.data.evaluated_rows import has_held_out_rows
from slurm_jobs.spec.checks.stages.phases import packs_rows, parts_of
from slurm_jobs.spec.yaml.document import KeyPath


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rule:
    """Keys that have no effect with certain other settings."""

    keys: tuple[str, ...]
    """Dotted keys, below the config."""
    is_idle: Callable[[Any], bool]
    """Function of the config that returns whether the keys have no effect."""
    why: str
    """Reason, with the remedy."""


def idle_setting_notes(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield a note for each setting that differs from its default and has no effect."""
    for name, config in spec.configs.items():
        run, place = spec.views[name].run or "", ("stages", name, "config")
        for rule in _RULES.get(run, ()):
            if rule.is_idle(config):
                yield from _changed(spec, config, place, rule.keys, rule.why)
        if run == "train":
            yield from _phase_notes(spec, config, place)
            yield from _evaluation_notes(spec, name, config, place)


def _changed(
    spec: CheckedSpec, config: Any, place: KeyPath, keys: Sequence[str], why: str
) -> Iterator[Problem]:
    """Yield a note for each key that differs from its default."""
    for key in keys:
        value, default, steps = config, None, key.split(".")
        for step in steps:
            defaults = {field.name: field.default for field in dataclasses.fields(value)}
            value, default = getattr(value, step), defaults[step]
        if value == default:
            continue
        is_mapping = dataclasses.is_dataclass(value)
        if is_mapping or isinstance(value, str):
            shown = "this" if is_mapping else f"`{value}`"
        else:
            shown = describe(list(value) if isinstance(value, tuple) else value)
        message = f"{shown} has no effect: {why}"
        yield spec.problem((*place, *steps), message, at_key=is_mapping)


def _evaluation_notes(
    spec: CheckedSpec, name: str, config: Any, place: KeyPath
) -> Iterator[Problem]:
    """Yield notes on settings of evaluations that do not take place, or of other rows."""

    def changed(keys: Sequence[str], why: str) -> Iterator[Problem]:
        return _changed(spec, config, place, [f"evaluate.{key}" for key in keys], why)

    evaluate = config.evaluate
    if has_held_out_rows(spec, name, config) is False:
        why = "nothing is held out; give `evaluate.manifest`, or leave it out"
        yield from changed((*_PLACES, *_EVALUATION, *_DURING_TRAINING), why)
        return
    if evaluate.manifest is None:
        why = "rows that `preprocess` holds out have their pictures with them; leave it out"
        yield from changed(_PLACES, why)
    if evaluate.every_steps is None:
        why = "nothing is evaluated during training; set `evaluate.every_steps`, or leave it out"
        yield from changed(_DURING_TRAINING, why)
    elif evaluate.num_samples is not None:
        why = (
            f"evaluate.num_samples leaves {evaluate.num_samples} rows, during training too; "
            f"raise it, or give {evaluate.num_samples} or less"
        )
        keys = [key for key in _DURING_TRAINING if getattr(evaluate, key) > evaluate.num_samples]
        yield from changed(keys, why)


_ROWS = ("batching.strategy", "batching.max_tokens", "batching.max_images")
_ROWS_WHY = (
    "only `kind: packed` fills rows, and `auto`, which may choose it; set one of them, or leave it "
    "out"
)
_PHASES_WHY = "each phase has its own; change those, or leave it out"


def _phase_notes(spec: CheckedSpec, config: Any, place: KeyPath) -> Iterator[Problem]:
    """Yield notes on training settings that every phase overrides, and on each phase's rows."""
    phases, parts = list(config.phases), parts_of(config)
    for key in _ROWS:
        readers = [
            part
            for number, part in enumerate(parts)
            if not phases or not _sets(phases[number], key)
        ]
        if readers and not any(map(packs_rows, readers)):
            yield from _changed(spec, config, place, [key], _ROWS_WHY)
    for number, phase in enumerate(phases):
        keys = [key for key in _ROWS if _sets(phase, key) and not packs_rows(parts[number])]
        yield from _changed(spec, parts[number], (*place, "phases", number), keys, _ROWS_WHY)
    for name in OWN if phases else ():
        value = getattr(phases[0], name)
        for key in [f"{name}.{k}" for k in value] if isinstance(value, Mapping) else [name]:
            if all(_sets(phase, key) for phase in phases):
                yield from _changed(spec, config, place, [key], _PHASES_WHY)


def _sets(phase: Any, key: str) -> bool:
    """Check whether a phase sets a key of its training."""
    name, _, within = key.partition(".")
    value = getattr(phase, name)
    return value is not None and (not within or within in value)


_PLACES = ("image_root", "images_within")
_EVALUATION = ("num_samples", "max_new_tokens", "batch_size")
_DURING_TRAINING = ("num_loss_samples", "num_answers")
_SIZES = (
    *(f"{VISION_PART.name}.{size}" for size in RANDOM_VISION),
    *(f"{LANGUAGE_PART.name}.{size}" for size in RANDOM_LANGUAGE),
)
_RULES: Mapping[str, Sequence[_Rule]] = {
    "preprocess": (
        _Rule(
            keys=("image_quality",),
            is_idle=lambda config: config.image_format not in {"jpeg", "webp"},
            why="the image format is lossless; set `image_format: jpeg`, or leave it out",
        ),
    ),
    "consolidate": (
        _Rule(
            keys=("shard_mb",),
            is_idle=lambda config: bool(config.num_shards or config.samples_per_shard),
            why="num_shards or samples_per_shard sets their size; leave one of them out",
        ),
    ),
    "train": (
        _Rule(
            keys=("memory_share",),
            is_idle=lambda config: (
                "auto" not in {part.num_microbatches for part in parts_of(config)}
            ),
            why="num_microbatches is a fixed number; set `num_microbatches: auto`, or leave it out",
        ),
        _Rule(
            keys=("stream.urls", "stream.shuffle_buffer"),
            is_idle=lambda config: config.reader == "index",
            why="`reader: index` streams nothing; set `reader: webdataset`, or leave it out",
        ),
        _Rule(
            keys=("scaler.init_scale", "scaler.growth_interval", "scaler.max_skips"),
            is_idle=lambda config: config.device == "cpu" and config.precision == "auto",
            why="a CPU computes in fp32 and scales no loss; set `precision: fp16`, or leave it out",
        ),
        _Rule(
            keys=("staging.num_threads", "staging.max_mb_per_s", "staging.max_gb"),
            is_idle=lambda config: config.staging.mode == "off",
            why="`staging.mode: 'off'` copies nothing; set another mode, or leave it out",
        ),
        _Rule(
            keys=("profile.ranks", "profile.memory", "profile.stacks"),
            is_idle=lambda config: config.profile.steps is None,
            why="no steps are recorded; give `profile.steps`, or leave it out",
        ),
        _Rule(
            keys=("trackers.every_steps", "trackers.project"),
            is_idle=lambda config: not config.trackers.use,
            why="no tracker is used; name one in `trackers.use`, or leave it out",
        ),
        _Rule(
            keys=("model.attention", "model.trust_remote_code"),
            is_idle=lambda config: config.model.type == SMALL_VLM,
            why="it is for transformers' models; set `type: hugging_face`, or leave it out",
        ),
        _Rule(
            keys=tuple(f"model.{size}" for size in _SIZES),
            is_idle=lambda c: c.model.type != SMALL_VLM or c.model.path is not None,
            why="only a new small_vlm takes sizes; train one without `model.path`, or leave it out",
        ),
    ),
}
