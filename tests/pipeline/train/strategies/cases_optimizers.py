"""What the pair of ranks does with optimizers of bitsandbytes; registered beside the others."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import bitsandbytes as bnb
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

from pipeline.train.optimizer import optimizers as optimizer
from pipeline.train.optimizer.gradient_clipping import clip_gradients
from pipeline.train.optimizer.local_adamw import LocalAdamW
from slurm_jobs.formats.configs.training_parts import OptimizerConfig
from tests.pipeline.train.strategies.cases import case, single, training
from tests.pipeline.train.strategies.trainer import Trainer

EIGHT_BIT = {"kind": "adamw_8bit", "learning_rate": 3e-3}
STRATEGIES: dict[str, dict[str, Any]] = {
    "fsdp2": {},
    "ddp": {"strategy": "ddp"},
    "offload": {"sharding": {"cpu_offload": True}},
    "hybrid": {"sharding": {"within": "node"}},
}

single("8-bit, single", optimizer=EIGHT_BIT, num_steps=6)
single("32-bit, single", num_steps=6)
training("8-bit, fp16", precision="fp16", optimizer=EIGHT_BIT, num_steps=6)
for name, changes in STRATEGIES.items():
    training(f"8-bit, {name}", optimizer=EIGHT_BIT, num_steps=6, **changes)


def _full_state(name: str, **options: Any) -> None:
    """bitsandbytes' own AdamW in the place of the 8-bit one: the same way, without rounding."""

    def train(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
        kinds = {"adamw_8bit": "AdamW"}
        with patch.dict(optimizer._OF_BITSANDBYTES, kinds):
            return pair.train(optimizer=EIGHT_BIT, num_steps=6, **options)

    case(f"32-bit of bitsandbytes, {name}")(train)


for name, changes in STRATEGIES.items():
    _full_state(name, **changes)


@case("8-bit, unwrapped")
def _(_alone: Trainer, _pair: Trainer) -> dict[str, Any]:
    """What bitsandbytes itself says to parameters that are sharded."""
    model = torch.nn.Linear(128, 128)
    fully_shard(model)
    bare = bnb.optim.AdamW8bit(model.parameters(), lr=1e-3)
    model(torch.ones(1, 128)).sum().backward()
    try:
        bare.step()
    except Exception as error:  # noqa: BLE001 - whichever it is
        return {"said": str(error)}
    return {"said": ""}


@case("8-bit, own part of the whole")
def _(_alone: Trainer, pair: Trainer) -> dict[str, Any]:
    model = torch.nn.Linear(128, 129)  # parts of other sizes
    fully_shard(model)
    made = optimizer.make_optimizer(model, OptimizerConfig(kind="adamw_8bit"))
    whole = torch.linspace(-1, 1, 128 * 129).view(129, 128)
    made.take_whole("weight", 3, [whole, whole.square()])
    first, second = made.unpack(made.state_dict()["weight"])
    rows = slice(0, 65) if pair.ranks.rank == 0 else slice(65, 129)
    return {
        "num": first.numel(),
        "difference": max(
            float((first - whole[rows].flatten()).abs().max()),
            float((second - whole[rows].square().flatten()).abs().max()),
        ),
    }


@case("local updates")
def _(_alone: Trainer, _pair: Trainer) -> dict[str, Any]:
    """The norm, and whether it and the weights are those of torch over DTensors, bit for bit."""
    mesh = dist.init_device_mesh("cpu", (2,))

    def make(update: type[torch.optim.AdamW]) -> tuple[list[torch.nn.Parameter], Any]:
        torch.manual_seed(0)
        whole = [torch.randn(shape) for shape in ((7, 5), (3,), (1, 4))]
        sharded = [torch.nn.Parameter(distribute_tensor(w, mesh, [Shard(0)])) for w in whole]
        torch.manual_seed(1)
        for parameter in sharded:
            parameter.grad = distribute_tensor(torch.randn(parameter.shape), mesh, [Shard(0)])
        return sharded, update(sharded, lr=1e-2, fused=True)

    (theirs, reference), (ours, optimizer) = make(torch.optim.AdamW), make(LocalAdamW)
    expected: Any = torch.nn.utils.clip_grad_norm_(theirs, 0.5)
    norm = clip_gradients(ours, 0.5)
    reference.step()
    optimizer.step()
    pairs: Any = zip(ours, theirs, strict=True)
    return {
        "norm": float(norm),
        "is_same_norm": torch.equal(norm, expected.full_tensor()),
        "are_same_weights": all(torch.equal(a.to_local(), b.to_local()) for a, b in pairs),
    }
