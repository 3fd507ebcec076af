"""One rank of `benchmarks.checkpointing`; rank 0 writes the results.

Usage: python -m benchmarks.checkpointing_ranks RANK NUM_RANKS PORT FOLDER NUM_ROUNDS
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from pipeline.train.checkpoints.checkpoint_record import Identity, Work
from pipeline.train.checkpoints.saver import Saver
from pipeline.train.checkpoints.training_state import Checkpoints, TrainingState
from pipeline.train.ranks.process_group import Ranks, new_host_group

WIDTH, NUM_LAYERS, NUM_ROWS = 384, 6, 1
"""10.6 million parameters; 128 MB with AdamW's state."""
NUM_STEPS_BESIDE = 2

Way = Callable[[int], Callable[[], object]]
"""Start a save after a given number of steps; the function returned waits for its end."""


def build() -> tuple[nn.Module, torch.optim.Optimizer]:
    """Build sharded transformer layers and an optimizer that has state."""
    torch.manual_seed(0)
    layers = [
        nn.TransformerEncoderLayer(WIDTH, 6, 4 * WIDTH, dropout=0.0, batch_first=True)
        for _ in range(NUM_LAYERS)
    ]
    model, mesh = nn.Sequential(*layers), init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters(), fused=True)


def make_ways(
    model: nn.Module, optimizer: torch.optim.Optimizer, ranks: Ranks, folder: Path
) -> dict[str, Way]:
    """Return our methods and torch's own calls, which write no checksum, record or marker name."""
    cpu, group = torch.device("cpu"), new_host_group(timeout_min=5)
    checkpoints = Checkpoints(
        root=folder / "ours",
        attempt=1,
        ranks=ranks,
        state=TrainingState(model=model, optimizer=optimizer),
        identity=Identity(lasting_config={}, dataset_fingerprint="", work=Work(), versions={}),
    )
    saver = Saver(checkpoints, keep_last=1, group=new_host_group(timeout_min=5), device=cpu)
    stager = DefaultStager(StagingOptions(False, False, False, False))

    def torch_options(step: int) -> dict[str, Any]:
        model_state, optimizer_state = get_state_dict(model, optimizer)
        return {
            "state_dict": {"model": model_state, "optimizer": optimizer_state},
            "storage_writer": dcp.FileSystemWriter(folder / "torch" / str(step)),
            "process_group": group,
        }

    def ours_beside(step: int) -> Callable[[], object]:
        saver.begin(step, 0.0)
        return saver.finish

    def ours_at_once(step: int) -> Callable[[], object]:
        saver.save(step, 0.0)
        return lambda: None

    def torch_beside(step: int) -> Callable[[], object]:
        return dcp.async_save(**torch_options(step), async_stager=stager).result

    def torch_at_once(step: int) -> Callable[[], object]:
        dcp.save(**torch_options(step))
        return lambda: None

    return {
        "async": ours_beside,
        "sync": ours_at_once,
        "dcp.async_save": torch_beside,
        "dcp.save": torch_at_once,
    }


def measure(ranks: Ranks, folder: Path, num_rounds: int) -> dict[str, list[dict[str, float]]]:
    """Return the seconds of every method and round, of the slowest rank; round 1 is a warm-up."""
    model, optimizer = build()
    ways = make_ways(model, optimizer, ranks, folder)
    rows = torch.randn(NUM_ROWS, 32, WIDTH)

    def make_steps() -> float:
        start_s = time.perf_counter()
        for _ in range(NUM_STEPS_BESIDE):
            model(rows).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return (time.perf_counter() - start_s) / NUM_STEPS_BESIDE

    alone = {"none": lambda _step: lambda: None}
    results: dict[str, list[dict[str, float]]] = {}
    make_steps()
    for number in range(num_rounds + 1):
        for name, begin in {**alone, **ways}.items():
            ranks.barrier()
            start_s = time.perf_counter()
            wait = begin(number * len(ways) + list(ways).index(name) + 1 if name in ways else 0)
            stall_s = time.perf_counter() - start_s
            step_s = make_steps()
            wait()
            mine = {"stall_s": stall_s, "step_s": step_s, "whole_s": time.perf_counter() - start_s}
            parts = ranks.gather(mine)
            if ranks.rank == 0:
                shutil.rmtree(folder / "torch", ignore_errors=True)
                if number:
                    slowest = {key: max(part[key] for part in parts) for key in mine}
                    results.setdefault(name, []).append(slowest)
    return results


def main() -> None:
    """Run the benchmark."""
    rank, num_ranks, port = (int(value) for value in sys.argv[1:4])
    folder, num_rounds = Path(sys.argv[4]), int(sys.argv[5])
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=num_ranks)
    group = dist.group.WORLD
    store = dist.distributed_c10d._get_default_store()  # noqa: SLF001 - Ranks wants one
    ranks = Ranks(rank=rank, num_ranks=num_ranks, host_group=group, store=store)
    results = measure(ranks, folder, num_rounds)
    if rank == 0:
        (folder / "found.json").write_text(json.dumps(results))
    ranks.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
