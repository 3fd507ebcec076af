"""Building of the trained model: built on every rank, compared, sharded, verified."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from pipeline.data.batch import ModelNeeds
from pipeline.data.levels import LevelRules
from pipeline.models import DataFacts, VisionLanguageModel, build_model, make_unloaded
from pipeline.models.attention import attention_sizes
from pipeline.models.compiling import compile_layers, describe_compiling
from pipeline.models.layouts import NativePatches
from pipeline.models.parts import set_trainable
from pipeline.models.quantized import compute_in, quantize_model
from pipeline.models.recompute import recompute_layers
from pipeline.models.residual import keep_residual_in_fp32
from pipeline.models.segments import takes_masks, why_no_varlen
from pipeline.training.accelerate_config import read_accelerate_file
from pipeline.training.attention_choice import (
    AttentionChoice,
    AttentionFacts,
    choose_attention,
)
from pipeline.training.device import Workplace, capability_of
from pipeline.training.learning import Learning, add_what_learns, plan_learning
from pipeline.training.level_rules import make_level_rules
from pipeline.training.optimizer import make_optimizer
from pipeline.training.phases import Phase, phases_of
from pipeline.training.ranks import Ranks
from pipeline.training.scaling import Scaling
from pipeline.training.strategies import Spread, Strategy, StrategyFacts, choose_strategy
from pipeline.training.strategies.base import MakeOptimizer, count_parameters
from pipeline.training.strategies.describing import describe_spread
from pipeline.training.strategies.effect import (
    check_effect,
    check_equal_weights,
    check_optimizer,
)
from pipeline.training.strategies.loading import check_can_be_shared
from pipeline.training.strategies.quantized_effect import (
    check_dtypes,
    check_quantized,
    hash_quantized,
)
from slurm_jobs.common.context import TaskContext
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.stage_config.train import TrainConfig

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class SpreadModel:
    """Model for the loop, checkpoints and the export."""

    strategy: Strategy
    spread: Spread
    scaling: Scaling
    facts: StrategyFacts
    num_parameters: int
    """Parameters of the whole model."""
    learning: Learning
    level_rules: LevelRules | None
    """Rules for samples with chained targets."""

    @property
    def needs(self) -> ModelNeeds:
        """Requirements of model and targets for batches."""
        return dataclasses.replace(self.spread.bare.layout.needs, levels=self.level_rules)


def build_and_spread(
    config: TrainConfig,
    phases: Sequence[Phase],
    *,
    context: TaskContext,
    workplace: Workplace,
    ranks: Ranks,
    data: DataFacts,
) -> SpreadModel:
    """Build the model, shard it for the first phase, and verify that this took effect.

    A collective.

    Raises:
        StageConfigError: there is no such model, it differs between ranks, or the strategy
            cannot run here or did not take effect.
    """
    file = read_accelerate_file(config, ranks, num_nodes=context.num_nodes)
    strategy = choose_strategy(config, workplace, ranks, context, file)
    bare = build_together(config, data, ranks, workplace, loads_once=strategy.loads_once)
    num_parameters = count_parameters([bare])
    check_equal_weights(bare, ranks, shapes_only=strategy.loads_once)
    learning = plan_learning(bare, phases, ranks)
    set_trainable(bare, learning.now[0])
    packed = hash_quantized(bare, ranks)
    spread = strategy.spread(bare, _optimizer_of(phases[0]))
    facts = strategy.facts(spread)
    check_effect(spread, facts, config, workplace, ranks.num_ranks, file=file)
    check_quantized(bare, packed, ranks)
    if ranks.rank == 0:
        _announce(config, spread, facts)
    return SpreadModel(
        strategy=strategy,
        spread=spread,
        scaling=Scaling(config.scaler, workplace),
        facts=facts,
        num_parameters=num_parameters,
        learning=learning,
        level_rules=make_level_rules(config.levels, data.tokenizer),
    )


def _announce(config: TrainConfig, spread: Spread, facts: StrategyFacts) -> None:
    log.info("strategy: %s", describe_spread(config.strategy, spread, facts))
    if config.compile is not None:
        log.info("compile: %s", describe_compiling(spread.bare, config.compile))


def _optimizer_of(phase: Phase) -> MakeOptimizer:
    return functools.partial(make_optimizer, config=phase.config.optimizer)


def respread(made: SpreadModel, phase: Phase, workplace: Workplace) -> SpreadModel:
    """Return the model sharded for a phase, with its trained parameters and a new optimizer."""
    bare = made.spread.bare
    made.spread.optimizer.zero_grad()  # or gradients of now frozen parameters would stay
    set_trainable(bare, made.learning.now[phase.number])
    spread = made.strategy.respread(made.spread, _optimizer_of(phase))
    check_optimizer(spread.bare, spread.optimizer)
    return dataclasses.replace(made, spread=spread, scaling=Scaling(phase.config.scaler, workplace))


def count_learning(made: SpreadModel, phase: Phase) -> int:
    """Count the parameters trained in a phase."""
    names = made.learning.now[phase.number]
    return sum(p.numel() for name, p in made.spread.bare.named_parameters() if name in names)


def build_together(
    config: TrainConfig, data: DataFacts, ranks: Ranks, workplace: Workplace, *, loads_once: bool
) -> VisionLanguageModel:
    """Build the model on the CPU; with `loads_once` only on rank 0, on "meta" elsewhere.

    Raises:
        StageConfigError: on all ranks, if one of them cannot build it.
    """
    model, problem = None, None
    is_unloaded = loads_once and ranks.rank != 0
    try:
        check_dtypes(config, workplace)
        if is_unloaded:
            model = make_shell(config, data, workplace)
        else:
            as_stored = config.quantize is not None
            model = build_model(config.model, data, seed=config.seed, as_stored=as_stored)
            _add_parts(model, config, workplace)
        _prepare_layers(model, config, workplace)
        if is_unloaded:
            check_can_be_shared(model)
    except StageConfigError as error:
        problem = str(error)
    # Reading and quantising may take long, and the rank that reads for all logs nothing.
    ranks.meet("model_build", speaks=ranks.rank in (0, 1))
    problems = ranks.from_main(ranks.gather(problem))
    if found := next(filter(None, problems), None):
        raise StageConfigError(found)
    assert model is not None
    return model


def _prepare_layers(model: VisionLanguageModel, config: TrainConfig, workplace: Workplace) -> None:
    """Configure how layers compute; what is compiled is the recomputed layer."""
    model.uses_varlen = attention_of(model, config, workplace).uses_varlen
    if workplace.precision == "fp16":
        keep_residual_in_fp32(model, workplace.device)
    if config.activation_checkpointing:
        recompute_layers(model)
    if config.compile is not None:
        compile_layers(model, config.compile, workplace.device)


def make_shell(config: TrainConfig, data: DataFacts, workplace: Workplace) -> VisionLanguageModel:
    """Build the whole model with its additions, on "meta": shapes without weights.

    Raises:
        StageConfigError: there is no such model, or the additions do not fit it.
    """
    model = make_unloaded(config.model, data, torch.device("meta"))
    _add_parts(model, config, workplace)
    return model


def _add_parts(model: VisionLanguageModel, config: TrainConfig, workplace: Workplace) -> None:
    if config.quantize is not None:
        quantize_model(model, config.quantize, workplace.device)
    add_what_learns(model, config)
    compute_in(model, workplace.dtype)  # not before: peft would create adapters of that dtype


def attention_of(
    model: VisionLanguageModel,
    config: TrainConfig,
    workplace: Workplace,
    batching_kinds: Collection[str] | None = None,
) -> AttentionChoice:
    """Return the attention for packed samples and for images of varying size.

    `batching_kinds`: those of all rows; None uses the config's.

    Raises:
        StageConfigError: the config's attention cannot run.
    """
    text = model.text_config
    kinds = set(batching_kinds or (phase.config.batching.kind for phase in phases_of(config)))
    facts = AttentionFacts(
        device_type=workplace.device.type,
        capability=capability_of(workplace.device),
        precision=workplace.precision,
        implementation=model.attention_name,
        text_type=text.model_type,
        takes_borders=takes_masks(text),
        head_sizes=tuple(sizes.head_dim for sizes in attention_sizes(model)),
        dropout=float(getattr(text, "attention_dropout", 0) or 0),
        packs=not kinds.isdisjoint({"packed", "auto"}),
        sizes_differ=isinstance(model.layout, NativePatches),
        why_no_varlen=why_no_varlen(),
    )
    return choose_attention(config.attention, facts)
