"""Checks of one rank about the training that will start, from sizes alone."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from pipeline.data.index import open_index
from pipeline.data.info import DatasetInfo
from pipeline.models import DataFacts, VisionLanguageModel
from pipeline.models.compiling import check_can_compile, check_towers
from pipeline.models.positions import longest_sample, positions_problem
from pipeline.models.weight_files import check_weight_files, fp16_warning
from pipeline.training.attention_choice import AttentionChoice
from pipeline.training.checkpoint.files import list_checkpoints
from pipeline.training.evaluate import evaluation_dtype
from pipeline.training.host_memory import read_host_memory
from pipeline.training.job import Job
from pipeline.training.learning import what_learns
from pipeline.training.phases import Phase
from pipeline.training.preflight.attention import (
    AttentionFound,
    attention_note,
    attention_warning,
    find_kernels,
    uses_of,
)
from pipeline.training.preflight.checkpoint_room import disk_warning
from pipeline.training.preflight.device_facts import DeviceFacts
from pipeline.training.preflight.ending_room import EndingNeed, ending_need, judge_ending
from pipeline.training.preflight.memory_need import (
    MemoryNeed,
    checkpoint_bytes,
    memory_need,
    stored_bytes,
)
from pipeline.training.preflight.memory_room import Verdict, judge_card, judge_node, remedies
from pipeline.training.preflight.model_sizes import ModelSizes, read_sizes
from pipeline.training.preflight.sharing import Sharing, gathered_units
from pipeline.training.preflight.wheel import compile_warning
from pipeline.training.spreading import attention_of, make_shell
from pipeline.training.strategies.loading import check_can_be_shared
from pipeline.training.strategies.quantized_effect import check_dtypes
from slurm_jobs.common.accelerate_file import AccelerateFile
from slurm_jobs.common.dataset_names import INDEX_NAME
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.stage_config.model import ModelConfig
from slurm_jobs.common.stage_config.train import TrainConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """The training, as far as it is known before anything is staged in."""

    phases: Sequence[Phase]
    folders: Sequence[Path]
    """Data sets of the phases."""
    infos: Sequence[DatasetInfo]
    """Their descriptions."""
    facts: DataFacts
    file: AccelerateFile | None
    """File of `strategy: accelerate`."""
    sharing: Sharing

    @property
    def batching_kinds(self) -> frozenset[str]:
        """Kinds of all phases."""
        return frozenset(phase.config.batching.kind for phase in self.phases)


@dataclass(frozen=True, kw_only=True, slots=True)
class Findings:
    """Findings of one rank."""

    warnings: tuple[str, ...]
    notes: tuple[str, ...]
    """Readable notes for the log."""
    values: Mapping[str, Any]
    """Values for `preflight.json`."""
    repeats_keys: bool
    """True if attention needs shared keys repeated for each head."""


def look(job: Job, planned: Planned, device: DeviceFacts) -> Findings:
    """Build the model without weights, and compare its needs with the available resources.

    Raises:
        StageConfigError: training cannot run; with the remedy.
    """
    config = job.config
    check_dtypes(config, job.workplace)
    if config.compile is not None:
        check_can_compile(config.compile, job.workplace.device)
    if config.strategy != "fsdp2" or job.ranks.rank == 0:  # the ranks that read weights
        check_weight_files(config.model)
    shell = _make_shell(job, planned)
    _check_positions(planned, shell)
    position_warnings = _warn_of_answers(job, planned, shell)
    sizes = read_sizes(shell, gathered_units(shell, config, planned.file))
    learned = what_learns(shell, planned.phases)
    choice = attention_of(shell, config, job.workplace)
    needs = _needs(job, planned, sizes, learned, choice)
    most = max(range(len(needs)), key=lambda number: needs[number].least_bytes)
    hints = _hints(job, planned.phases[most].config, needs[most])
    ending, ending_warnings = _judge_ending(job, sizes, device)
    warnings = [*_judge_memory(job, needs[most], sizes, device, hints), *ending_warnings]
    attention = _attention(job, planned, shell, choice)
    disk_warnings, disk = _disk(job, planned, sizes, learned)
    return Findings(
        warnings=(
            *warnings,
            *_precision_warnings(job, device),
            *position_warnings,
            *_attention_warnings(attention, planned, device),
            *disk_warnings,
        ),
        notes=(*(attention_note(found) for found in attention), *_choice_notes(attention, choice)),
        repeats_keys=any(found.repeats_keys for found in attention),
        values={
            "attention": {_name_of(found): found.kernel for found in attention},
            "packed_attention": asdict(choice),
            "cudnn_attention": torch.backends.cuda.cudnn_sdp_enabled(),
            "phase": planned.phases[most].name,
            "memory": {
                **asdict(needs[most]),
                "least_bytes": needs[most].least_bytes,
                "expected_bytes": needs[most].expected_bytes,
                **asdict(ending),
            },
            **disk,
        },
    )


def _precision_warnings(job: Job, device: DeviceFacts) -> list[str]:
    """Return warnings about precision on older cards."""
    is_fp16 = job.workplace.precision == "fp16"
    found = (
        fp16_warning(job.config.model) if is_fp16 else None,
        compile_warning(device, job.config),
    )
    return [warning for warning in found if warning]


def _make_shell(job: Job, planned: Planned) -> VisionLanguageModel:
    """Build the model without weights; it must allow the config's compiling and sharing."""
    config = job.config
    shell = make_shell(config, planned.facts, job.workplace)
    shell.uses_varlen = attention_of(shell, config, job.workplace).uses_varlen
    if config.compile is not None:
        check_towers(shell, config.compile)
    if config.strategy == "fsdp2" and job.ranks.num_ranks > 1:
        check_can_be_shared(shell)
    return shell


def _check_positions(planned: Planned, shell: VisionLanguageModel) -> None:
    """Compare the longest sample of each phase with the positions of the language model.

    The index is not read if the data set's own limit proves that all samples fit.

    Raises:
        StageConfigError: a sample is longer.
    """
    limit = shell.max_positions
    if limit is None:
        return
    for phase, folder, info in zip(planned.phases, planned.folders, planned.infos, strict=True):
        if info.preprocess.get("max_tokens", math.inf) <= limit:
            continue
        index = open_index(folder / INDEX_NAME, info.index, num_samples=info.num_samples)
        longest, num_over = longest_sample(index, info, limit)
        problem = positions_problem(
            longest=longest,
            limit=limit,
            num_over=num_over,
            num_samples=info.num_samples,
            source=_more_positions(phase.config.model, longest),
        )
        if problem:
            message = f"{phase.key('dataset')} ({folder}): {problem}"
            raise StageConfigError(message)


def _warn_of_answers(job: Job, planned: Planned, shell: VisionLanguageModel) -> list[str]:
    """Warn if the evaluation may generate beyond the positions of the language model.

    A warning only, because held-out rows may be shorter than the limit of `preprocess`.
    """
    evaluate, limit, info = job.config.evaluate, shell.max_positions, planned.infos[0]
    prompt = info.preprocess.get("max_tokens")
    if evaluate.manifest is None or limit is None or prompt is None:
        return []
    if info.image_kind == "native":  # tokens of an image share positions
        return []
    if prompt + evaluate.max_new_tokens <= limit:
        return []
    warning = (
        f"held-out prompts may have {prompt:,} tokens (max_tokens of preprocess), with answers "
        f"of up to {evaluate.max_new_tokens:,} (evaluate.max_new_tokens), but the language model "
        f"has {limit:,} positions: answers beyond them are meaningless"
    )
    return [warning]


def _more_positions(model: ModelConfig, longest: int) -> str:
    """Return the setting that gives the language model more positions."""
    folder = model.path or model.name or model.language.path
    if folder is None:
        return f"set model.language.max_positions: {longest}"
    return (
        f"raise max_position_embeddings in a copy of {folder}/config.json, if the model is meant "
        "to learn positions beyond those"
    )


def _needs(
    job: Job,
    planned: Planned,
    sizes: ModelSizes,
    learned: Sequence[Collection[str]],
    choice: AttentionChoice,
) -> list[MemoryNeed]:
    """Return the need of each phase."""
    found = []
    for phase, info, names in zip(planned.phases, planned.infos, learned, strict=True):
        config = phase.config
        num_microbatches, num_samples = _pieces(config, job.ranks.num_ranks)
        # An average, however samples share rows.
        num_tokens = num_samples * info.num_tokens / max(1, info.num_samples)
        need = memory_need(
            sizes,
            names,
            planned.sharing,
            compute_itemsize=job.workplace.dtype.itemsize,
            optimizer_kind=config.optimizer.kind,
            num_microbatches=num_microbatches,
            num_tokens=int(num_tokens),
            masked_length=_masked_length(config, info, choice),
            residual_itemsize=4 if job.workplace.precision == "fp16" else None,
            looks=config.evaluate.every_steps is not None,
        )
        found.append(need)
    return found


def _masked_length(config: TrainConfig, info: DatasetInfo, choice: AttentionChoice) -> int:
    """Return the tokens of a row that has a mask; 0 where none has, or its length is not known."""
    batching = config.batching
    if batching.kind != "packed" or batching.strategy == "none" or choice.uses_varlen:
        return 0
    return batching.max_tokens or info.preprocess.get("max_tokens") or 0


def _pieces(config: TrainConfig, num_ranks: int) -> tuple[int, float]:
    """Return microbatches of a step, and samples in each on one rank.

    The result of `auto` is not known yet; as a lower bound nothing accumulates, and each sample
    is computed alone.
    """
    if config.num_microbatches == "auto":
        return 1, 1.0
    return config.num_microbatches, config.global_batch_size / num_ranks / config.num_microbatches


def _hints(job: Job, config: TrainConfig, need: MemoryNeed) -> tuple[str, str]:
    """Return remedies against activations only, and against all that a phase needs."""
    remedy = remedies(
        job.config, need, num_ranks=job.ranks.num_ranks, optimizer_kind=config.optimizer.kind
    )
    return _fewer_rows(config), remedy


def _fewer_rows(config: TrainConfig) -> str:
    """Return remedies if rows, not the state, take the memory; empty if the config has them."""
    can_search = config.reader == "index" and config.num_microbatches != "auto"
    return "set `num_microbatches: auto`, or " if can_search else ""


def _judge_memory(
    job: Job, need: MemoryNeed, sizes: ModelSizes, device: DeviceFacts, remedies: tuple[str, str]
) -> list[str]:
    """Return warnings; the first of the remedies helps against activations only.

    Raises:
        StageConfigError: required memory does not fit.
    """
    fewer_rows, remedy = remedies
    verdicts = [_judge_node(job, need, sizes, remedy)]
    if device.total_bytes is not None:
        verdicts.append(judge_card(need, device, remedy, fewer_rows=fewer_rows))
    for verdict in verdicts:
        if verdict.problem:
            raise StageConfigError(verdict.problem)
    return [verdict.warning for verdict in verdicts if verdict.warning]


def _judge_node(job: Job, need: MemoryNeed, sizes: ModelSizes, remedy: str) -> Verdict:
    """Judge the memory of the rank's node: for CPU computing, offloading, or reading weights."""
    context, on_cpu = job.context, job.workplace.device.type == "cpu"
    least_bytes = need.offloaded_bytes + (need.least_bytes if on_cpu else 0)
    expected_bytes = need.offloaded_bytes + (need.expected_bytes if on_cpu else 0)
    if job.config.checkpoint.mode == "async":  # from the first save on
        expected_bytes += need.saved_bytes
        remedy += "; or save at once (`checkpoint: {mode: sync}`)"
    read_bytes = stored_bytes(sizes)  # before they are sharded, or moved to the card
    if job.config.strategy == "fsdp2":
        read_bytes = read_bytes if context.node_rank == 0 else 0
    else:
        read_bytes *= context.num_local_ranks
    return judge_node(
        least_bytes=context.num_local_ranks * least_bytes,
        expected_bytes=max(context.num_local_ranks * expected_bytes, read_bytes),
        host=read_host_memory(os.environ),
        node_name=context.node_name,
        remedy=remedy,
    )


def _judge_ending(job: Job, sizes: ModelSizes, device: DeviceFacts) -> tuple[EndingNeed, list[str]]:
    """Return the needs of export and evaluation, and warnings: the training itself may run."""
    evaluates = job.config.evaluate.manifest is not None
    itemsize = evaluation_dtype(job.workplace, job.config.strategy).itemsize if evaluates else None
    need = ending_need(sizes, evaluation_itemsize=itemsize)
    warnings = judge_ending(
        need,
        card=device,
        host=read_host_memory(os.environ),
        exports=job.ranks.rank == 0,
        num_local_ranks=job.context.num_local_ranks,
        node_name=job.context.node_name,
    )
    return need, list(warnings)


def _attention(
    job: Job, planned: Planned, shell: VisionLanguageModel, choice: AttentionChoice
) -> list[AttentionFound]:
    """Return kernels by tower, for the rows of every phase."""
    uses = uses_of(shell, planned.batching_kinds, job.workplace.dtype)
    how = {"attention_name": shell.attention_name, "uses_varlen": choice.uses_varlen}
    return [find_kernels(use, job.workplace.device, **how) for use in uses]


def _choice_notes(attention: Sequence[AttentionFound], choice: AttentionChoice) -> list[str]:
    """Describe the attention of packed rows and images, if there are any."""
    if not any(found.use.has_mask or found.use.sizes_differ for found in attention):
        return []
    return [f"{choice.packed}: {choice.reason}"]


def _name_of(found: AttentionFound) -> str:
    return f"{found.use.tower}, packed" if found.use.has_mask else found.use.tower


def _attention_warnings(
    attention: Sequence[AttentionFound], planned: Planned, device: DeviceFacts
) -> list[str]:
    """Return no warnings on a CPU, which has enough memory."""
    if device.type == "cpu":
        return []
    longest = _longest_row(planned)
    told = (attention_warning(each, where=str(device), max_tokens=longest) for each in attention)
    return [warning for warning in told if warning]


def _longest_row(planned: Planned) -> int | None:
    """Return the most tokens of a row, in any phase."""
    found = [
        phase.config.batching.max_tokens or info.preprocess.get("max_tokens")
        for phase, info in zip(planned.phases, planned.infos, strict=True)
    ]
    return max(filter(None, found), default=None)


def _disk(
    job: Job, planned: Planned, sizes: ModelSizes, learned: Sequence[Collection[str]]
) -> tuple[list[str], dict[str, int]]:
    """Check on the first rank whether checkpoints and export fit on the disk."""
    if job.ranks.rank != 0:
        return [], {}
    names: frozenset[str] = frozenset().union(*learned)
    phase = planned.phases[-1]
    num_bytes = checkpoint_bytes(sizes, names, phase.config.optimizer.kind)
    free_bytes = shutil.disk_usage(job.context.output_dir).free
    warning = disk_warning(
        checkpoint_bytes=num_bytes,
        keep_last=job.config.checkpoint.keep_last,
        num_present=len(list_checkpoints(phase.folder(job.context.output_dir) / "checkpoints")),
        export_bytes=4 * sizes.num_weights,
        free_bytes=free_bytes,
        folder=str(job.context.output_dir),
    )
    values = {"checkpoint_bytes": num_bytes, "disk_free_bytes": free_bytes}
    return [warning] if warning else [], values
