"""What the pair of ranks holds after a step, beside what the preflight computed of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from pipeline.models.computation.torch_versions import param_groups_of
from pipeline.train.memory.memory_need import MemoryNeed, memory_need
from pipeline.train.memory.sharing import gathered_units, sharing_of
from pipeline.train.memory.tensor_sizes import read_sizes
from pipeline.train.optimizer.bitsandbytes_optimizer import LocalOptimizer
from pipeline.train.phase import phases_of
from pipeline.train.strategies.rank_mesh import RankPlace
from pipeline.train.trained_model.bare_model import make_shell
from pipeline.train.trained_model.learned_parameters import what_learns
from pipeline.train.trained_model.trained_model import TrainedModel
from pipeline.train.training_data.batches import loss_of, to_device
from slurm_jobs.formats.configs.train import TrainConfig
from tests.pipeline.train.strategies.cases import TIED, case
from tests.pipeline.train.strategies.trainer import Trainer, rank_device_of

LORA = {"kind": "qwen2_5_vl", "adapters": {"rank": 8, "alpha": 16.0}}
QLORA = {**LORA, "quantize": {}}
EIGHT_BIT = {"kind": "adamw_8bit"}
STRATEGIES: dict[str, dict[str, Any]] = {
    "single": {"strategy": "single"},
    "ddp": {"strategy": "ddp"},
    "fsdp2": {},
    "hybrid within one node": {"sharding": {"within": "node"}},
    "offload": {"sharding": {"cpu_offload": True}},
    "tied": {"kind": TIED},
    **{f"LoRA, {name}": {**LORA, "strategy": name} for name in ("ddp", "fsdp2")},
    **{f"QLoRA, {name}": {**QLORA, "strategy": name} for name in ("single", "fsdp2")},
    **{
        f"8-bit, {name}": {"strategy": name, "optimizer": EIGHT_BIT} for name in ("single", "fsdp2")
    },
}


def _held(name: str, *, kind: str = "small_vlm", **options: Any) -> None:
    def look(alone: Trainer, pair: Trainer) -> dict[str, Any]:
        trainer = alone if options.get("strategy") == "single" else pair
        config = trainer.config(kind, **options)
        made = trainer.build_trained_model(kind, config)
        need = _computed(trainer, kind, config)
        _pass(trainer, made, kind, config, is_last=True)
        made.parallel.optimizer.step()
        return {"held": _measured(made), "computed": dataclasses.asdict(need)}

    case(f"memory, {name}")(look)


for name, changes in STRATEGIES.items():
    _held(name, **changes)


@case("memory, accumulating")
def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    config = pair.config("small_vlm", num_microbatches=2)
    made = pair.build_trained_model("small_vlm", config)
    _pass(pair, made, "small_vlm", config, is_last=False)
    held = _bytes_of(_whole_gradients(made.parallel.model))
    return {
        "held": held,
        "computed": _computed(pair, "small_vlm", config).accumulated_bytes,
    }


def _pass(
    trainer: Trainer, made: TrainedModel, kind: str, config: TrainConfig, *, is_last: bool
) -> None:
    batch = next(trainer.batches(kind, made, config, "mixed", None))[0]
    model, rank_device = made.parallel.model, rank_device_of(config)
    with made.strategy.microbatch(model, is_last=is_last), made.strategy.forward_context():
        loss = loss_of(model, to_device(batch, rank_device, made.parallel.bare.layout))
        loss.sum().backward()


def _computed(trainer: Trainer, kind: str, config: TrainConfig) -> MemoryNeed:
    rank_device, ranks = rank_device_of(config), trainer.ranks
    here = RankPlace(node_name="node-0", local_rank=ranks.rank)
    shell = make_shell(config, trainer.kind(kind).facts, rank_device)
    return memory_need(
        read_sizes(shell, gathered_units(shell, config, None)),
        what_learns(shell, phases_of(config))[0],
        sharing_of(config, None, ranks.from_main(ranks.gather(here))),
        compute_itemsize=rank_device.dtype.itemsize,
        optimizer_kind=config.optimizer.kind,
        num_microbatches=config.num_microbatches,
        num_tokens=0,
    )


def _measured(made: TrainedModel) -> dict[str, int]:
    bare, optimizer = made.parallel.bare, made.parallel.optimizer
    inner: Any = optimizer._inner if isinstance(optimizer, LocalOptimizer) else optimizer
    parameters = list(bare.parameters())
    return {
        "weights_bytes": _bytes_of(parameters),
        "buffers_bytes": _bytes_of(bare.buffers()),
        "gradients_bytes": _bytes_of(p.grad for p in parameters if p.grad is not None),
        "optimizer_bytes": _bytes_of(
            value
            for state in inner.state.values()
            for value in state.values()
            if isinstance(value, torch.Tensor)
        ),
    }


def _bytes_of(tensors: Iterable[torch.Tensor]) -> int:
    """Of the memory behind them, each piece once: padding of shards counts, too."""
    local = [each.to_local() if isinstance(each, DTensor) else each for each in tensors]
    storages = {each.data_ptr(): each.nbytes() for each in (one.untyped_storage() for one in local)}
    return sum(storages.values())


def _whole_gradients(model: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Those that wait for the last microbatch, for which there is no public name."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            for group in param_groups_of(module):
                for parameter in group.fsdp_params:
                    kept = parameter.unsharded_accumulated_grad
                    yield parameter._unsharded_param.grad if kept is None else kept
