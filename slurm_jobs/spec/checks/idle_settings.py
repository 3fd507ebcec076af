"""Settings of built-in stages that have no effect because of other settings. PURE.

They are noted, not refused: `--set stages.train.config.batching.kind=shuffled` is a way to try
something, and may leave settings of the other kind behind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_jobs.common.errors import Problem
from slurm_jobs.common.model_kinds import LANGUAGE_PART, SMALL_VLM, VISION_PART
from slurm_jobs.common.stage_config.model import RANDOM_LANGUAGE, RANDOM_VISION
from slurm_jobs.common.stage_config.phases import OWN, as_training
from slurm_jobs.spec.graph import Views
from slurm_jobs.spec.plain_text import describe
from slurm_jobs.spec.validation import path_text, problem_at
from slurm_jobs.spec.yaml_values import Path, YamlDocument


@dataclass(frozen=True, kw_only=True, slots=True)
class _Rule:
    """Keys that have no effect with certain other settings."""

    keys: tuple[str, ...]
    """Dotted keys, below the config."""
    is_idle: Callable[[Any], bool]
    """Function of the config that returns whether the keys have no effect."""
    why: str
    """Reason, with the remedy."""


def idle_setting_notes(
    views: Views, configs: Mapping[str, Any], document: YamlDocument
) -> list[Problem]:
    """Return a note for each setting that differs from its default and has no effect.

    Args:
        views: the stages.
        configs: of the built-in ones, without problems.
        document: for places.
    """
    notes: list[Problem] = []
    for name, config in configs.items():
        run, place = views[name].run or "", ("stages", name, "config")
        for rule in _RULES.get(run, ()):
            if rule.is_idle(config):
                notes += _each(config, place, rule.keys, rule.why, document)
        if run == "train":
            notes += _phase_notes(config, place, document)
            notes += _look_notes(config, place, document)
    return notes


def _notes(
    config: Any, place: Path, key: str, why: str, document: YamlDocument
) -> Iterator[Problem]:
    """Yield a note if the key differs from its default."""
    value, steps = config, key.split(".")
    for step in steps:
        fields = {field.name: field.default for field in dataclasses.fields(value)}
        value, default = getattr(value, step), fields[step]
    if value == default:
        return
    path = (*place, *steps)
    shown = "this" if dataclasses.is_dataclass(value) else _shown(value)
    message = f"{path_text(path)}: {shown} has no effect: {why}"
    yield problem_at(document, path, message, at_key=dataclasses.is_dataclass(value))


def _shown(value: Any) -> str:
    if isinstance(value, tuple):
        return describe(list(value))
    return f"`{value}`" if isinstance(value, str) else describe(value)


_ROWS = ("batching.strategy", "batching.max_tokens", "batching.max_images")
_ROWS_WHY = (
    "only `kind: packed` fills rows, and `auto`, which may choose it; set one of them, or leave it "
    "out"
)
_PHASES_WHY = "each phase has its own; change those, or leave it out"


def _phase_notes(config: Any, place: Path, document: YamlDocument) -> Iterator[Problem]:
    """Yield notes on training settings that every phase overrides, and on each phase's rows."""
    phases = list(config.phases)
    parts = [as_training(config, number) for number in range(len(phases))]
    for key in _ROWS:
        readers = [w for w, phase in zip(parts, phases, strict=True) if not _says(phase, key)]
        readers = readers if phases else [config]
        if readers and not any(map(_packs, readers)):
            yield from _notes(config, place, key, _ROWS_WHY, document)
    for number, (part, phase) in enumerate(zip(parts, phases, strict=True)):
        keys = [key for key in _ROWS if _says(phase, key) and not _packs(part)]
        yield from _each(part, (*place, "phases", number), keys, _ROWS_WHY, document)
    for key in _keys_of(phases[0]) if phases else ():
        if all(_says(phase, key) for phase in phases):
            yield from _notes(config, place, key, _PHASES_WHY, document)


def _keys_of(phase: Any) -> Iterator[str]:
    """Yield the dotted keys that a phase may share with its training."""
    for name in OWN:
        value = getattr(phase, name)
        yield from (f"{name}.{key}" for key in value) if isinstance(value, Mapping) else [name]


def _says(phase: Any, key: str) -> bool:
    """Check whether a phase sets a key of its training."""
    name, _, within = key.partition(".")
    value = getattr(phase, name)
    return value is not None and (not within or within in value)


def _look_notes(config: Any, place: Path, document: YamlDocument) -> Iterator[Problem]:
    """Yield notes on evaluations during training with more rows than are read."""
    evaluate = config.evaluate
    if evaluate.every_steps is None or evaluate.num_samples is None:
        return
    why = (
        f"evaluate.num_samples leaves {evaluate.num_samples} rows, in looks too; raise it, or give "
        f"{evaluate.num_samples} or less"
    )
    for key in _LOOKS:
        if getattr(evaluate, key) > evaluate.num_samples:
            yield from _notes(config, place, f"evaluate.{key}", why, document)


def _each(
    config: Any, place: Path, keys: Sequence[str], why: str, document: YamlDocument
) -> Iterator[Problem]:
    for key in keys:
        yield from _notes(config, place, key, why, document)


def _packs(config: Any) -> bool:
    return config.batching.kind in {"packed", "auto"}


def _looks_for_microbatches(config: Any) -> bool:
    given = [phase.num_microbatches or config.num_microbatches for phase in config.phases]
    return "auto" in (given or [config.num_microbatches])


def _is_whole(config: Any) -> bool:
    model = config.model
    return bool(model.type != SMALL_VLM or model.path is not None)


_EVALUATION = ("image_root", "images_within", "num_samples", "max_new_tokens", "batch_size")
_LOOKS = ("num_loss_samples", "num_answers")
_SIZES = (
    *(f"{VISION_PART.name}.{size}" for size in RANDOM_VISION),
    *(f"{LANGUAGE_PART.name}.{size}" for size in RANDOM_LANGUAGE),
)
_RULES: Mapping[str, Sequence[_Rule]] = {
    "preprocess": (
        _Rule(
            keys=("image_quality",),
            is_idle=lambda config: config.image_format not in {"jpeg", "webp"},
            why="the format of images keeps every pixel; set `image_format: jpeg`, or leave it out",
        ),
    ),
    "consolidate": (
        _Rule(
            keys=("shard_mb",),
            is_idle=lambda config: bool(config.num_shards or config.samples_per_shard),
            why="num_shards or samples_per_shard says their size; leave one of them out",
        ),
    ),
    "train": (
        _Rule(
            keys=("memory_share",),
            is_idle=lambda config: not _looks_for_microbatches(config),
            why="no number is searched for; set `num_microbatches: auto`, or leave it out",
        ),
        _Rule(
            keys=("stream.urls", "stream.shuffle_buffer"),
            is_idle=lambda config: config.reader == "index",
            why="`reader: index` streams nothing; set `reader: webdataset`, or leave it out",
        ),
        _Rule(
            keys=tuple(f"evaluate.{key}" for key in (*_EVALUATION, *_LOOKS)),
            is_idle=lambda config: config.evaluate.manifest is None,
            why="nothing is held out; give `evaluate.manifest`, or leave it out",
        ),
        _Rule(
            keys=tuple(f"evaluate.{key}" for key in _LOOKS),
            is_idle=lambda c: c.evaluate.manifest is not None and c.evaluate.every_steps is None,
            why="nothing is evaluated during training; set `evaluate.every_steps`, or leave it out",
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
            why="it is of transformers' models; set `type: hugging_face`, or leave it out",
        ),
        _Rule(
            keys=tuple(f"model.{size}" for size in _SIZES),
            is_idle=_is_whole,
            why="a whole model has the sizes of its folder; begin without one, or leave it out",
        ),
    ),
}
