"""Model before it is sharded: built on every rank, or without weights, with its additions."""

from __future__ import annotations

from collections.abc import Collection

import torch

from pipeline.models.attention_kernels.packed_rows import takes_masks
from pipeline.models.attention_kernels.varlen import why_no_varlen
from pipeline.models.build import build_model, make_unloaded
from pipeline.models.computation.attention_sizes import attention_sizes
from pipeline.models.computation.compiling import compile_layers
from pipeline.models.computation.fp32_residual import keep_residual_in_fp32
from pipeline.models.computation.recompute import recompute_layers
from pipeline.models.data_facts import DataFacts
from pipeline.models.finetuning.adapters import add_adapters
from pipeline.models.finetuning.classifier_heads import num_classes
from pipeline.models.finetuning.packed_linear import compute_in
from pipeline.models.layouts.native_patches import NativePatches
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.attention.attention_choice import (
    AttentionChoice,
    AttentionFacts,
    choose_attention,
)
from pipeline.train.device.precision import capability_of
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.phase import phases_of
from pipeline.train.ranks.process_group import Ranks
from pipeline.train.strategies.weight_distribution import check_can_be_shared
from pipeline.train.strategy_checks.quantized_weights import check_dtypes
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.train import TrainConfig


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
            model.add_heads(num_classes(config.levels))
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
        images_see_ahead=bool(model.block_layers),
        head_sizes=tuple(sizes.head_dim for sizes in attention_sizes(model)),
        dropout=float(getattr(text, "attention_dropout", 0) or 0),
        packs=not kinds.isdisjoint({"packed", "auto"}),
        sizes_differ=isinstance(model.layout, NativePatches),
        why_no_varlen=why_no_varlen(),
    )
    return choose_attention(config.attention, facts)
