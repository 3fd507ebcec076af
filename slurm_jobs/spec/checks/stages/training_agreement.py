"""Agreement between the config of a training and the resources of its stage. PURE."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from slurm_jobs.base.errors import Problem
from slurm_jobs.formats.configs.training_phases import own_values
from slurm_jobs.spec.checked_spec import CheckedSpec
from slurm_jobs.spec.model import Resources
from slurm_jobs.spec.yaml.document import KeyPath, path_text

_BATCH_KEYS = ("num_microbatches", "global_batch_size", "batching")
"""Settings of a training that divide a rank's samples."""

_RANKS: tuple[KeyPath, ...] = (("resources", "tasks_per_node"), ("resources", "nodes"))
"""Keys below the stage that determine the number of ranks."""


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
