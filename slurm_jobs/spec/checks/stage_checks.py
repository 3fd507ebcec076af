"""Agreement between the keys of a stage, its config and its resources. PURE."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from slurm_jobs.common.errors import Problem
from slurm_jobs.common.references import output_dir_variable
from slurm_jobs.common.stage_config.phases import own_values
from slurm_jobs.spec.graph import StageView, stage_views
from slurm_jobs.spec.model import Resources, Stage
from slurm_jobs.spec.overrides import steps_of
from slurm_jobs.spec.validation import path_text, problem_at, was_set
from slurm_jobs.spec.yaml_values import Path, YamlDocument

FEATURES = re.compile(r"[A-Za-z0-9_.-]+(&[A-Za-z0-9_.-]+)*")
"""Pattern of constraints that can be combined with each of several GPU types."""

_WITHOUT_LIMIT = frozenset({"consolidate", "train", "report"})
"""Built-in stages without a limit on samples."""

_CUTS = ("num_microbatches", "global_batch_size", "batching")
"""Settings of a training that divide a rank's samples."""

_RANKS: tuple[Path, ...] = (("resources", "tasks_per_node"), ("resources", "nodes"))
"""Keys below the stage that determine the number of ranks."""


def form_problems(views: Mapping[str, StageView], document: YamlDocument) -> list[Problem]:
    """Return keys of a stage that need or exclude each other, independent of other problems."""
    problems = _alike_problems(views, document)
    stages = document.value["stages"] if views else {}
    with_keys = {name for name, stage in stages.items() if isinstance(stage, dict)}
    for name, view in views.items():
        given = {key for key, value in view.keys.items() if value is not None}
        path: Path = ("stages", name)
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


def limit_problems(document: YamlDocument, typed: Collection[str]) -> list[Problem]:
    """Return a problem for a limit among the overrides just `typed` that no stage would use."""
    if not any(steps_of(override) == ["limit"] for override in typed):
        return []
    limit = document.value.get("limit") if isinstance(document.value, dict) else None
    views = stage_views(document.value).values()
    may_ask = [v for v in views if v.run not in _WITHOUT_LIMIT and v.keys.get("shell") is None]
    if not isinstance(limit, int) or may_ask or not views:
        return []
    message = (
        "limit: no stage of this spec takes it: `run: preprocess` takes so many samples of its "
        "manifest, and a function of yours may (`context.limit`); leave it out"
    )
    return [problem_at(document, ("limit",), message)]


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


def _gpu_problems(view: StageView, path: Path, document: YamlDocument) -> list[Problem]:
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


def _lanes_place(name: str, document: YamlDocument) -> Path:
    """Return the key for lanes or ranks that was set on the command line, else the lanes."""
    at_stage: Path = ("stages", name)
    lanes: Path = (*at_stage, "config", "num_lanes")
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
        below: Path = ("phases", phase) if is_own else ()
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
    at_stage: Path = ("stages", name)
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
    at_config: Path = ("stages", name, "config")
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


def _first_set(name: str, document: YamlDocument, keys: Sequence[Path]) -> Path:
    """Return the first of the keys that was set on the command line; empty if none was."""
    at_stage: Path = ("stages", name)
    places = [(*at_stage, *key) for key in keys]
    return next((place for place in places if was_set(document, at_stage, place)), ())
