"""Checks of a job's first seconds, before anything is staged or read."""

from __future__ import annotations

import importlib
import logging
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from pipeline.data.format import DatasetInfo, read_dataset_info
from pipeline.data.index import open_index
from pipeline.models.adapters import repeat_shared_keys
from pipeline.models.compute import check_can_compile, check_towers
from pipeline.models.layouts import DataFacts
from pipeline.models.loading import check_weight_files, fp16_warning
from pipeline.models.vision_language import VisionLanguageModel, longest_sample, positions_problem
from pipeline.train.attention import (
    AttentionChoice,
    AttentionFound,
    attention_note,
    attention_warning,
    find_kernels,
    lengths_are_fixed,
    uses_of,
)
from pipeline.train.checkpoint_files import fingerprint, list_checkpoints
from pipeline.train.device import (
    DeviceFacts,
    card_problem,
    compile_warning,
    read_accelerate_file,
    read_device,
)
from pipeline.train.evaluate import evaluation_dtype
from pipeline.train.host_memory import read_host_memory
from pipeline.train.job import Job, Phase, phases_of
from pipeline.train.memory import (
    EndingNeed,
    MemoryNeed,
    ModelSizes,
    Sharing,
    Verdict,
    checkpoint_bytes,
    ending_need,
    gathered_units,
    judge_card,
    judge_ending,
    judge_node,
    memory_need,
    read_sizes,
    remedies,
    sharing_of,
    stored_bytes,
)
from pipeline.train.prepare import attention_of, check_single, make_shell, what_learns
from pipeline.train.strategies import Place, check_can_be_shared
from pipeline.train.strategy_checks import check_dtypes
from slurm_jobs.shared.accelerate_file import AccelerateFile
from slurm_jobs.shared.configs.model_parts import ModelConfig
from slurm_jobs.shared.configs.train import TrainConfig
from slurm_jobs.shared.errors import StageConfigError
from slurm_jobs.shared.files import ranges_text, write_json_atomic
from slurm_jobs.shared.manifest_formats import INDEX_NAME

# Comparison of all ranks.
#
# Ranks that differ in hardware or software train at the pace of the slowest at best, and at worst
# silently learn other weights.


_MEMORY_TOLERANCE_SHARE = 0.02
"""Cards of one model report memory that differs by ECC and retired pages."""
_MEMORY_IN_NAME = re.compile(r"[- ]\d+ ?GB\b")


@dataclass(frozen=True, kw_only=True, slots=True)
class RankFacts:
    """Facts that must be equal on all ranks."""

    node_name: str
    device: DeviceFacts
    versions: Mapping[str, str]
    """Versions of libraries, by name."""
    precision: str
    num_compute_threads: int
    config: str
    """Fingerprint of the stage's config."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Result of comparing all ranks."""

    problems: tuple[str, ...]
    """Problems that prevent the training."""
    warnings: tuple[str, ...]


def compare_ranks(by_rank: Sequence[RankFacts]) -> Comparison:
    """Return the differences between ranks, by rank and node, with the remedy.

    Cards of different compute capability are a problem: each has its own kernels and precision.
    Different cards of one capability, different memory and another number of compute threads
    are warnings.
    """
    names = sorted({name for rank in by_rank for name in rank.versions})
    same_environment = "give all nodes the same environment (the stage's python, setup lines)"
    one_kind = "request one kind of card (resources.gpu, or slurm: {constraint: ..})"
    threads = _difference(
        by_rank, "the number of compute threads", lambda rank: rank.num_compute_threads
    )
    threads = threads and f"{threads}: set num_compute_threads"
    found = [
        *(
            _difference(by_rank, name, lambda rank, name=name: rank.versions.get(name, "missing"))
            for name in names
        ),
        _difference(by_rank, "the stage's config", lambda rank: rank.config),
    ]
    problems = [f"{told}: {same_environment}" for told in found if told]
    cards = _difference(by_rank, "device", _kind)
    is_mixed = len({(rank.device.type, rank.device.capability) for rank in by_rank}) > 1
    precision = _difference(by_rank, "precision", lambda rank: rank.precision)
    problems += [f"{told}: {one_kind}" for told in (cards if is_mixed else None, precision) if told]
    slower = cards and not is_mixed and f"{cards}: all run at the pace of the slowest"
    warnings = [slower or None, _memory_warning(by_rank), threads]
    return Comparison(
        problems=tuple(problems), warnings=tuple(warning for warning in warnings if warning)
    )


def _kind(rank: RankFacts) -> str:
    """Return the card's model without its memory size; all CPUs count as one."""
    if rank.device.capability is None:
        return rank.device.type
    return _MEMORY_IN_NAME.sub("", str(rank.device))


def _memory_warning(by_rank: Sequence[RankFacts]) -> str | None:
    sizes = [rank.device.total_bytes for rank in by_rank]
    known = [size for size in sizes if size is not None]
    if not known or max(known) - min(known) <= _MEMORY_TOLERANCE_SHARE * max(known):
        return None
    told = _difference(
        by_rank, "memory of the card", lambda rank: f"{(rank.device.total_bytes or 0) / 1e9:.1f} GB"
    )
    return f"{told}: the smallest bounds what a microbatch may hold"


def _difference(
    by_rank: Sequence[RankFacts], what: str, value_of: Callable[[RankFacts], object]
) -> str | None:
    """Return `torch is 2.13.0 on ranks 0-3 (node a), 2.12.1 on ranks 4-7 (node b)`, or None."""
    ranks_of: dict[object, list[int]] = {}
    for rank, facts in enumerate(by_rank):
        ranks_of.setdefault(value_of(facts), []).append(rank)
    if len(ranks_of) == 1:
        return None
    parts = []
    for value, ranks in ranks_of.items():
        nodes = ", ".join(dict.fromkeys(by_rank[rank].node_name for rank in ranks))
        plural = "s" if len(ranks) > 1 else ""
        parts.append(f"{value} on rank{plural} {ranges_text(ranks)} ({nodes})")
    return f"ranks are not alike: {what} is {', '.join(parts)}"


# Check that the disk has room for the checkpoints and the export of a training.


_GB = 1e9


def disk_warning(
    *,
    checkpoint_bytes: int,
    keep_last: int,
    num_present: int,
    export_bytes: int,
    free_bytes: int,
    folder: str,
) -> str | None:
    """Return a warning that a checkpoint will not fit, with the remedy.

    Args:
        checkpoint_bytes: Size of one.
        keep_last: Number of checkpoints to keep; a new one is written before the oldest is
            removed.
        num_present: Number of existing checkpoints.
        export_bytes: Size of the exported model.
        free_bytes: Free bytes of the file system; a quota may leave less.
        folder: Their folder.
    """
    num_new = max(1, keep_last + 1 - num_present)
    needed_bytes = num_new * checkpoint_bytes + export_bytes
    if needed_bytes <= free_bytes:
        return None
    return (
        f"{folder} has {free_bytes / _GB:.2f} GB free, but {needed_bytes / _GB:.2f} GB are still "
        f"to be written (checkpoints {num_new} x {checkpoint_bytes / _GB:.2f} GB, the export "
        f"{export_bytes / _GB:.2f} GB): free space, or lower checkpoint.keep_last ({keep_last})"
    )


# Check that the libraries that only some configs need can be loaded on this node.
#
# Without this check they would be loaded when a model gets its adapters or an optimizer is
# created: after the data set was staged and the weights were read.


def library_problem(phases: Sequence[Phase]) -> str | None:
    """Return why a library cannot be loaded, which key needs it, and the remedy; loads them."""
    for phase in phases:
        for library, key, remedy in _library_needs(phase):
            try:
                importlib.import_module(library)
            except Exception as error:  # noqa: BLE001 - a library that is half there raises anything
                return (
                    f"{key} needs {library}, which cannot be loaded here "
                    f"({type(error).__name__}: {error}): {sys.executable} -m pip install "
                    f"--force-reinstall {library}; or {remedy}"
                )
    return None


def _library_needs(phase: Phase) -> list[tuple[str, str, str]]:
    """Return the library, the key that needs it, and the alternative."""
    config, needs = phase.config, list[tuple[str, str, str]]()
    if config.adapters is not None:
        needs.append(("peft", "adapters", "leave adapters out"))
    if config.quantize is not None:
        needs.append(("bitsandbytes", "quantize", "leave quantize out"))
    if config.optimizer.kind != "adamw":
        key = phase.key("optimizer.kind")
        needs.append(("bitsandbytes", f"{key}: {config.optimizer.kind}", f"set {key}: adamw"))
    return needs


# Checks of one rank about the training that will start, from sizes alone.


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


# Preflight on every rank: check, agree, report, and fail together.


log = logging.getLogger(__name__)

PREFLIGHT_NAME = "preflight.json"
_LIBRARIES = ("transformers", "accelerate", "peft", "bitsandbytes")


def preflight(
    job: Job, phases: Sequence[Phase], folders: Sequence[Path], facts: DataFacts
) -> dict[str, Any]:
    """Check in seconds whether this training can run on these ranks; a collective.

    Runs before anything is staged in or read. Sets how this process computes attention.

    Args:
        job: Job of this rank.
        phases: Phases of the training.
        folders: Their data sets.
        facts: Facts of the first of them.

    Returns:
        Findings, as in `preflight.json` of the output folder; empty on ranks other than 0.

    Raises:
        StageConfigError: on all ranks, naming ranks, reason and remedy.
    """
    begun_s = time.monotonic()
    with job.spans.span("preflight"):
        device = read_device(job.workplace.device)
        warnings = _compare(job, device)
        planned = _plan(job, phases, folders, facts)
        if device.type == "cuda":
            fixed = lengths_are_fixed(planned.infos, planned.batching_kinds)
            torch.backends.cuda.enable_cudnn_sdp(fixed)
        findings, problem = None, None
        try:
            findings = look(job, planned, device)
        except StageConfigError as error:
            problem = str(error)
        _fail_together(job, problem)
        assert findings is not None
        repeat_shared_keys(on=findings.repeats_keys)
        told = job.ranks.gather(findings.warnings)
        if job.ranks.rank != 0:
            return {}
        warnings = list(dict.fromkeys([*warnings, *(each for rank in told for each in rank)]))
        values = _describe(job, device, findings, warnings, time.monotonic() - begun_s)
        write_json_atomic(job.context.output_dir / PREFLIGHT_NAME, values)
        _say(values, device, findings)
        return values


def _compare(job: Job, device: DeviceFacts) -> list[str]:
    """Return warnings, on rank 0.

    Raises:
        StageConfigError: on all ranks; one has no code for its card, lacks a library, or they
            are not alike.
    """
    problem = card_problem(device, job.config) or library_problem(phases_of(job.config))
    _fail_together(job, problem)
    versions = dict[str, str]()
    for name in _LIBRARIES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    mine = RankFacts(
        node_name=job.context.node_name,
        device=device,
        versions={"torch": device.torch_version, **versions},
        precision=job.workplace.precision,
        num_compute_threads=job.workplace.num_compute_threads,
        config=fingerprint(asdict(job.config)),
    )
    by_rank = job.ranks.gather(mine)
    found = job.ranks.from_main(compare_ranks(by_rank) if by_rank else None)
    if found.problems:
        raise StageConfigError("; ".join(found.problems))
    return list(found.warnings)


def _plan(job: Job, phases: Sequence[Phase], folders: Sequence[Path], facts: DataFacts) -> Planned:
    config, context, ranks = job.config, job.context, job.ranks
    check_single(config, ranks.num_ranks)
    file = read_accelerate_file(config, ranks, num_nodes=context.num_nodes)
    here = Place(node_name=context.node_name, local_rank=context.local_rank)
    places = ranks.from_main(ranks.gather(here))
    infos = {folder: read_dataset_info(folder) for folder in dict.fromkeys(folders)}
    return Planned(
        phases=phases,
        folders=folders,
        infos=[infos[folder] for folder in folders],
        facts=facts,
        file=file,
        sharing=sharing_of(config, file, places),
    )


def _fail_together(job: Job, problem: str | None) -> None:
    """Raise on all ranks if one has a problem; a collective."""
    told = job.ranks.from_main(job.ranks.gather((problem, job.context.node_name)))
    ranks = [rank for rank, (each, _) in enumerate(told) if each]
    if ranks:
        first, _ = told[ranks[0]]
        nodes = ", ".join(dict.fromkeys(told[rank][1] for rank in ranks))
        plural = "s" if len(ranks) > 1 else ""
        where = f" (rank{plural} {ranges_text(ranks)} on {nodes})"
        where = where if len(ranks) < len(told) else ""
        message = f"{first}{where}"
        raise StageConfigError(message)


def _describe(
    job: Job, device: DeviceFacts, findings: Findings, warnings: Sequence[str], duration_s: float
) -> dict[str, Any]:
    return {
        "device": device.name or device.type,
        "capability": device.capability,
        "torch": device.torch_version,
        "precision": job.workplace.precision,
        "num_compute_threads": job.workplace.num_compute_threads,
        "card_bytes": device.total_bytes,
        **findings.values,
        "warnings": list(warnings),
        "duration_s": duration_s,
    }


def _say(values: dict[str, Any], device: DeviceFacts, findings: Findings) -> None:
    memory = values["memory"]
    room = "" if device.total_bytes is None else f" of {device.total_bytes / 1e9:.1f} GB"
    log.info(
        "preflight: %s, %s, torch %s; attention: %s; a rank holds at least %.2f GB%s",
        device,
        values["precision"],
        device.torch_version,
        ", ".join(findings.notes),
        memory["least_bytes"] / 1e9,
        room,
    )
    for warning in values["warnings"]:
        log.warning("preflight: %s", warning)
