"""Distribution of the model over the ranks: one module per strategy, behind one interface.

The requested strategy runs, or the stage fails; `effect` checks what really happened.
"""

from __future__ import annotations

from pipeline.training.device import Workplace
from pipeline.training.ranks import Ranks
from pipeline.training.strategies.accelerated import Accelerated
from pipeline.training.strategies.base import Spread, Strategy, StrategyFacts
from pipeline.training.strategies.fully_sharded import FullySharded
from pipeline.training.strategies.mesh import Place
from pipeline.training.strategies.replicated import Replicated
from pipeline.training.strategies.single import Single
from slurm_jobs.common.accelerate_file import AccelerateFile
from slurm_jobs.common.context import TaskContext
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.stage_config.train import TrainConfig

__all__ = ["Spread", "Strategy", "StrategyFacts", "check_single", "choose_strategy"]


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
    workplace: Workplace,
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
        return Accelerated(workplace, config.accelerate.config, file, ranks)
    if config.strategy == "single":
        check_single(config, ranks.num_ranks)
        return Single(workplace)
    if config.strategy == "ddp":
        return Replicated(workplace)
    here = Place(node_name=context.node_name, local_rank=context.local_rank)
    places = ranks.from_main(ranks.gather(here))
    return FullySharded(workplace, config.sharding, places)
