"""What a pair of ranks of its own does with files of accelerate; beside `cases`."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import Any

import torch
import yaml
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from pipeline.train.phase import phases_of
from pipeline.train.strategies.strategy import ParallelModel
from pipeline.train.trained_model.trained_model import switch_phase
from tests.pipeline.train.strategies.accelerate_shim import sharding_on_cpu
from tests.pipeline.train.strategies.cases import (
    CASES,
    PACKED_KIND,
    TIED,
    case,
    check_parallelized_by,
    poison_on_rank_1,
    replicate,
    shard,
    single,
    training,
)
from tests.pipeline.train.strategies.trainer import Trainer, rank_device_of

BEFORE = frozenset(CASES)
TWINS = {
    **{
        f"accelerate {name}{change}": f"{name}{change.removesuffix(', recomputed')}"
        for name in ("ddp", "fsdp2")
        for change in (
            *("", ", 2 microbatches", ", bf16", ", fp16"),
            *(", adapters", ", adapters, recomputed"),
        )
    },
    "accelerate ddp, packed": "packed, dense, ddp",
    "accelerate fsdp2, packed": "packed, dense, fsdp2",
    "accelerate fsdp2, tied": "fsdp2, tied",
    "accelerate fsdp2, one unit": "fsdp2, one unit",
    "accelerate fsdp2, weights kept": "weights kept after forward",
    "accelerate fsdp2, offload": "offload",
    "accelerate fsdp2, read by rank 0": "fsdp2",
    "accelerate fsdp2, language layers": "fsdp2",
    "accelerate fsdp2, mesh": "fsdp2",
    "second phase, accelerate ddp": "second phase, ddp",
    "second phase, accelerate fsdp2": "second phase, fsdp2",
}
"""Cases, and the case of our own strategy that each must equal."""
ALSO_COMPARED = frozenset(
    {
        "text on rank 1, smolvlm, single",
        "ddp, overflow on rank 1",
        "fsdp2, overflow on rank 1",
    }
)
DDP = {"distributed_type": "MULTI_CPU"}
BY_LAYER = {"fsdp_version": 2, "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP"}


def fsdp(**keys: Any) -> dict[str, Any]:
    return {"distributed_type": "FSDP", "fsdp_config": {**BY_LAYER, **keys}}


FSDP = fsdp()
FILES = {"ddp": DDP, "fsdp2": FSDP}
LORA = {"kind": "qwen2_5_vl", "adapters": {"rank": 4, "alpha": 8.0}}
TWO_PHASES = {
    "num_steps": None,
    "phases": [
        {"name": "projector", "learn": ["projector"], "num_steps": 1},
        {"name": "all", "learn": ["all"], "num_steps": 3},
    ],
}


def write(trainer: Trainer, values: dict[str, Any]) -> dict[str, Any]:
    """The options of a training by such a file."""
    path = trainer.folder / "accelerate.yaml"
    path.write_text(yaml.safe_dump(values))
    return {"strategy": "accelerate", "accelerate": {"config": str(path)}}


def by_file(name: str, values: dict[str, Any], *, poisoned: bool = False, **options: Any) -> None:
    def train(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
        poison = poison_on_rank_1(pair) if poisoned else None
        with sharding_on_cpu():
            return pair.train(poison=poison, **write(pair, values), **options)

    case(f"accelerate {name}")(train)


single("single, adapters", **LORA)
training("fsdp2, adapters", **LORA)
training("ddp, adapters", strategy="ddp", **LORA)
training("fsdp2, tied", kind=TIED)
by_file("fsdp2, tied", FSDP, kind=TIED)
for name, values in FILES.items():
    by_file(name, values)
    by_file(f"{name}, 2 microbatches", values, num_microbatches=2)
    by_file(f"{name}, adapters", values, **LORA)
    by_file(f"{name}, adapters, recomputed", values, activation_checkpointing=True, **LORA)
    by_file(f"{name}, packed", values, kind=PACKED_KIND, rows="packed", attention="dense")
    by_file(f"{name}, text on rank 1", values, kind="smolvlm", rows="text on rank 1")
    for precision in ("bf16", "fp16"):
        by_file(
            f"{name}, {precision}", {**values, "mixed_precision": precision}, precision=precision
        )
    halved = {**values, "mixed_precision": "fp16"}
    options = {"precision": "fp16", "scaler": {"init_scale": 1024.0}}
    by_file(f"{name}, overflow on rank 1", halved, poisoned=True, **options)
by_file("fsdp2, one unit", fsdp(fsdp_auto_wrap_policy="NO_WRAP"))
by_file("fsdp2, weights kept", fsdp(fsdp_reshard_after_forward=False))
by_file("fsdp2, offload", fsdp(fsdp_offload_params=True))
by_file("fsdp2, read by rank 0", fsdp(fsdp_cpu_ram_efficient_loading=True))
by_file("fsdp2, language layers", fsdp(fsdp_transformer_layer_cls_to_wrap="Qwen2DecoderLayer"))
by_file("fsdp2, no such layer", fsdp(fsdp_transformer_layer_cls_to_wrap="LlamaDecoderLayer"))
by_file(
    "fsdp2, mesh",
    {
        **FSDP,
        "parallelism_config": {
            "parallelism_config_dp_replicate_size": 1,
            "parallelism_config_dp_shard_size": 2,
        },
    },
)
by_file("refuses", fsdp(fsdp_reshard_after_forward="SHARD_GRAD_OP"))


@case("accelerate without sharding on CPUs")
def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    return pair.train(**write(pair, FSDP))


@case("accelerate, variables and state of another")
def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    """What the job inherited asks for FSDP 1 in bf16, and an accelerator in bf16 was made."""
    names = ("ACCELERATE_USE_FSDP", "ACCELERATE_MIXED_PRECISION", "FSDP_VERSION")
    inherited = dict(zip(names, ("true", "bf16", "1"), strict=True))
    AcceleratorState._reset_state(reset_partial_state=True)
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    who = dict(zip(names, (str(pair.ranks.rank), "0", "2", "2"), strict=True))
    with _environment(who):
        Accelerator(cpu=True, mixed_precision="bf16")
    with _environment(inherited), sharding_on_cpu():
        before, num_threads = dict(os.environ), torch.get_num_threads()
        found = pair.train(**write(pair, DDP))
        unchanged = before == dict(os.environ) and num_threads == torch.get_num_threads()
    return {**found, "unchanged": unchanged}


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def second_phase(name: str, values: dict[str, Any] | None, **options: Any) -> None:
    """Of a model that was parallelized for the first one."""

    def train(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
        with sharding_on_cpu():
            asked = {} if values is None else write(pair, values)
            config = pair.config("small_vlm", **asked, **options, **TWO_PHASES)
            made = pair.build_trained_model("small_vlm", config)
        first, num_wraps = made.parallel.model, count_wraps(made.parallel.bare)
        phase = phases_of(config)[1]
        made = switch_phase(made, phase, rank_device_of(config))
        again = count_wraps(made.parallel.bare)
        found = pair.make_steps(made, "small_vlm", dataclasses.replace(phase.config, phases=()))
        accelerator = getattr(made.strategy, "_accelerator", None)
        kept = [] if accelerator is None else [*accelerator._models, *accelerator._optimizers]
        return {
            **found,
            "num_kept": len(kept),
            "is_anew": made.parallel.model is not first,
            "num_wraps": [num_wraps, again, count_wraps(made.parallel.bare)],
        }

    case(f"second phase, {name}")(train)


def count_wraps(model: torch.nn.Module) -> int:
    """How many functions lie around the model's own `forward`."""
    forward: Any = model.forward
    count = 0
    while hasattr(forward, "__wrapped__"):
        forward = forward.__wrapped__
        count += 1
    return count


second_phase("ddp", None, strategy="ddp", precision="bf16")
second_phase("fsdp2", None, precision="bf16")
for name, values in FILES.items():
    second_phase(f"accelerate {name}", {**values, "mixed_precision": "bf16"}, precision="bf16")


def sabotaged(
    name: str, values: dict[str, Any], parallelize_by: Callable[..., ParallelModel]
) -> None:
    case(f"accelerate's {name}")(
        lambda _alone, pair: check_parallelized_by(pair, parallelize_by, **write(pair, values))
    )


sabotaged("plugin ignored", FSDP, replicate)
sabotaged("layers forgotten", FSDP, lambda model: shard(model, layers=False))
sabotaged("weight left whole", FSDP, lambda model: shard(model, whole=("language.lm_head.weight",)))
sabotaged("type another", DDP, shard)

OWN = frozenset(CASES) - BEFORE
"""What this module adds."""
WITH_COMPARED = OWN | frozenset(TWINS.values()) | ALSO_COMPARED
