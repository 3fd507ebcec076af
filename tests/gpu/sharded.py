"""`strategy: fsdp2` on one GPU: alone with NCCL, and as one of four ranks that do not exist."""

from __future__ import annotations

from typing import Any

from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor

from benchmarks import updates
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.train import TrainConfig
from tests.contexts import make_context
from tests.gpu.models import open_tiny, train, train_config
from tests.gpu.parity import TOLERANCES
from tests.gpu.work import Work
from tests.pipeline.train.strategies.trainer import Alone

_NUM_RANKS = 4


def one_rank(work: Work) -> None:
    """Train with each strategy on one rank, and compare the losses."""
    kind = open_tiny("qwen2_5_vl", work.shared)
    for precision in ("fp32", "bf16"):
        reference = train(
            work.folder / f"single-{precision}", train_config(kind, work, precision=precision)
        )
        for strategy in ("fsdp2", "ddp"):
            config = train_config(kind, work, precision=precision, strategy=strategy)
            found = train(work.folder / f"{strategy}-{precision}", config)
            name, tolerance = f"{strategy} {precision}, last loss", TOLERANCES[precision][0]
            work.close_to(name, found.losses[-1], reference.losses[-1], tolerance)
    _updates(work)


def _updates(work: Work) -> None:
    """Clip and update many small parameters over local tensors and DTensors: the same bits."""
    backend = "nccl" if work.has_gpu else "gloo"
    distributed.init_process_group(backend, rank=0, world_size=1, store=distributed.HashStore())
    number = updates.NUM_PARAMETERS if work.has_gpu else 24
    ways = updates.make_ways(init_device_mesh(work.device, (1,)), number)
    for step in range(4):
        for name, way in ways.items():
            clip_ms, update_ms = way.step(step)
            when = "first" if step == 0 else "last"
            work.note(**{f"{name}_{when}_clip_ms": clip_ms, f"{name}_{when}_update_ms": update_ms})
    work.check("updates over local tensors have the bits of torch's", updates.are_equal(ways))
    distributed.destroy_process_group()


class FakeRanks(Alone):
    """Rank 0 of several that answer nothing: each is taken to say what this one says."""

    num_ranks = _NUM_RANKS

    def sums(self, values: list[float]) -> list[float]:
        """Return what equal ranks sum to."""
        return [value * self.num_ranks for value in values]

    def gather(self, value: Any) -> list[Any]:
        """Return the value of each rank."""
        return [value] * self.num_ranks


def rank_of_four(work: Work) -> None:
    """Shard over a fake process group: what a rank holds, and passes on real streams.

    Collectives of a fake group move nothing, so that values are not looked at.
    """
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from pipeline.train.device.rank_device import RankDevice
    from pipeline.train.phase import phases_of
    from pipeline.train.trained_model.trained_model import build_trained_model
    from pipeline.train.training_data.batches import loss_of, to_device

    kind = open_tiny("qwen2_5_vl", work.shared)
    distributed.init_process_group("fake", rank=0, world_size=_NUM_RANKS, store=FakeStore())
    precision = "bf16" if work.has_gpu else "fp32"
    ways: dict[str, dict[str, Any]] = {
        "plain": {},
        "prefetch": {"forward_prefetch": 2},
        "weights kept": {"reshard_after_forward": False},
        "offload": {"cpu_offload": True},
    }
    for name, sharding in ways.items():
        values = train_config(
            kind, work, strategy="fsdp2", precision=precision, num_lanes=_NUM_RANKS,
            sharding={"unit_min_params": 0, **sharding},
        )  # fmt: skip
        config = build_config(TrainConfig, values)
        rank_device = RankDevice(
            device=work.torch_device, precision=precision, num_compute_threads=2
        )
        made = build_trained_model(
            config,
            phases_of(config),
            context=make_context("train", work.folder / name, num_ranks=_NUM_RANKS),
            rank_device=rank_device,
            ranks=FakeRanks(),  # type: ignore[arg-type]
            data=kind.facts,
        )
        bare = made.parallel.bare
        weights = [each for each in bare.parameters() if isinstance(each, DTensor)]
        local = sum(each.to_local().numel() for each in weights)
        whole = sum(each.numel() for each in weights)
        work.check(f"{name}: a rank has about a quarter", 0.2 < local / whole < 0.35, local / whole)
        batch = kind.batch(bare, [[sample] for sample in kind.samples()])
        with made.strategy.microbatch(made.parallel.model, is_last=True):
            with made.strategy.forward_context():
                loss = loss_of(made.parallel.model, to_device(batch, rank_device, bare.layout))
            loss.backward()
        gradients = [each.grad is not None for each in bare.parameters() if each.requires_grad]
        work.check(f"{name}: gradients are there", all(gradients), f"{sum(gradients)} of all")
        made.strategy.close(made.parallel)
    distributed.destroy_process_group()
