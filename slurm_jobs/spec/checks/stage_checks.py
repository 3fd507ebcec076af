"""Checks of stages: settings without effect, resources, rows. PURE."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_jobs.shared.configs.model_parts import RANDOM_LANGUAGE, RANDOM_VISION
from slurm_jobs.shared.configs.train import OWN, as_training, own_values
from slurm_jobs.shared.dataset_folder import INFO_NAME
from slurm_jobs.shared.errors import Problem
from slurm_jobs.shared.expand import output_dir_variable
from slurm_jobs.shared.processors.model_types import (
    LANGUAGE_PART,
    MODEL_CONFIG,
    SMALL_VLM,
    TAKEN_IMAGES,
    VISION_PART,
)
from slurm_jobs.shared.records import lead_within
from slurm_jobs.shared.redact import describe
from slurm_jobs.spec.graph import CheckedSpec, StageView, preprocess_of
from slurm_jobs.spec.model import Resources, RunSpec, Stage
from slurm_jobs.spec.yaml.document import KeyPath, path_text

# Settings of built-in stages that have no effect because of other settings.
#
# They are noted, not refused: `--set stages.train.config.batching.kind=shuffled` is a way to try
# something, and may leave settings of the other kind behind.


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
            evaluate = config.evaluate
            if evaluate.every_steps is None or evaluate.num_samples is None:
                continue
            why = (
                f"evaluate.num_samples leaves {evaluate.num_samples} rows, during training too; "
                f"raise it, or give {evaluate.num_samples} or less"
            )
            too_many = [
                key for key in _DURING_TRAINING if getattr(evaluate, key) > evaluate.num_samples
            ]
            yield from _changed(spec, config, place, [f"evaluate.{k}" for k in too_many], why)


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


_ROWS = ("batching.strategy", "batching.max_tokens", "batching.max_images")
_ROWS_WHY = (
    "only `kind: packed` fills rows, and `auto`, which may choose it; set one of them, or leave it "
    "out"
)
_PHASES_WHY = "each phase has its own; change those, or leave it out"


def _phase_notes(spec: CheckedSpec, config: Any, place: KeyPath) -> Iterator[Problem]:
    """Yield notes on training settings that every phase overrides, and on each phase's rows."""
    phases, parts = list(config.phases), _parts(config)
    for key in _ROWS:
        readers = [
            part
            for number, part in enumerate(parts)
            if not phases or not _sets(phases[number], key)
        ]
        if readers and not any(map(_packs, readers)):
            yield from _changed(spec, config, place, [key], _ROWS_WHY)
    for number, phase in enumerate(phases):
        keys = [key for key in _ROWS if _sets(phase, key) and not _packs(parts[number])]
        yield from _changed(spec, parts[number], (*place, "phases", number), keys, _ROWS_WHY)
    for name in OWN if phases else ():
        value = getattr(phases[0], name)
        for key in [f"{name}.{k}" for k in value] if isinstance(value, Mapping) else [name]:
            if all(_sets(phase, key) for phase in phases):
                yield from _changed(spec, config, place, [key], _PHASES_WHY)


def _parts(config: Any) -> list[Any]:
    """Return the training as each of its phases sees it; the training itself without phases."""
    return [as_training(config, number) for number in range(len(config.phases))] or [config]


def _sets(phase: Any, key: str) -> bool:
    """Check whether a phase sets a key of its training."""
    name, _, within = key.partition(".")
    value = getattr(phase, name)
    return value is not None and (not within or within in value)


def _packs(config: Any) -> bool:
    return config.batching.kind in {"packed", "auto"}


_EVALUATION = ("image_root", "images_within", "num_samples", "max_new_tokens", "batch_size")
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
            is_idle=lambda config: "auto" not in {part.num_microbatches for part in _parts(config)},
            why="num_microbatches is a fixed number; set `num_microbatches: auto`, or leave it out",
        ),
        _Rule(
            keys=("stream.urls", "stream.shuffle_buffer"),
            is_idle=lambda config: config.reader == "index",
            why="`reader: index` streams nothing; set `reader: webdataset`, or leave it out",
        ),
        _Rule(
            keys=tuple(f"evaluate.{key}" for key in (*_EVALUATION, *_DURING_TRAINING)),
            is_idle=lambda config: config.evaluate.manifest is None,
            why="nothing is held out; give `evaluate.manifest`, or leave it out",
        ),
        _Rule(
            keys=tuple(f"evaluate.{key}" for key in _DURING_TRAINING),
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
            why="it is for transformers' models; set `type: hugging_face`, or leave it out",
        ),
        _Rule(
            keys=tuple(f"model.{size}" for size in _SIZES),
            is_idle=lambda c: c.model.type != SMALL_VLM or c.model.path is not None,
            why="only a new small_vlm takes sizes; train one without `model.path`, or leave it out",
        ),
    ),
}


# Notes on resources that a stage does not use, or gets differently from Slurm.
#
# They are noted, not refused: a partition may give no node without a GPU, and `--set` may try a
# shorter time limit.


def resource_notes(spec: CheckedSpec, valid: RunSpec) -> Iterator[Problem]:
    """Yield a note for each such key of a stage's resources, at its place."""
    for name, stage in valid.stages.items():
        place, resources = ("stages", name, "resources"), stage.resources
        if stage.run == "train" and spec.configs[name].device == "cpu" and resources.gpus_per_node:
            message = (
                f"`{resources.gpus_per_node}` only keeps GPUs from others, because the "
                "config says `device: cpu`; set `device: cuda`, or leave it out"
            )
            yield spec.problem((*place, "gpus_per_node"), message)
        timeout_min = resources.timeout_min * (stage.array.slices_per_task if stage.array else 1)
        lead_s = lead_within(timeout_min, resources.signal_lead_s)
        if "signal_lead_s" in resources.model_fields_set and lead_s < resources.signal_lead_s:
            message = (
                f"it can be at most half of the time limit ({timeout_min:g} min): the ranks are "
                f"asked to stop {lead_s} s before its end, not `{resources.signal_lead_s}`; give "
                f"{lead_s} or less, or raise timeout_min"
            )
            yield spec.problem((*place, "signal_lead_s"), message)


# Notes on training rows and model positions that are shorter than a sample may be.
#
# They are noted, not refused, because the training checks the same: it ends if a sample is longer
# than a row or than the model's positions, and starts if none is, whatever `preprocess` would have
# allowed.


def row_notes(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield a note for each limit of a row or model that is below that of the samples."""
    paths = {item.given: item.resolved for item in spec.marked}
    trainings = [item for item in spec.configs.items() if spec.views[item[0]].run == "train"]
    for name, config in trainings:
        at_config: KeyPath = ("stages", name, "config")
        positions = _positions(spec, config.model, paths)
        for number, part in enumerate(_parts(config)):
            source = preprocess_of(spec.views, name, part.dataset)
            limit, origin = None, f"the data set {part.dataset}"
            if source is not None:
                limit, origin = spec.configs[source].max_tokens, f"stage `{source}`"
            elif part.dataset is not None:
                folder = paths.get(part.dataset, part.dataset)
                settings = spec.files.json_values(f"{folder}/{INFO_NAME}").get("preprocess")
                limit = settings.get("max_tokens") if isinstance(settings, Mapping) else None
            if positions is not None and isinstance(limit, int) and limit > positions[0]:
                most, note, keys = positions
                message = (
                    f"the language model has {most:,} positions{note}, and {origin} lets a sample "
                    f"have {limit:,} tokens: one that has more than {most:,} ends the training "
                    f"before its first step; preprocess with max_tokens: {most}, or give the model "
                    "more positions"
                )
                yield spec.problem((*at_config, "model", *keys), message)
            if source is None or not _packs(part):
                continue
            batching = (config.phases[number].batching or ()) if config.phases else ()
            for key in ("max_tokens", "max_images"):
                row, sample = getattr(part.batching, key), getattr(spec.configs[source], key)
                if row is None or row >= sample:
                    continue
                message = (
                    f"a row holds {row:,} {key.removeprefix('max_')}, and stage `{source}` lets a "
                    f"sample have {sample:,}: one that has more than a row ends the training "
                    f"before its first step; set it to {sample} or more, or {key} of stage "
                    f"`{source}` to {row}"
                )
                below = ("phases", number) if key in batching else ()
                yield spec.problem((*at_config, *below, "batching", key), message)


def _positions(
    spec: CheckedSpec, model: Any, paths: Mapping[str, str]
) -> tuple[int, str, KeyPath] | None:
    """Return the positions of the language model, their origin in words, and keys of the model.

    None if only the training can know them: models on a hub, scaled rotary embeddings, and models
    whose image tokens share positions.
    """
    folder = model.path or model.language.path
    if folder is None and model.name is not None:
        return None
    if folder is None:
        return model.language.sizes()["max_positions"], "", ("language", "max_positions")
    values = spec.files.json_values(f"{paths.get(folder, folder)}/{MODEL_CONFIG}")
    parts = (values.get("text_config"), values.get("language"), values)
    language = next(part for part in parts if isinstance(part, Mapping))
    rope = language.get("rope_scaling") or language.get("rope_parameters") or {}
    limit = language.get("max_position_embeddings")
    is_shared = TAKEN_IMAGES.get(str(values.get("model_type"))) == "native"
    if is_shared or not isinstance(limit, int) or "factor" in str(rope):
        return None
    note = f" (max_position_embeddings in {folder}/{MODEL_CONFIG})"
    return limit, note, ("path",) if model.path else ("language", "path")


# Agreement between the keys of a stage, its config and its resources.


FEATURES = re.compile(r"[A-Za-z0-9_.-]+(&[A-Za-z0-9_.-]+)*")
"""Pattern of constraints that can be combined with each of several GPU types."""

_BATCH_KEYS = ("num_microbatches", "global_batch_size", "batching")
"""Settings of a training that divide a rank's samples."""

_RANKS: tuple[KeyPath, ...] = (("resources", "tasks_per_node"), ("resources", "nodes"))
"""Keys below the stage that determine the number of ranks."""


def form_problems(spec: CheckedSpec) -> Iterator[Problem]:
    """Yield keys of a stage that need or exclude each other, independent of other problems."""
    by_variable: dict[str, str] = {}
    for name, view in spec.views.items():
        place: KeyPath = ("stages", name)
        first = by_variable.setdefault(output_dir_variable(name), name)
        if first != name:
            message = f"stages `{first}` and `{name}` differ only in case or - and _; rename one"
            yield spec.at(place, message, at_key=True)
        given = {key for key, value in view.keys.items() if value is not None}
        is_mapping = isinstance(spec.document.value["stages"][name], dict)
        if {"run", "shell"} <= given:
            message = f"stage `{name}` has `run` and `shell`; give one of the two"
            yield spec.at((*place, "shell"), message, at_key=True)
        elif not {"run", "shell"} & given and given <= set(Stage.model_fields) and is_mapping:
            message = (
                f"stage `{name}` has neither `run` (a built-in stage, or package.module:function) "
                "nor `shell` (a command); give one of the two"
            )
            yield spec.at(place, message, at_key=True)
        yield from _gpu_problems(spec, view, (*place, "resources"))
        on_resume = view.keys.get("on_resume")
        raises = isinstance(on_resume, dict) and on_resume.get("raise_mem_gb") is not None
        if raises and view.resources.get("mem_gb") is None:
            message = "it raises resources.mem_gb, which the stage does not set; set it"
            yield spec.problem((*place, "on_resume", "raise_mem_gb"), message, at_key=True)
        kinds = view.keys.get("after")
        for parent, kind in kinds.items() if isinstance(kinds, dict) else ():
            if view.run == "consolidate" and kind == "aftercorr":
                message = (
                    f"each task of `{name}` reads what all slices before it made, so `aftercorr` "
                    "would start it too early; write afterok"
                )
                yield spec.at((*place, "after", parent), message)


def _gpu_problems(spec: CheckedSpec, view: StageView, place: KeyPath) -> Iterator[Problem]:
    types, options = view.resources.get("gpu"), view.resources.get("slurm")
    if types and view.resources.get("gpus_per_node", 0) == 0:
        message = f"{path_text(place)}: `gpu` names a type, but gpus_per_node is 0; say how many"
        yield spec.at((*place, "gpu"), message, at_key=True)
    constraint = options.get("constraint") if isinstance(options, dict) else None
    is_plain = not isinstance(constraint, str) or FEATURES.fullmatch(constraint)
    if isinstance(types, list) and len(types) > 1 and not is_plain:
        message = (
            "with several types of GPU it can only be names of features joined by &, found "
            f"`{constraint}`"
        )
        yield spec.problem((*place, "slurm", "constraint"), message)


def stage_problems(
    spec: CheckedSpec,
    name: str,
    resources: Resources,
    config: Any,
    *,
    unreadable: Collection[str] = (),
) -> Iterator[Problem]:
    """Yield contradictions in a `train` stage that would only appear hours later, in the job.

    `unreadable` are keys of `config` with invalid values: checks that need them are skipped.
    """
    num_ranks = resources.nodes * resources.tasks_per_node
    at_config: KeyPath = ("stages", name, "config")
    wrong = set(unreadable)
    if "device" not in wrong:
        yield from _device_problems(spec, name, resources, config)
    if "strategy" not in wrong:
        yield from _strategy_problems(spec, name, num_ranks, config)
    if "num_lanes" not in wrong and config.num_lanes % num_ranks:
        lanes = "1 lane" if config.num_lanes == 1 else f"{config.num_lanes} lanes"
        message = (
            f"stages.{name}.config.num_lanes: {lanes} cannot be divided evenly among {num_ranks} "
            f"ranks; take a multiple of {num_ranks}, or as many ranks as divide them "
            f"({_divisors(config.num_lanes)}): a resumed training keeps its lanes"
        )
        given = spec.first_set(name, ("config", "num_lanes"), *_RANKS)
        yield spec.at(given or (*at_config, "num_lanes"), message)
    elif not {*_BATCH_KEYS, "phases"} & wrong:
        yield from _microbatch_problems(spec, name, num_ranks, config)
    v100 = next((each for each in resources.gpu if "v100" in each.lower()), None)
    if "precision" not in wrong and config.precision == "bf16" and v100:
        message = (
            f"bf16, and resources.gpu has {v100}, which only emulates it; take `fp16`, or `auto` "
            "for what the GPU has"
        )
        yield spec.problem((*at_config, "precision"), message)
    if "profile" not in wrong and config.profile.steps is not None:
        missing = [rank for rank in config.profile.ranks if rank >= num_ranks]
        if missing:
            message = (
                f"there is no rank {missing[0]}, as nodes x tasks_per_node is {num_ranks}; name "
                f"ranks from 0 to {num_ranks - 1}"
            )
            yield spec.problem((*at_config, "profile", "ranks"), message)
        is_profiled = "device" not in wrong and config.device == "cuda"
        if is_profiled and spec.views[name].keys.get("nsight") is True:
            # CUPTI serves one client a process.
            message = (
                f"stage `{name}` has `nsight: true` and `profile.steps`, and a process can have "
                "one profiler of its GPU: set `nsight: false`, or `profile: {steps: null}`"
            )
            given = spec.first_set(name, ("nsight",), ("config", "profile", "steps"))
            yield spec.at(given or ("stages", name, "nsight"), message, at_key=not given)


def _divisors(number: int) -> str:
    """Format the first divisors: `1, 2, 4, 8`."""
    divisors = [str(part) for part in range(1, min(number, 1024) + 1) if number % part == 0]
    return ", ".join(divisors[:12])


def _microbatch_problems(
    spec: CheckedSpec, name: str, num_ranks: int, config: Any
) -> Iterator[Problem]:
    """Yield samples of a rank that cannot be divided evenly; packed rows are not counted."""
    values_of_phases = [own_values(config, phase) for phase in config.phases] or [{}]
    for phase, values in enumerate(values_of_phases):
        part = {key: values.get(key, getattr(config, key)) for key in _BATCH_KEYS}
        per_rank, number = part["global_batch_size"] // num_ranks, part["num_microbatches"]
        is_packed = part["batching"].kind in {"packed", "auto"}
        if number == "auto" or is_packed or per_rank % number == 0:
            continue
        is_own = not values.keys().isdisjoint({"num_microbatches", "global_batch_size"})
        below: KeyPath = ("phases", phase) if is_own else ()
        place = ("stages", name, "config", *below, "num_microbatches")
        message = (
            f"{path_text(place)}: the {per_rank} samples of a rank (global_batch_size "
            f"{part['global_batch_size']}, {num_ranks} ranks) cannot be divided into {number} of "
            f"one size; take a divisor ({_divisors(per_rank)}), or `auto`"
        )
        holders = {key: ("phases", phase) if key in values else () for key in _BATCH_KEYS[:2]}
        keys = [("config", *holder, key) for key, holder in holders.items()]
        yield spec.at(spec.first_set(name, *keys) or place, message)


def _strategy_problems(
    spec: CheckedSpec, name: str, num_ranks: int, config: Any
) -> Iterator[Problem]:
    at_config: KeyPath = ("stages", name, "config")
    given = spec.first_set(name, ("config", "strategy"), *_RANKS)
    if config.strategy in {"fsdp2", "ddp"} and num_ranks < 2:
        message = (
            f"stage `{name}` trains with {config.strategy}, which needs two ranks or more, but "
            f"nodes x tasks_per_node is {num_ranks}; ask for more, or say `strategy: single`"
        )
        yield spec.at(given or at_config, message, at_key=not given)
    if config.strategy == "single" and num_ranks > 1:
        message = (
            f"stage `{name}` has {num_ranks} ranks, but `strategy: single` uses one; "
            "say `strategy: fsdp2` or `strategy: ddp`, or ask for one rank"
        )
        yield spec.at(given or (*at_config, "strategy"), message)


def _device_problems(
    spec: CheckedSpec, name: str, resources: Resources, config: Any
) -> Iterator[Problem]:
    if config.device == "cuda" and resources.gpus_per_node < resources.tasks_per_node:
        message = (
            f"stage `{name}` trains on GPUs with tasks_per_node: {resources.tasks_per_node}, but "
            f"resources.gpus_per_node is {resources.gpus_per_node}; ask for one a rank, or say "
            "`device: cpu` in its config"
        )
        keys = (("config", "device"), ("resources", "gpus_per_node"), _RANKS[0])
        given = spec.first_set(name, *keys)
        yield spec.at(given or ("stages", name, "resources"), message, at_key=not given)
