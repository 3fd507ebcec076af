"""Content of a file of `accelerate config`, and the settings in it that are refused. PURE.

The same rules serve `check` on the login node and every rank, which reads the file again, because
it may have changed. Only accelerate itself, on the ranks, applies the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from slurm_jobs.base.texts.did_you_mean import did_you_mean


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


KNOWN_KEYS = _words(
    """compute_environment distributed_type mixed_precision use_cpu debug num_processes machine_rank
    num_machines gpu_ids main_process_ip main_process_port rdzv_backend same_network
    main_training_function enable_cpu_affinity fp8_config deepspeed_config fsdp_config
    parallelism_config megatron_lm_config mpirun_config downcast_bf16 tpu_name tpu_zone
    tpu_use_cluster tpu_use_sudo command_file commands tpu_vm tpu_env dynamo_config fp16
    dynamo_backend"""
)
"""Keys of the whole file; the last two are those of older files."""
KNOWN_FSDP_KEYS = _words(
    """fsdp_version fsdp_offload_params fsdp_min_num_params fsdp_sharding_strategy
    fsdp_reshard_after_forward fsdp_auto_wrap_policy fsdp_transformer_layer_cls_to_wrap
    fsdp_backward_prefetch fsdp_state_dict_type fsdp_forward_prefetch fsdp_use_orig_params
    fsdp_cpu_ram_efficient_loading fsdp_sync_module_states fsdp_activation_checkpointing
    fsdp_activation_checkpointing_offload fsdp_ignored_modules"""
)
"""Keys of `fsdp_config`; accelerate silently ignores unknown ones."""
_WRAP_BY_LAYER = "TRANSFORMER_BASED_WRAP"
_PARALLEL = "parallelism_config_"
_PRECISIONS = {"no": "fp32", "fp16": "fp16", "bf16": "bf16"}
_DEVICES = {"MULTI_CPU": "cpu", "MULTI_GPU": "cuda"}
_TYPES = ("FSDP", "MULTI_GPU", "MULTI_CPU", "NO")
_YAML_NO = "YAML reads `no` without quotes as false: write 'no'"


@dataclass(frozen=True, kw_only=True, slots=True)
class SpecValues:
    """Values in the spec that the file also sets."""

    num_ranks: int
    num_nodes: int
    device: str
    precision: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AccelerateFile:
    """Settings of a file without problems."""

    distributed_type: str
    """`FSDP`, `MULTI_GPU`, `MULTI_CPU` or `NO`."""
    precision: str
    """`fp32`, `bf16` or `fp16`."""
    wraps_layers: bool
    """Under FSDP, true if layers are gathered one by one."""
    layer_classes: tuple[str, ...]
    """Classes of the layers; empty leaves them to the model."""
    offloads: bool
    """True if weights, gradients and optimizer are kept in the host's memory."""
    num_replicas: int
    """Number of copies of the sharded whole."""


def understand(values: Mapping[str, Any]) -> AccelerateFile:
    """Return the settings of a file in which `find_problems` found none."""
    fsdp = _fsdp_of(values)
    names = str(fsdp.get("fsdp_transformer_layer_cls_to_wrap", ""))
    return AccelerateFile(
        distributed_type=values["distributed_type"],
        precision=precision_of(values) or "fp32",
        wraps_layers=_wrap_policy(fsdp) == _WRAP_BY_LAYER,
        layer_classes=tuple(names.split(",")) if names else (),
        offloads=_is_on(fsdp.get("fsdp_offload_params")),
        num_replicas=_mesh_sizes(values).get("dp_replicate_size", 1),
    )


def precision_of(values: Mapping[str, Any]) -> str | None:
    """Return `fp32`, `bf16` or `fp16`; None for other values in the file."""
    return _PRECISIONS.get(str(_mixed_precision(values)).lower())


def find_problems(values: Any, asker: SpecValues) -> list[str]:
    """Return why a training cannot follow the file, each with its remedy; empty if it can."""
    if not isinstance(values, Mapping):
        return ["no keys and values, as `accelerate config` writes them"]
    return [
        *_unknown_keys(values, KNOWN_KEYS, ""),
        *_resource_problems(values, asker),
        *_run_problems(values, asker),
        *(_fsdp_problems(values, asker) if values.get("distributed_type") == "FSDP" else ()),
    ]


def _unknown_keys(given: Mapping[Any, Any], known: frozenset[str], prefix: str) -> Iterator[str]:
    for key in given:
        if key not in known:
            yield f"accelerate knows no key `{prefix}{key}`{did_you_mean(str(key), known)}"


def _resource_problems(values: Mapping[str, Any], asker: SpecValues) -> Iterator[str]:
    """Yield problems of the kind of job, and of what Slurm decides: it starts the ranks."""
    kind = values.get("distributed_type")
    if values.get("compute_environment", "LOCAL_MACHINE") != "LOCAL_MACHINE":
        yield f"compute_environment is {values['compute_environment']}: write LOCAL_MACHINE"
    elif kind is False:
        yield f"distributed_type is false: {_YAML_NO.replace('no', 'NO')}"
    elif kind not in _TYPES:
        known = ", ".join(_TYPES)
        yield f"distributed_type is {kind}, which slurm-jobs does not run: take one of {known}"
    for key, number, units in (
        ("num_processes", asker.num_ranks, "ranks (nodes x tasks_per_node)"),
        ("num_machines", asker.num_nodes, "nodes"),
    ):
        if values.get(key) not in (None, -1, number):
            yield (
                f"{key} is {values[key]}, and the stage has {number} {units}: leave it out of the "
                "file, or change the stage's resources"
            )
    if values.get("gpu_ids") not in (None, "all"):
        yield f"gpu_ids is {values['gpu_ids']}, and Slurm gives out GPUs: leave it out"
    if kind == "NO" and asker.num_ranks > 1:
        yield (
            f"distributed_type is NO, and the stage has {asker.num_ranks} ranks: take MULTI_GPU or "
            "FSDP, or ask for one rank"
        )
    if str(kind) in _DEVICES and asker.num_ranks < 2:
        yield (
            f"distributed_type is {kind}, which needs two ranks or more, and the stage has one: "
            "take NO, or ask for more"
        )


def _run_problems(values: Mapping[str, Any], asker: SpecValues) -> Iterator[str]:
    """Yield problems of device, precision, compilation and parallelism."""
    kind = str(values.get("distributed_type"))
    device = _DEVICES.get(kind, "cpu" if _is_on(values.get("use_cpu")) else asker.device)
    if device != asker.device:
        setting = f"distributed_type is {kind}" if kind in _DEVICES else "use_cpu is true"
        yield f"{setting}, and the stage's device is {asker.device}: change one of the two"
    given, precision = _mixed_precision(values), precision_of(values)
    if given is False:
        yield f"mixed_precision is false: {_YAML_NO}"
    elif precision is None:
        yield f"mixed_precision is {given}, which slurm-jobs does not run: take bf16, fp16, 'no'"
    elif asker.precision not in {"auto", precision}:
        yield (
            f"mixed_precision is {given}, and the stage's precision is {asker.precision}: leave "
            "precision out, or change one of the two"
        )
    dynamo = values.get("dynamo_config") or {}
    if isinstance(dynamo, Mapping):
        dynamo = dynamo.get("dynamo_backend", dynamo.get("backend", "NO"))
    backend = values.get("dynamo_backend", dynamo or "NO")
    if str(backend).upper() not in {"NO", "FALSE", "NONE"}:
        yield (
            f"dynamo_backend is {backend}: compiling the whole model renames its parameters; "
            "leave it out, and set `compile: {}` in the stage's config"
        )
    sizes = _mesh_sizes(values)
    if sizes and kind != "FSDP":
        yield "parallelism_config is for distributed_type FSDP alone: leave it out"
    for name, size in sizes.items():
        if not name.startswith("dp_") and size != 1:
            reason = "each rank reads its own samples here, so leave it 1"
            yield f"{_PARALLEL}{name} is {size}: {reason}"


def _is_on(value: Any) -> bool:
    """Return a switch as accelerate reads it; it may be text."""
    return str(value).lower() in {"true", "1", "yes", "y", "t", "on"}


_FSDP_SWITCHES: Mapping[str, str] = {
    "fsdp_forward_prefetch": (
        "true, which version 2 does not read: leave it out, or set `strategy: fsdp2` with "
        "`sharding: {forward_prefetch: 1}`"
    ),
    "fsdp_activation_checkpointing": (
        "true, which renames parameters, so that adapters are missing from what is saved: "
        "leave it out, and set `activation_checkpointing: true` in the stage's config"
    ),
}
"""Switches that version 2 silently ignores, or that break a later stage."""


def _fsdp_problems(values: Mapping[str, Any], asker: SpecValues) -> Iterator[str]:
    if not isinstance(values.get("fsdp_config") or {}, Mapping):
        yield "fsdp_config: no keys and values"
        return
    fsdp = _fsdp_of(values)
    yield from _unknown_keys(fsdp, KNOWN_FSDP_KEYS, "fsdp_config.")
    if str(fsdp.get("fsdp_version", 1)) != "2":
        yield (
            f"fsdp_version is {fsdp.get('fsdp_version', '1, as it is not given')}, and only 2 runs "
            "here: `accelerate to-fsdp2 --config_file FILE --output_file NEW` converts the file"
        )
        return
    policy = _wrap_policy(fsdp)
    if policy not in {_WRAP_BY_LAYER, "NO_WRAP"}:
        yield (
            f"fsdp_auto_wrap_policy is {policy}, which shards no model that has a list of layers: "
            f"take {_WRAP_BY_LAYER}, or NO_WRAP"
        )
    sharding = str(fsdp.get("fsdp_sharding_strategy", "FULL_SHARD")).upper()
    if sharding not in {"FULL_SHARD", "1"}:
        yield (
            f"fsdp_sharding_strategy is {sharding}, which version 2 does not read: say it by "
            "fsdp_reshard_after_forward, or by parallelism_config_dp_replicate_size and "
            "_dp_shard_size"
        )
    for key, problem in _FSDP_SWITCHES.items():
        if _is_on(fsdp.get(key)):
            yield f"{key} is {problem}"
    if fsdp.get("fsdp_ignored_modules"):
        yield (
            "fsdp_ignored_modules is given: gradients of what is not sharded are never reduced; "
            "leave it out"
        )
    sizes = _mesh_sizes(values)
    num_replicas, num_shards = sizes.get("dp_replicate_size", 1), sizes.get("dp_shard_size", 1)
    if sizes and num_replicas * num_shards != asker.num_ranks:
        yield (
            f"{_PARALLEL}dp_replicate_size x dp_shard_size is {num_replicas} x {num_shards}, and "
            f"the stage has {asker.num_ranks} ranks: their product must be that"
        )
    elif sizes and num_shards == 1:
        yield f"{_PARALLEL}dp_shard_size is 1, which shards nothing: take MULTI_GPU"


def _mesh_sizes(values: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes of `parallelism_config` by their short names (`dp_shard_size`)."""
    given = values.get("parallelism_config") or {}
    if not isinstance(given, Mapping):
        return {}
    sizes = {str(key).removeprefix(_PARALLEL): value for key, value in given.items()}
    return {n: v for n, v in sizes.items() if n.endswith("_size") and type(v) is int}


def _fsdp_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return `fsdp_config` with full names: accelerate takes `version` for `fsdp_version`."""
    given = values.get("fsdp_config") or {}
    whole = ((str(k) if str(k).startswith("fsdp") else f"fsdp_{k}", v) for k, v in given.items())
    return {key: value for key, value in whole if value is not None}


def _wrap_policy(fsdp: Mapping[str, Any]) -> str:
    """Return which modules are gathered one at a time, from the result of `_fsdp_of`."""
    return str(fsdp.get("fsdp_auto_wrap_policy", "NO_WRAP")).upper()


def _mixed_precision(values: Mapping[str, Any]) -> Any:
    given = values.get("mixed_precision")
    older = "fp16" if values.get("fp16") else "no"
    return older if given is None else given
