"""FSDP settings in a file of accelerate, and those that are refused. PURE.

accelerate silently ignores several keys, and accepts others that break a later stage.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

KNOWN_FSDP_KEYS = frozenset(
    [
        "fsdp_version",
        "fsdp_offload_params",
        "fsdp_min_num_params",
        "fsdp_sharding_strategy",
        "fsdp_reshard_after_forward",
        "fsdp_auto_wrap_policy",
        "fsdp_transformer_layer_cls_to_wrap",
        "fsdp_backward_prefetch",
        "fsdp_state_dict_type",
        "fsdp_forward_prefetch",
        "fsdp_use_orig_params",
        "fsdp_cpu_ram_efficient_loading",
        "fsdp_sync_module_states",
        "fsdp_activation_checkpointing",
        "fsdp_activation_checkpointing_offload",
        "fsdp_ignored_modules",
    ]
)
"""Keys of `fsdp_config`; accelerate silently ignores unknown ones."""
WRAP_BY_LAYER = "TRANSFORMER_BASED_WRAP"
PARALLEL = "parallelism_config_"


@dataclass(frozen=True, kw_only=True, slots=True)
class Asker:
    """Values in the spec that the file also sets."""

    num_ranks: int
    num_nodes: int
    device: str
    precision: str


def fsdp_problems(values: Mapping[str, Any], asker: Asker) -> list[str]:
    """Return problems of a file whose type is FSDP, each with its remedy."""
    fsdp = values.get("fsdp_config") or {}
    if not isinstance(fsdp, Mapping):
        return ["fsdp_config: no keys and values"]
    fsdp = fsdp_of(values)
    problems = unknown_keys(fsdp, KNOWN_FSDP_KEYS, "fsdp_config.")
    if str(fsdp.get("fsdp_version", 1)) != "2":
        problems.append(
            f"fsdp_version is {fsdp.get('fsdp_version', '1, as it is not given')}, and only 2 runs "
            "here: `accelerate to-fsdp2 --config_file FILE --output_file NEW` converts the file"
        )
        return problems
    policy = wrap_policy(fsdp)
    if policy not in {WRAP_BY_LAYER, "NO_WRAP"}:
        problems.append(
            f"fsdp_auto_wrap_policy is {policy}, which shards no model that has a list of layers: "
            f"take {WRAP_BY_LAYER}, or NO_WRAP"
        )
    return problems + _silent_problems(fsdp) + _mesh_problems(values, asker)


def _silent_problems(fsdp: Mapping[str, Any]) -> list[str]:
    """Return keys that accelerate silently ignores under version 2, or that break other things."""
    problems = []
    strategy = str(fsdp.get("fsdp_sharding_strategy", "FULL_SHARD")).upper()
    if strategy not in {"FULL_SHARD", "1"}:
        problems.append(
            f"fsdp_sharding_strategy is {strategy}, which version 2 does not read: say it by "
            "fsdp_reshard_after_forward, or by parallelism_config_dp_replicate_size and "
            "_dp_shard_size"
        )
    if is_on(fsdp.get("fsdp_forward_prefetch")):
        problems.append(
            "fsdp_forward_prefetch is true, which version 2 does not read: leave it out, or set "
            "`strategy: fsdp2` with `sharding: {forward_prefetch: 1}`"
        )
    if is_on(fsdp.get("fsdp_activation_checkpointing")):
        problems.append(
            "fsdp_activation_checkpointing is true, which renames parameters, so that adapters "
            "are missing from what is saved: leave it out, and set `activation_checkpointing: "
            "true` in the stage's config"
        )
    if fsdp.get("fsdp_ignored_modules"):
        problems.append(
            "fsdp_ignored_modules is given: gradients of what is not sharded are never reduced; "
            "leave it out"
        )
    return problems


def _mesh_problems(values: Mapping[str, Any], asker: Asker) -> list[str]:
    sizes = mesh_sizes(values)
    if not sizes:
        return []
    num_replicas, num_shards = sizes.get("dp_replicate_size", 1), sizes.get("dp_shard_size", 1)
    if num_replicas * num_shards != asker.num_ranks:
        message = (
            f"{PARALLEL}dp_replicate_size x dp_shard_size is {num_replicas} x {num_shards}, and "
            f"the stage has {asker.num_ranks} ranks: their product must be that"
        )
        return [message]
    if num_shards == 1:
        return [f"{PARALLEL}dp_shard_size is 1, which shards nothing: take MULTI_GPU"]
    return []


def mesh_sizes(values: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of `parallelism_config` by their short names (`dp_shard_size`)."""
    given = values.get("parallelism_config") or {}
    if not isinstance(given, Mapping):
        return {}
    names = {str(key).removeprefix(PARALLEL): value for key, value in given.items()}
    return {n: v for n, v in names.items() if n.endswith("_size") and type(v) is int}


def fsdp_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `fsdp_config` with full names: accelerate takes `version` for `fsdp_version`."""
    given = values.get("fsdp_config") or {}
    whole = ((str(k) if str(k).startswith("fsdp") else f"fsdp_{k}", v) for k, v in given.items())
    return {key: value for key, value in whole if value is not None}


def wrap_policy(fsdp: Mapping[str, Any]) -> str:
    """Return which modules are gathered one at a time, from the result of `fsdp_of`."""
    return str(fsdp.get("fsdp_auto_wrap_policy", "NO_WRAP")).upper()


def is_on(value: Any) -> bool:
    """Return a switch as accelerate reads it; it may be text."""
    return str(value).lower() in {"true", "1", "yes", "y", "t", "on"}


def unknown_keys(given: Iterable[Any], known: Iterable[str], prefix: str) -> list[str]:
    """Return keys that accelerate does not know, each with the nearest known one."""
    problems = []
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(str(key), sorted(known), n=1, cutoff=0.6)
            hint = f"; did you mean `{near[0]}`?" if near else ""
            problems.append(f"accelerate knows no key `{prefix}{key}`{hint}")
    return problems
