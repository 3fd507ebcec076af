"""Distribution of the model over the ranks: one module per strategy, behind one interface.

The requested strategy runs, or the stage fails; `effect` checks what really happened.
"""

from __future__ import annotations

from pipeline.train.device.rank_device import RankDevice
from pipeline.train.ranks.process_group import Ranks
from pipeline.train.strategies.accelerated import Accelerated
from pipeline.train.strategies.fully_sharded import FullySharded
from pipeline.train.strategies.rank_mesh import RankPlace
from pipeline.train.strategies.replicated import Replicated
from pipeline.train.strategies.single import Single
from pipeline.train.strategies.strategy import Strategy
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.accelerate_file import AccelerateFile
from slurm_jobs.formats.configs.train import TrainConfig
from slurm_jobs.formats.records.task_context import TaskContext


def check_single(config: TrainConfig, num_ranks: int) -> None:
    """Check that `single` has one rank.

    Raises:
        StageConfigError: it has several.
    """
    if config.strategy == "single" and num_ranks != 1:
        message = (
            f"strategy is single, but the stage has {num_ranks} ranks: set `strategy: fsdp2`, or "
            "resources.nodes and tasks_per_node to 1"
        )
        raise StageConfigError(message)


def choose_strategy(
    config: TrainConfig,
    rank_device: RankDevice,
    ranks: Ranks,
    context: TaskContext,
    file: AccelerateFile | None = None,
) -> Strategy:
    """Return the strategy of `strategy` and `sharding`; every rank must call it.

    `file` is that of `strategy: accelerate`.

    Raises:
        StageConfigError: `single` with several ranks, ranks that cannot be divided by nodes, or
            accelerate does not follow its file.
    """
    if file is not None and config.accelerate is not None:
        return Accelerated(rank_device, config.accelerate.config, file, ranks)
    if config.strategy == "single":
        check_single(config, ranks.num_ranks)
        return Single(rank_device)
    if config.strategy == "ddp":
        return Replicated(rank_device)
    here = RankPlace(node_name=context.node_name, local_rank=context.local_rank)
    places = ranks.from_main(ranks.gather(here))
    return FullySharded(rank_device, config.sharding, places)
