"""Checks of stages: settings without effect, resources, rows. PURE."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_jobs.shared.configs.model_parts import RANDOM_LANGUAGE, RANDOM_VISION
from slurm_jobs.shared.configs.train import OWN, as_training, own_values
from slurm_jobs.shared.errors import Problem
from slurm_jobs.shared.expand import output_dir_variable
from slurm_jobs.shared.manifest_formats import (
    INFO_NAME,
    LANGUAGE_PART,
    MODEL_CONFIG,
    SMALL_VLM,
    TAKEN_IMAGES,
    VISION_PART,
)
from slurm_jobs.shared.records import lead_within
from slurm_jobs.shared.redact import describe
from slurm_jobs.spec.graph import StageView, Views, preprocess_of
from slurm_jobs.spec.model import Resources, RunSpec, Stage
from slurm_jobs.spec.spec_files import Files
from slurm_jobs.spec.yaml import KeyPath, YamlDocument, path_text, problem_at, was_set

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
    config: Any, place: KeyPath, key: str, why: str, document: YamlDocument
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


def _phase_notes(config: Any, place: KeyPath, document: YamlDocument) -> Iterator[Problem]:
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


def _look_notes(config: Any, place: KeyPath, document: YamlDocument) -> Iterator[Problem]:
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
    config: Any, place: KeyPath, keys: Sequence[str], why: str, document: YamlDocument
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


# Notes on resources that a stage does not use, or gets differently from Slurm.
#
# They are noted, not refused: a partition may give no node without a GPU, and `--set` may try a
# shorter time limit.


def resource_notes(
    spec: RunSpec, configs: Mapping[str, Any], document: YamlDocument
) -> Iterator[Problem]:
    """Yield a note for each such key of a stage's resources, at its place.

    Args:
        spec: without problems.
        configs: of its built-in stages.
        document: for places.
    """
    for name, stage in spec.stages.items():
        place: KeyPath = ("stages", name, "resources")
        if stage.run == "train" and configs[name].device == "cpu":
            yield from _idle_gpus(stage, place, document)
        yield from _short_lead(stage, place, document)


def _idle_gpus(stage: Stage, place: KeyPath, document: YamlDocument) -> Iterator[Problem]:
    num_gpus, path = stage.resources.gpus_per_node, (*place, "gpus_per_node")
    if num_gpus:
        message = (
            f"{path_text(path)}: `{num_gpus}` has no effect but to keep GPUs from others: the "
            "config says `device: cpu`; set `device: cuda`, or leave it out"
        )
        yield problem_at(document, path, message)


def _short_lead(stage: Stage, place: KeyPath, document: YamlDocument) -> Iterator[Problem]:
    resources, path = stage.resources, (*place, "signal_lead_s")
    if "signal_lead_s" not in resources.model_fields_set:
        return
    slices_per_task = stage.array.slices_per_task if stage.array else 1
    timeout_min, asked_s = resources.timeout_min * slices_per_task, resources.signal_lead_s
    lead_s = lead_within(timeout_min, asked_s)
    if lead_s < asked_s:
        message = (
            f"{path_text(path)}: of the time limit ({timeout_min:g} min) it can be half: the ranks "
            f"are asked to stop {lead_s} s before its end, not `{asked_s}`; give {lead_s} or less, "
            "or raise timeout_min"
        )
        yield problem_at(document, path, message)


# Notes on training rows and model positions that are shorter than a sample may be.
#
# They are noted, not refused, because the training checks the same: it ends if a sample is longer
# than a row or than the model's positions, and starts if none is, whatever `preprocess` would have
# allowed.


_LIMITS = {"max_tokens": "tokens", "max_images": "images"}
"""Limits of a row and of a sample, by the same name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Limit:
    """Most tokens that a sample may have, by the data or by the model."""

    num_tokens: int
    source: str = ""
    """Origin of the limit, in words."""
    keys: KeyPath = ()
    """Keys of the model's config."""


def row_notes(
    views: Views,
    configs: Mapping[str, Any],
    document: YamlDocument,
    paths: Mapping[str, str],
    files: Files,
) -> list[Problem]:
    """Return a note for each limit of a row or model that is below that of the samples.

    Args:
        views: the stages.
        configs: of the built-in ones, without problems.
        document: for places.
        paths: from a path in the spec to its resolved path.
        files: for descriptions of data sets and models.
    """
    notes: list[Problem] = []
    for name, config in configs.items():
        if views[name].run != "train":
            continue
        for place, own, batching, dataset in _readings(config):
            source = preprocess_of(views, name, dataset)
            limit = (
                _limit_of_stage(source, configs)
                if source is not None
                else _limit_of_dataset(dataset, paths, files)
            )
            positions = _positions(config.model, paths, files)
            if limit and positions and limit.num_tokens > positions.num_tokens:
                notes.append(_position_note(name, positions, limit, document))
            if batching.kind not in {"packed", "auto"} or source is None:
                continue
            for key in _short(batching, configs[source]):
                below = (*place, "batching", key) if key in own else ("batching", key)
                path = ("stages", name, "config", *below)
                message = _message(path, getattr(batching, key), source, configs[source])
                notes.append(problem_at(document, path, message))
    return list(dict.fromkeys(notes))


def _readings(config: Any) -> Iterator[tuple[KeyPath, Collection[str], Any, str | None]]:
    """Yield place, own batching keys, complete batching and data set of each phase."""
    for number, phase in enumerate(config.phases):
        part = as_training(config, number)
        yield ("phases", number), phase.batching or (), part.batching, part.dataset
    if not config.phases:
        yield (), (), config.batching, config.dataset


def _short(batching: Any, samples: Any) -> Iterator[str]:
    """Yield the limits of a row that are below those of the samples."""
    for key in _LIMITS:
        row = getattr(batching, key)
        if row is not None and row < getattr(samples, key):
            yield key


def _limit_of_stage(source: str, configs: Mapping[str, Any]) -> _Limit:
    return _Limit(num_tokens=configs[source].max_tokens, source=f"stage `{source}`")


def _limit_of_dataset(folder: str | None, paths: Mapping[str, str], files: Files) -> _Limit | None:
    if folder is None:
        return None
    info = files.json_values(f"{paths.get(folder, folder)}/{INFO_NAME}")
    settings = info.get("preprocess")
    limit = settings.get("max_tokens") if isinstance(settings, Mapping) else None
    if not isinstance(limit, int):
        return None
    return _Limit(num_tokens=limit, source=f"the data set {folder}")


def _positions(model: Any, paths: Mapping[str, str], files: Files) -> _Limit | None:
    """Return the positions of the language model.

    None if only the training can know them: models on a hub, scaled rotary embeddings, and models
    whose image tokens share positions.
    """
    folder = model.path or model.language.path
    if folder is None:
        if model.name is not None:
            return None
        limit = model.language.sizes()["max_positions"]
        return _Limit(num_tokens=limit, keys=("language", "max_positions"))
    values = files.json_values(f"{paths.get(folder, folder)}/{MODEL_CONFIG}")
    if TAKEN_IMAGES.get(str(values.get("model_type"))) == "native":
        return None
    parts = (values.get("text_config"), values.get("language"), values)
    language = next(part for part in parts if isinstance(part, Mapping))
    rope = language.get("rope_scaling") or language.get("rope_parameters") or {}
    limit = language.get("max_position_embeddings")
    if not isinstance(limit, int) or "factor" in str(rope):
        return None
    return _Limit(
        num_tokens=limit,
        source=f" (max_position_embeddings in {folder}/{MODEL_CONFIG})",
        keys=("path",) if model.path else ("language", "path"),
    )


def _position_note(
    name: str, positions: _Limit, samples: _Limit, document: YamlDocument
) -> Problem:
    limit = positions.num_tokens
    path: KeyPath = ("stages", name, "config", "model", *positions.keys)
    message = (
        f"{path_text(path)}: the language model has {limit:,} positions{positions.source}, and "
        f"{samples.source} lets a sample have {samples.num_tokens:,} tokens: one that has more "
        f"than {limit:,} ends the training before its first step; preprocess with max_tokens: "
        f"{limit}, or give the model more positions"
    )
    return problem_at(document, path, message)


def _message(path: KeyPath, row: int, source: str, samples: Any) -> str:
    key = str(path[-1])
    sample, unit = getattr(samples, key), _LIMITS[key]
    return (
        f"{path_text(path)}: a row holds {row:,} {unit}, and stage `{source}` "
        f"lets a sample have {sample:,}: one that has more than a row ends the training before "
        f"its first step; set it to {sample} or more, or {key} of stage `{source}` to {row}"
    )


# Agreement between the keys of a stage, its config and its resources.


FEATURES = re.compile(r"[A-Za-z0-9_.-]+(&[A-Za-z0-9_.-]+)*")
"""Pattern of constraints that can be combined with each of several GPU types."""

_CUTS = ("num_microbatches", "global_batch_size", "batching")
"""Settings of a training that divide a rank's samples."""

_RANKS: tuple[KeyPath, ...] = (("resources", "tasks_per_node"), ("resources", "nodes"))
"""Keys below the stage that determine the number of ranks."""


def form_problems(views: Mapping[str, StageView], document: YamlDocument) -> list[Problem]:
    """Return keys of a stage that need or exclude each other, independent of other problems."""
    problems = _alike_problems(views, document)
    stages = document.value["stages"] if views else {}
    with_keys = {name for name, stage in stages.items() if isinstance(stage, dict)}
    for name, view in views.items():
        given = {key for key, value in view.keys.items() if value is not None}
        path: KeyPath = ("stages", name)
        both = {"run", "shell"} & given
        if len(both) == 2:
            message = f"stage `{name}` has `run` and `shell`; give one of the two"
            problems.append(problem_at(document, (*path, "shell"), message, at_key=True))
        elif not both and given <= set(Stage.model_fields) and name in with_keys:
            message = (
                f"stage `{name}` has neither `run` (a built-in stage, or package.module:function) "
                "nor `shell` (a command); give one of the two"
            )
            problems.append(problem_at(document, path, message, at_key=True))
        problems += _gpu_problems(view, (*path, "resources"), document)
        problems += _raise_problems(name, view, document)
        problems += _all_parts_problems(name, view, document)
    return problems


def _all_parts_problems(name: str, view: StageView, document: YamlDocument) -> list[Problem]:
    """Return a problem if a task of `consolidate`, which reads all parts, would start after one."""
    kinds = view.keys.get("after")
    if view.run != "consolidate" or not isinstance(kinds, dict):
        return []
    message = (
        f"each task of `{name}` reads what all slices before it made, so `aftercorr` would start "
        "it too early; write afterok"
    )
    return [
        problem_at(document, ("stages", name, "after", parent), message)
        for parent, kind in kinds.items()
        if kind == "aftercorr"
    ]


def _alike_problems(views: Mapping[str, StageView], document: YamlDocument) -> list[Problem]:
    """Return names that share the variable by which a shell finds its parents."""
    problems = []
    seen: dict[str, str] = {}
    for name in views:
        first = seen.setdefault(output_dir_variable(name), name)
        if first != name:
            message = f"stages `{first}` and `{name}` differ only in case or - and _; rename one"
            problems.append(problem_at(document, ("stages", name), message, at_key=True))
    return problems


def _raise_problems(name: str, view: StageView, document: YamlDocument) -> list[Problem]:
    wish, resources = view.keys.get("on_resume"), view.keys.get("resources")
    given = resources.get("mem_gb") if isinstance(resources, dict) else None
    if not isinstance(wish, dict) or wish.get("raise_mem_gb") is None or given is not None:
        return []
    place = ("stages", name, "on_resume", "raise_mem_gb")
    message = f"{path_text(place)}: it raises resources.mem_gb, and the stage has none; say it"
    return [problem_at(document, place, message, at_key=True)]


def _gpu_problems(view: StageView, path: KeyPath, document: YamlDocument) -> list[Problem]:
    resources = view.keys.get("resources")
    if not isinstance(resources, dict):
        return []
    problems = []
    name = path_text(path)
    types = resources.get("gpu")
    if types and resources.get("gpus_per_node", 0) == 0:
        message = f"{name}: `gpu` names a type, but gpus_per_node is 0; say how many"
        problems.append(problem_at(document, (*path, "gpu"), message, at_key=True))
    options = resources.get("slurm")
    constraint = options.get("constraint") if isinstance(options, dict) else None
    is_plain = not isinstance(constraint, str) or FEATURES.fullmatch(constraint)
    if isinstance(types, list) and len(types) > 1 and not is_plain:
        message = (
            f"{name}.slurm.constraint: with several types of GPU it can only be names of "
            f"features joined by &, found `{constraint}`"
        )
        problems.append(problem_at(document, (*path, "slurm", "constraint"), message))
    return problems


def stage_problems(
    name: str,
    resources: Resources,
    config: Any,
    document: YamlDocument,
    *,
    unreadable: Collection[str] = (),
) -> list[Problem]:
    """Return contradictions in a `train` stage that would only appear hours later, in the job.

    `unreadable` are keys of `config` with invalid values: checks that need them are skipped.
    """
    problems = []
    if "device" not in unreadable:
        problems += _device_problems(name, resources, config, document)
    if "strategy" not in unreadable:
        problems += _strategy_problems(name, resources, config, document)
    num_ranks = resources.nodes * resources.tasks_per_node
    if "num_lanes" not in unreadable and config.num_lanes % num_ranks:
        message = (
            f"stages.{name}.config.num_lanes: {_lanes(config.num_lanes)} cannot be shared out "
            f"evenly to {num_ranks} ranks; take a multiple of {num_ranks}, or as many ranks as "
            f"divide them ({_divisors(config.num_lanes)}): a resumed training keeps its lanes"
        )
        problems.append(problem_at(document, _lanes_place(name, document), message))
    elif not {*_CUTS, "phases"} & set(unreadable):
        problems += _microbatch_problems(name, num_ranks, config, document)
    if "precision" not in unreadable:
        problems += _precision_problems(name, resources, config, document)
    if "profile" not in unreadable:
        problems += _profile_problems(name, num_ranks, config, document)
    if not {"profile", "device"} & set(unreadable):
        problems += _profiler_problems(name, config, document)
    return problems


def _lanes(number: int) -> str:
    return "1 lane" if number == 1 else f"{number} lanes"


def _lanes_place(name: str, document: YamlDocument) -> KeyPath:
    """Return the key for lanes or ranks that was set on the command line, else the lanes."""
    at_stage: KeyPath = ("stages", name)
    lanes: KeyPath = (*at_stage, "config", "num_lanes")
    ranks = [(*at_stage, "resources", key) for key in ("tasks_per_node", "nodes")]
    return next((place for place in (lanes, *ranks) if was_set(document, at_stage, place)), lanes)


def _divisors(number: int) -> str:
    """Format the first divisors: `1, 2, 4, 8`."""
    found = [str(part) for part in range(1, min(number, 1024) + 1) if number % part == 0]
    return ", ".join(found[:12])


def _microbatch_problems(
    name: str, num_ranks: int, config: Any, document: YamlDocument
) -> list[Problem]:
    """Return samples of a rank that cannot be divided evenly; packed rows are not counted."""
    problems = []
    own = [(own_values(config, phase), number) for number, phase in enumerate(config.phases)]
    for values, phase in own or [({}, 0)]:
        part = {key: values.get(key, getattr(config, key)) for key in _CUTS}
        per_rank, number = part["global_batch_size"] // num_ranks, part["num_microbatches"]
        is_packed = part["batching"].kind in {"packed", "auto"}
        if number == "auto" or is_packed or per_rank % number == 0:
            continue
        is_own = not values.keys().isdisjoint({"num_microbatches", "global_batch_size"})
        below: KeyPath = ("phases", phase) if is_own else ()
        place = ("stages", name, "config", *below, "num_microbatches")
        message = (
            f"{path_text(place)}: the {per_rank} samples of a rank (global_batch_size "
            f"{part['global_batch_size']}, {num_ranks} ranks) cannot be cut into {number} of one "
            f"size; take a divisor ({_divisors(per_rank)}), or `auto`"
        )
        holders = {key: ("phases", phase) if key in values else () for key in _CUTS[:2]}
        keys = [("config", *holder, key) for key, holder in holders.items()]
        given = _first_set(name, document, keys)
        problems.append(problem_at(document, given or place, message))
    return problems


def _precision_problems(
    name: str, resources: Resources, config: Any, document: YamlDocument
) -> list[Problem]:
    """Return a problem for bf16 if a job may get V100s, which only emulate it."""
    types = [each for each in resources.gpu if "v100" in each.lower()]
    if config.precision != "bf16" or not types:
        return []
    message = (
        f"stages.{name}.config.precision: bf16, and resources.gpu has {types[0]}, which only "
        "emulates it; take `fp16`, or `auto` for what the GPU has"
    )
    return [problem_at(document, ("stages", name, "config", "precision"), message)]


def _profile_problems(
    name: str, num_ranks: int, config: Any, document: YamlDocument
) -> list[Problem]:
    missing = [rank for rank in config.profile.ranks if rank >= num_ranks]
    if config.profile.steps is None or not missing:
        return []
    place = ("stages", name, "config", "profile", "ranks")
    message = (
        f"{path_text(place)}: there is no rank {missing[0]}, as nodes x tasks_per_node is "
        f"{num_ranks}; name ranks from 0 to {num_ranks - 1}"
    )
    return [problem_at(document, place, message)]


def _profiler_problems(name: str, config: Any, document: YamlDocument) -> list[Problem]:
    """Return a problem for two GPU profilers: CUPTI serves one client a process."""
    at_stage: KeyPath = ("stages", name)
    nsight = document.value["stages"][name].get("nsight")
    if nsight is not True or config.profile.steps is None or config.device != "cuda":
        return []
    message = (
        f"stage `{name}` has `nsight: true` and `profile.steps`, and a process can have one "
        "profiler of its GPU: set `nsight: false`, or `profile: {steps: null}`"
    )
    given = _first_set(name, document, (("nsight",), ("config", "profile", "steps")))
    return [problem_at(document, given or (*at_stage, "nsight"), message, at_key=not given)]


def _strategy_problems(
    name: str, resources: Resources, config: Any, document: YamlDocument
) -> list[Problem]:
    num_ranks = resources.nodes * resources.tasks_per_node
    at_config: KeyPath = ("stages", name, "config")
    given = _first_set(name, document, (("config", "strategy"), *_RANKS))
    if config.strategy in {"fsdp2", "ddp"} and num_ranks < 2:
        message = (
            f"stage `{name}` trains with {config.strategy}, which needs two ranks or more, but "
            f"nodes x tasks_per_node is {num_ranks}; ask for more, or say `strategy: single`"
        )
        return [problem_at(document, given or at_config, message, at_key=not given)]
    if config.strategy == "single" and num_ranks > 1:
        message = (
            f"stage `{name}` has {num_ranks} ranks, but `strategy: single` uses one; "
            "say `strategy: fsdp2` or `strategy: ddp`, or ask for one rank"
        )
        return [problem_at(document, given or (*at_config, "strategy"), message)]
    return []


def _device_problems(
    name: str, resources: Resources, config: Any, document: YamlDocument
) -> list[Problem]:
    if config.device != "cuda" or resources.gpus_per_node >= resources.tasks_per_node:
        return []
    message = (
        f"stage `{name}` trains on GPUs with tasks_per_node: {resources.tasks_per_node}, but "
        f"resources.gpus_per_node is {resources.gpus_per_node}; ask for one a rank, or say "
        "`device: cpu` in its config"
    )
    keys = (("config", "device"), ("resources", "gpus_per_node"), _RANKS[0])
    given = _first_set(name, document, keys)
    place = given or ("stages", name, "resources")
    return [problem_at(document, place, message, at_key=not given)]


def _first_set(name: str, document: YamlDocument, keys: Sequence[KeyPath]) -> KeyPath:
    """Return the first of the keys that was set on the command line; empty if none was."""
    at_stage: KeyPath = ("stages", name)
    places = [(*at_stage, *key) for key in keys]
    return next((place for place in places if was_set(document, at_stage, place)), ())
