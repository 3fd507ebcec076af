"""Building of the trained model: built on every rank, compared, sharded, verified."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.data.batch import ModelNeeds
from pipeline.data.batches.learned_targets import LevelRules
from pipeline.models.computation.compiling import describe_compiling
from pipeline.models.data_facts import DataFacts
from pipeline.models.finetuning.trained_parts import set_trainable
from pipeline.train.accelerate_settings import read_accelerate_file
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.optimizer.loss_scaling import LossScaling
from pipeline.train.optimizer.optimizers import make_optimizer
from pipeline.train.phase import Phase
from pipeline.train.ranks.process_group import Ranks
from pipeline.train.strategies.strategy import (
    MakeOptimizer,
    ParallelModel,
    Strategy,
    StrategyFacts,
    count_parameters,
)
from pipeline.train.strategies.strategy_choice import choose_strategy
from pipeline.train.strategy_checks.effect import check_effect, check_optimizer
from pipeline.train.strategy_checks.equal_weights import check_equal_weights
from pipeline.train.strategy_checks.quantized_weights import check_quantized, hash_quantized
from pipeline.train.strategy_checks.strategy_description import describe_parallel_model
from pipeline.train.trained_model.bare_model import build_together
from pipeline.train.trained_model.learned_parameters import Learning, plan_learning
from pipeline.train.trained_model.level_rules import make_level_rules
from slurm_jobs.formats.configs.train import TrainConfig
from slurm_jobs.formats.records.task_context import TaskContext

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedModel:
    """Model in training, with its strategy: for the loop, checkpoints and the export."""

    strategy: Strategy
    parallel: ParallelModel
    scaling: LossScaling
    facts: StrategyFacts
    num_parameters: int
    """Parameters of the whole model."""
    learning: Learning
    level_rules: LevelRules | None
    """Rules for samples with chained targets."""

    @property
    def needs(self) -> ModelNeeds:
        """Requirements of model and targets for batches."""
        return dataclasses.replace(self.parallel.bare.layout.needs, levels=self.level_rules)


def build_trained_model(
    config: TrainConfig,
    phases: Sequence[Phase],
    *,
    context: TaskContext,
    rank_device: RankDevice,
    ranks: Ranks,
    data: DataFacts,
) -> TrainedModel:
    """Build the model, shard it for the first phase, and verify that this took effect.

    A collective.

    Raises:
        StageConfigError: there is no such model, it differs between ranks, or the strategy
            cannot run here or did not take effect.
    """
    file = read_accelerate_file(config, ranks, num_nodes=context.num_nodes)
    strategy = choose_strategy(config, rank_device, ranks, context, file)
    bare = build_together(config, data, ranks, rank_device, loads_once=strategy.loads_once)
    num_parameters = count_parameters([bare])
    check_equal_weights(bare, ranks, shapes_only=strategy.loads_once)
    learning = plan_learning(bare, phases, ranks)
    set_trainable(bare, learning.now[0])
    packed = hash_quantized(bare, ranks)
    parallel = strategy.parallelize(bare, _optimizer_of(phases[0]))
    facts = strategy.facts(parallel)
    check_effect(parallel, facts, config, rank_device, ranks.num_ranks, file=file)
    check_quantized(bare, packed, ranks)
    if ranks.rank == 0:
        log.info("strategy: %s", describe_parallel_model(config.strategy, parallel, facts))
        if config.compile is not None:
            log.info("compile: %s", describe_compiling(bare, config.compile))
    return TrainedModel(
        strategy=strategy,
        parallel=parallel,
        scaling=LossScaling(config.scaler, rank_device),
        facts=facts,
        num_parameters=num_parameters,
        learning=learning,
        level_rules=make_level_rules(config.levels, data.tokenizer),
    )


def _optimizer_of(phase: Phase) -> MakeOptimizer:
    return functools.partial(make_optimizer, config=phase.config.optimizer)


def switch_phase(model: TrainedModel, phase: Phase, rank_device: RankDevice) -> TrainedModel:
    """Return the model sharded for a phase, with its trained parameters and a new optimizer."""
    bare = model.parallel.bare
    model.parallel.optimizer.zero_grad()  # or gradients of now frozen parameters would stay
    set_trainable(bare, model.learning.now[phase.number])
    parallel = model.strategy.reparallelize(model.parallel, _optimizer_of(phase))
    check_optimizer(parallel.bare, parallel.optimizer)
    return dataclasses.replace(
        model, parallel=parallel, scaling=LossScaling(phase.config.scaler, rank_device)
    )


def count_learning(model: TrainedModel, phase: Phase) -> int:
    """Count the parameters trained in a phase."""
    names = model.learning.now[phase.number]
    return sum(p.numel() for name, p in model.parallel.bare.named_parameters() if name in names)
