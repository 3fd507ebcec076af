"""The model that is trained: built on every rank, compared, spread by the strategy, looked at."""

from __future__ import annotations

import functools
import logging
from dataclasses import dataclass

from pipeline.models import DataFacts, build_model
from pipeline.training.device import Workplace
from pipeline.training.optimizer import make_optimizer
from pipeline.training.ranks import Ranks
from pipeline.training.scaling import Scaling
from pipeline.training.strategies import Spread, Strategy, StrategyFacts, choose_strategy
from pipeline.training.strategies.base import count_parameters
from pipeline.training.strategies.effect import check_effect, check_equal_weights
from slurm_jobs.common.context import TaskContext
from slurm_jobs.common.stage_config.train import TrainConfig

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class SpreadModel:
    """What the loop, checkpoints and the export work on."""

    strategy: Strategy
    spread: Spread
    scaling: Scaling
    facts: StrategyFacts
    num_parameters: int
    """Of the whole model."""


def build_and_spread(
    config: TrainConfig, context: TaskContext, workplace: Workplace, ranks: Ranks, data: DataFacts
) -> SpreadModel:
    """Build the model, spread it, and make sure that this took effect; a collective.

    Raises:
        StageConfigError: there is no such model, it differs between ranks, or the strategy cannot
            run here or did not take effect.
    """
    strategy = choose_strategy(config, workplace, ranks, context)
    bare = build_model(config.model, data, seed=config.seed)
    num_parameters = count_parameters([bare])
    check_equal_weights(bare, ranks)
    spread = strategy.spread(bare, functools.partial(make_optimizer, config=config.optimizer))
    facts = strategy.facts(spread)
    check_effect(spread, facts, config, workplace, ranks.num_ranks)
    if ranks.rank == 0:
        log.info("spread: %s", facts)
    return SpreadModel(
        strategy=strategy,
        spread=spread,
        scaling=Scaling(config.scaler, workplace),
        facts=facts,
        num_parameters=num_parameters,
    )
