"""Model parallelized over the ranks: what is trained, and by which strategy."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import logging
import operator
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import xxhash

from pipeline.data.batch import ModelNeeds
from pipeline.data.batches.learned_targets import ClassReader, LevelRules
from pipeline.models.attention_kernels.packed_rows import takes_masks
from pipeline.models.attention_kernels.varlen import why_no_varlen
from pipeline.models.build import build_model, make_unloaded
from pipeline.models.computation.attention_sizes import attention_sizes
from pipeline.models.computation.compiling import compile_layers, describe_compiling
from pipeline.models.computation.fp32_residual import keep_residual_in_fp32
from pipeline.models.computation.recompute import recompute_layers
from pipeline.models.data_facts import DataFacts
from pipeline.models.finetuning.adapters import add_adapters
from pipeline.models.finetuning.classifier_heads import num_classes
from pipeline.models.finetuning.packed_linear import compute_in, quantized_layers, quantized_names
from pipeline.models.finetuning.parameter_names import visible_name, without_adapters
from pipeline.models.finetuning.trained_parts import choose, parts_of, set_trainable
from pipeline.models.layouts.native_patches import NativePatches
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.accelerate import Accelerated
from pipeline.train.accelerate_settings import read_accelerate_file
from pipeline.train.attention import AttentionChoice, AttentionFacts, choose_attention
from pipeline.train.device.precision import capability_of
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.job import Phase, phases_of
from pipeline.train.optimizer.loss_scaling import Scaling
from pipeline.train.optimizer.optimizers import make_optimizer
from pipeline.train.ranks import Ranks
from pipeline.train.strategies import (
    FullySharded,
    MakeOptimizer,
    ParallelModel,
    Place,
    Replicated,
    Single,
    Strategy,
    StrategyFacts,
    check_can_be_shared,
    count_parameters,
)
from pipeline.train.strategy_checks import (
    check_dtypes,
    check_effect,
    check_equal_weights,
    check_optimizer,
    check_quantized,
    describe_parallel_model,
    hash_quantized,
)
from slurm_jobs.shared.accelerate_file import AccelerateFile
from slurm_jobs.shared.configs.train import TrainConfig
from slurm_jobs.shared.configs.training_phases import LevelConfig
from slurm_jobs.shared.errors import StageConfigError
from slurm_jobs.shared.records.task_context import TaskContext

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


# Selection of trained parameters: adds adapters and heads, and freezes all others.
#
# The frozen part is the base. It is in no checkpoint, so a hash of its weights is stored instead:
# otherwise training could silently continue from another base.


@dataclass(frozen=True, kw_only=True, slots=True)
class Learning:
    """Parameters trained in each phase; each value has one entry per phase."""

    now: tuple[frozenset[str], ...]
    """Names of the parameters trained in the phase."""
    so_far: tuple[frozenset[str], ...]
    """These and those of the phases before."""
    bases: tuple[str, ...]
    """`hash_base` of what was not trained by the phase's end."""


def plan_learning(model: VisionLanguageModel, phases: Sequence[Phase], ranks: Ranks) -> Learning:
    """Return the parameters that the phases' configs name; heads are trained in all of them.

    A collective, before sharding: rank 0 has the model's weights.

    Raises:
        StageConfigError: a name or pattern matches nothing, or matches quantised weights.
    """
    now = what_learns(model, phases)
    so_far = tuple(itertools.accumulate(now, operator.or_))
    bases = [hash_base(model, names) for names in so_far] if ranks.rank == 0 else []
    ranks.meet("base_hash", speaks=ranks.rank == 1)  # reads all of a large model
    return Learning(now=now, so_far=so_far, bases=tuple(ranks.from_main(bases)))


def what_learns(model: VisionLanguageModel, phases: Sequence[Phase]) -> tuple[frozenset[str], ...]:
    """Return the names of the trained parameters, phase by phase; also for a model on "meta".

    Raises:
        StageConfigError: as in `plan_learning`.
    """
    parts, unused = parts_of(model), model.unused_parameters()
    heads = frozenset(name for name, part in parts.items() if part == "heads")
    quantized = quantized_names(model)
    learning: list[frozenset[str]] = []
    for phase in phases:
        names = choose(parts, phase.config.learning_parts, phase.key("learn"))
        if wrong := sorted(names & quantized):
            message = (
                f"{phase.key('learn')} names {len(wrong)} weights in 4 bits, which cannot learn "
                f"({visible_name(wrong[0])}): leave them out, or name them in quantize.skip"
            )
            raise StageConfigError(message)
        learning.append((heads | names) - unused)
    return tuple(learning)


def hash_base(model: VisionLanguageModel, learned: frozenset[str]) -> str:
    """Return xxh3-128 of names and bytes of all that is not trained, in hexadecimal; "" if all is.

    For quantised weights this includes the scales. It excludes adapters while none of them was
    trained: until then they change nothing, so other adapters would give the same training.
    They only change the names of the trained weights next to them, under which a checkpoint
    stores these.

    `model` has its weights, and is not sharded yet.
    """
    adapters = {name for name, part in parts_of(model).items() if part == "adapters"}
    have_learned = bool(adapters & learned)
    left_out = learned if have_learned else learned | adapters
    frozen = [(name, p) for name, p in model.named_parameters() if name not in left_out]
    renamed = [] if have_learned else sorted(n for n in learned if without_adapters(n) != n)
    if not frozen and not renamed:
        return ""
    scales = [
        (f"{name}.{buffer_name}", buffer)
        for name, layer in quantized_layers(model)
        for buffer_name, buffer in layer.named_buffers(recurse=False)
    ]
    digest = xxhash.xxh3_128("".join(renamed).encode())
    named = {n if have_learned else without_adapters(n): tensor for n, tensor in [*frozen, *scales]}
    for name, tensor in sorted(named.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().contiguous().flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


# Level rules for loader and model, from a config's levels.


def make_level_rules(
    levels: Sequence[LevelConfig], tokenizer: PreTrainedTokenizerFast | None
) -> LevelRules | None:
    """Return the requirements for every sample; None without levels."""
    if not levels:
        return None
    assert tokenizer is not None  # of every data set that is read
    return LevelRules(
        names=tuple(level.name for level in levels),
        readers={
            number: make_class_reader(
                level.classes, functools.partial(tokenizer.decode, skip_special_tokens=True)
            )
            for number, level in enumerate(levels)
            if level.head == "classes"
        },
    )


def make_class_reader(classes: Sequence[str], decode: Callable[[list[int]], str]) -> ClassReader:
    """Return a function from an answer's tokens to its class; may be used from several threads.

    The tokens of a text depend on the text before it, so tokens are decoded and texts compared.
    """
    lock = threading.Lock()  # only one thread at a time may use a tokenizer
    numbers = {name: number for number, name in enumerate(classes)}

    @functools.lru_cache(maxsize=65_536)
    def read(answer: tuple[int, ...]) -> int:
        with lock:
            text = decode(list(answer)).strip()
        if text not in numbers:
            message = f"the answer {text!r} is not one of the {len(numbers)} classes"
            raise ValueError(message)
        return numbers[text]

    return read


# Distribution of the model over the ranks: one module per strategy, behind one interface.
#
# The requested strategy runs, or the stage fails; `effect` checks what really happened.


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
    here = Place(node_name=context.node_name, local_rank=context.local_rank)
    places = ranks.from_main(ranks.gather(here))
    return FullySharded(rank_device, config.sharding, places)


# Building of the trained model: built on every rank, compared, sharded, verified.


log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedModel:
    """Model in training, with its strategy: for the loop, checkpoints and the export."""

    strategy: Strategy
    parallel: ParallelModel
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
        scaling=Scaling(config.scaler, rank_device),
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
        model, parallel=parallel, scaling=Scaling(phase.config.scaler, rank_device)
    )


def count_learning(model: TrainedModel, phase: Phase) -> int:
    """Count the parameters trained in a phase."""
    names = model.learning.now[phase.number]
    return sum(p.numel() for name, p in model.parallel.bare.named_parameters() if name in names)


def build_together(
    config: TrainConfig, data: DataFacts, ranks: Ranks, rank_device: RankDevice, *, loads_once: bool
) -> VisionLanguageModel:
    """Build the model on the CPU; with `loads_once` only on rank 0, on "meta" elsewhere.

    Raises:
        StageConfigError: on all ranks, if one of them cannot build it.
    """
    model, problem = None, None
    is_unloaded = loads_once and ranks.rank != 0
    try:
        check_dtypes(config, rank_device)
        if is_unloaded:
            model = make_shell(config, data, rank_device)
        else:
            as_stored = config.quantize is not None
            model = build_model(config.model, data, seed=config.seed, as_stored=as_stored)
            _add_parts(model, config, rank_device)
        _prepare_layers(model, config, rank_device)
        if is_unloaded:
            check_can_be_shared(model)
    except StageConfigError as error:
        problem = str(error)
    # Reading and quantising may take long, and the rank that reads for all logs nothing.
    ranks.meet("model_build", speaks=ranks.rank in (0, 1))
    problems = ranks.from_main(ranks.gather(problem))
    if first_problem := next(filter(None, problems), None):
        raise StageConfigError(first_problem)
    assert model is not None
    return model


def _prepare_layers(
    model: VisionLanguageModel, config: TrainConfig, rank_device: RankDevice
) -> None:
    """Configure how layers compute; what is compiled is the recomputed layer."""
    model.uses_varlen = attention_of(model, config, rank_device).uses_varlen
    if rank_device.precision == "fp16":
        keep_residual_in_fp32(model, rank_device.device)
    if config.activation_checkpointing:
        recompute_layers(model)
    if config.compile is not None:
        compile_layers(model, config.compile, rank_device.device)


def make_shell(
    config: TrainConfig, data: DataFacts, rank_device: RankDevice
) -> VisionLanguageModel:
    """Build the whole model with its additions, on "meta": shapes without weights.

    Raises:
        StageConfigError: there is no such model, or the additions do not fit it.
    """
    model = make_unloaded(config.model, data, torch.device("meta"))
    _add_parts(model, config, rank_device)
    return model


def _add_parts(model: VisionLanguageModel, config: TrainConfig, rank_device: RankDevice) -> None:
    """Quantise, and add heads and adapters; on "meta" they have no weights."""
    if config.quantize is not None:
        from pipeline.models.finetuning.quantized_linear import quantize_model

        quantize_model(model, config.quantize, rank_device.device)
    with next(model.parameters()).device:
        if config.levels:
            model.add_heads(len(config.levels), num_classes(config.levels))
        if config.adapters is not None:
            add_adapters(model, config.adapters, seed=config.seed)
    compute_in(model, rank_device.dtype)  # not before: peft would create adapters of that dtype


def attention_of(
    model: VisionLanguageModel,
    config: TrainConfig,
    rank_device: RankDevice,
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
        device_type=rank_device.device.type,
        capability=capability_of(rank_device.device),
        precision=rank_device.precision,
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
