"""Host time to update many small sharded parameters, through DTensors and locally.

The benchmark has 816 parameters, as many as a model of 36 layers, sharded over a mesh of one rank.
They are so small that the arithmetic hardly counts: on a GPU this time is what the host takes to
queue clipping and AdamW. The peer is torch over DTensors, `nn.utils.clip_grad_norm_` and fused
`AdamW`; ours is `pipeline.train.optimizer`. Both take turns; times are CPU time of the process,
with one thread. The first step has its own rows, because torch then works out how each operation is
sharded.

Weights and norms of both must be equal bit for bit.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from benchmarks.table import Row, arguments, row, show
from pipeline.train.optimizer.gradient_clipping import clip_gradients
from pipeline.train.optimizer.local_adamw import LocalAdamW

SHAPES = ((8, 64), (64, 8), (64,), (16, 32))
NUM_PARAMETERS = 816
MAX_NORM = 1.0
LEAST_GAIN = 1.3
"""Speedup at which plain AdamW is worth updating locally."""
OPTIONS = {"lr": 1e-3, "betas": (0.9, 0.95), "fused": True}


@dataclass(kw_only=True)
class Way:
    """One of the two methods, with its own parameters."""

    parameters: list[nn.Parameter]
    optimizer: torch.optim.Optimizer
    clip: Callable[[list[nn.Parameter]], torch.Tensor]
    norm: float = math.nan
    """Gradient norm of the last step."""

    def step(self, seed: int) -> tuple[float, float]:
        """Return the milliseconds of clipping and of the update."""
        generator = torch.Generator().manual_seed(seed)
        for parameter in self.parameters:
            drawn = torch.randn(parameter.to_local().shape, generator=generator)
            local = drawn.to(parameter.device)
            parameter.grad = DTensor.from_local(
                local, parameter.device_mesh, parameter.placements, run_check=False
            )
        start_s = time.process_time()
        norm = self.clip(self.parameters)
        clipped_s = time.process_time()
        self.optimizer.step()
        ended_s = time.process_time()
        self.norm = float(norm)
        return 1e3 * (clipped_s - start_s), 1e3 * (ended_s - clipped_s)


def _clip_dtensors(parameters: list[nn.Parameter]) -> torch.Tensor:
    norm = nn.utils.clip_grad_norm_(parameters, MAX_NORM)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm


def _parameters(mesh: DeviceMesh, number: int) -> list[nn.Parameter]:
    torch.manual_seed(0)
    shapes = (SHAPES[index % len(SHAPES)] for index in range(number))
    whole = (torch.randn(shape) for shape in shapes)
    return [nn.Parameter(distribute_tensor(tensor, mesh, [Shard(0)])) for tensor in whole]


def make_ways(mesh: DeviceMesh, number: int) -> dict[str, Way]:
    """Return both methods, each with `number` equal parameters sharded over the mesh."""
    first, second = _parameters(mesh, number), _parameters(mesh, number)
    return {
        "DTensors": Way(
            parameters=first,
            optimizer=torch.optim.AdamW(first, **OPTIONS),  # type: ignore[arg-type]
            clip=_clip_dtensors,
        ),
        "local": Way(
            parameters=second,
            optimizer=LocalAdamW(second, **OPTIONS),  # type: ignore[arg-type]
            clip=lambda parameters: clip_gradients(parameters, MAX_NORM),
        ),
    }


def are_equal(ways: dict[str, Way]) -> bool:
    """Check whether weights and norms of both are equal bit for bit."""
    first, second = ways.values()
    pairs = zip(first.parameters, second.parameters, strict=True)
    same = all(torch.equal(a.to_local(), b.to_local()) for a, b in pairs)
    return same and first.norm == second.norm


def measure(number: int, num_steps: int) -> list[Row]:
    """Return the rows of the table; needs a process group of one rank."""
    ways = make_ways(init_device_mesh("cpu", (1,)), number)
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for step in range(1 + num_steps):
        for name, way in ways.items():
            taken[name].append(way.step(step))
    assert are_equal(ways)
    rows = []
    for index, what in enumerate(("clip", "AdamW")):
        first = {name: times[0][index] for name, times in taken.items()}
        later = {
            name: statistics.median(each[index] for each in times[1:])
            for name, times in taken.items()
        }
        for when, times in (("the first step", first), ("a step", later)):
            is_decisive = (what, when) == ("AdamW", "a step")
            rows.append(
                row(
                    f"{what} of {number} sharded parameters: {when}",
                    "ms of the host",
                    times["local"],
                    peer="over DTensors",
                    peer_value=times["DTensors"],
                    ratio_at_most=1 / LEAST_GAIN if is_decisive else None,
                )
            )
    return rows


def main() -> None:
    """Run the benchmark."""
    options = arguments(__doc__)
    torch.set_num_threads(1)
    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    number, num_steps = (80, 5) if options.quick else (NUM_PARAMETERS, 30)
    try:
        rows = measure(number, num_steps)
    finally:
        dist.destroy_process_group()
    show(rows, options, ["torch"])


if __name__ == "__main__":
    main()
