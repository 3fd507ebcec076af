"""Checks of one rank about the training that will start, from sizes alone."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from pipeline.data.disk_format.dataset_info import DatasetInfo, read_dataset_info
from pipeline.data.disk_format.index import open_index
from pipeline.models.attention_kernels.delta_net import describe_states, has_delta_nets
from pipeline.models.attention_kernels.packed_rows import windows_of
from pipeline.models.computation.compiling import check_can_compile, check_towers
from pipeline.models.data_facts import DataFacts
from pipeline.models.loading.weight_files import check_weight_files, fp16_warning
from pipeline.models.position_limits import longest_sample, positions_problem
from pipeline.train.accelerate_settings import read_accelerate_file
from pipeline.train.attention.kernel_selection import (
    attention_note,
    attention_warning,
    find_kernels,
    uses_of,
)
from pipeline.train.checkpoints.checkpoint_folders import list_checkpoints
from pipeline.train.device.card_support import compile_warning
from pipeline.train.device.device_facts import DeviceFacts
from pipeline.train.evaluate import evaluation_dtype
from pipeline.train.job import Job
from pipeline.train.memory.ending_memory import ending_need, judge_ending
from pipeline.train.memory.host_memory import read_host_memory
from pipeline.train.memory.memory_fit import judge_card, judge_node, remedies
from pipeline.train.memory.memory_need import MemoryNeed, checkpoint_bytes, memory_need
from pipeline.train.memory.sharing import gathered_units, sharing_of
from pipeline.train.memory.tensor_sizes import ModelSizes, read_sizes
from pipeline.train.phase import Phase
from pipeline.train.preflight.disk_space import disk_warning
from pipeline.train.strategies.rank_mesh import RankPlace
from pipeline.train.strategies.strategy_choice import check_single
from pipeline.train.strategies.weight_distribution import check_can_be_shared
from pipeline.train.strategy_checks.quantized_weights import check_dtypes
from pipeline.train.trained_model.bare_model import attention_of, make_shell
from pipeline.train.trained_model.learned_parameters import what_learns
from slurm_jobs.base.errors import StageConfigError
from slurm_jobs.formats.configs.train import TrainConfig
from slurm_jobs.formats.dataset_folder import INDEX_NAME


class RankChecks:
    """Checks of one rank; what they find is in the attributes."""

    def __init__(
        self,
        job: Job,
        phases: Sequence[Phase],
        folders: Sequence[Path],
        facts: DataFacts,
        device: DeviceFacts,
    ) -> None:
        """Read the data sets' descriptions and agree on the sharding; a collective."""
        config, context, ranks = job.config, job.context, job.ranks
        self.job, self.phases, self.folders, self.facts = job, phases, folders, facts
        self.device = device
        check_single(config, ranks.num_ranks)
        self.file = read_accelerate_file(config, ranks, num_nodes=context.num_nodes)
        here = RankPlace(node_name=context.node_name, local_rank=context.local_rank)
        self.sharing = sharing_of(config, self.file, ranks.from_main(ranks.gather(here)))
        infos = {folder: read_dataset_info(folder) for folder in dict.fromkeys(folders)}
        self.infos = [infos[folder] for folder in folders]
        self.batching_kinds = frozenset(phase.config.batching.kind for phase in phases)
        self.warnings: list[str | None] = []
        self.notes: list[str] = []
        """For the log."""
        self.values: dict[str, Any] = {}
        """For `preflight.json`."""
        self.repeats_keys = False
        """True if attention needs shared keys repeated for each head."""

    def run(self) -> None:
        """Build the model without weights, and compare its needs with the available resources.

        Raises:
            StageConfigError: training cannot run; with the remedy.
        """
        config, rank_device = self.job.config, self.job.rank_device
        check_dtypes(config, rank_device)
        if config.compile is not None:
            check_can_compile(config.compile, rank_device.device)
        if config.strategy != "fsdp2" or self.job.ranks.rank == 0:  # the ranks that read weights
            check_weight_files(config.model)
        self.shell = make_shell(config, self.facts, rank_device)
        self.choice = attention_of(self.shell, config, rank_device)
        self.shell.uses_varlen = self.choice.uses_varlen
        if config.compile is not None:
            check_towers(self.shell, config.compile)
        if config.strategy == "fsdp2" and self.job.ranks.num_ranks > 1:
            check_can_be_shared(self.shell)
        self._check_positions()
        self.sizes = read_sizes(self.shell, gathered_units(self.shell, config, self.file))
        self.learned = what_learns(self.shell, self.phases)
        self._check_memory()
        if rank_device.precision == "fp16":
            self.warnings.append(fp16_warning(config.model))
        self.warnings.append(compile_warning(self.device, config))
        self._check_answers()
        self._check_attention()
        if self.job.ranks.rank == 0:
            self._check_disk()

    def _check_positions(self) -> None:
        """Compare the longest sample of each phase with the positions of the language model.

        The index is not read if the data set's own limit proves that all samples fit.
        """
        limit = self.shell.max_positions
        if limit is None:
            return
        for phase, folder, info in zip(self.phases, self.folders, self.infos, strict=True):
            if info.preprocess.get("max_tokens", math.inf) <= limit:
                continue
            index = open_index(folder / INDEX_NAME, info.index, num_samples=info.num_samples)
            longest, num_over = longest_sample(index, info, limit)
            model = phase.config.model
            model_folder = model.path or model.name or model.language.path
            remedy = f"set model.language.max_positions: {longest}"
            if model_folder is not None:
                remedy = (
                    f"raise max_position_embeddings in a copy of {model_folder}/config.json, if "
                    "the model is meant to learn positions beyond those"
                )
            problem = positions_problem(
                longest=longest,
                limit=limit,
                num_over=num_over,
                num_samples=info.num_samples,
                source=remedy,
            )
            if problem:
                message = f"{phase.key('dataset')} ({folder}): {problem}"
                raise StageConfigError(message)

    def _check_answers(self) -> None:
        """Warn if the evaluation may generate beyond the positions of the language model.

        A warning only, because held-out rows may be shorter than the limit of `preprocess`.
        """
        evaluate, limit = self.job.config.evaluate, self.shell.max_positions
        prompt = self.infos[0].preprocess.get("max_tokens")
        if evaluate.manifest is None or limit is None or prompt is None:
            return
        if self.infos[0].image_kind == "native":  # tokens of an image share positions
            return
        if prompt + evaluate.max_new_tokens > limit:
            self.warnings.append(
                f"held-out prompts may have {prompt:,} tokens (max_tokens of preprocess), with "
                f"answers of up to {evaluate.max_new_tokens:,} (evaluate.max_new_tokens), but the "
                f"language model has {limit:,} positions: answers beyond them are meaningless"
            )

    def _need_of(
        self, config: TrainConfig, info: DatasetInfo, learned: Collection[str]
    ) -> MemoryNeed:
        num_microbatches, num_samples = config.num_microbatches, 1.0
        if num_microbatches == "auto":
            # Not known yet; as a lower bound nothing accumulates, and each sample is alone.
            num_microbatches = 1
        else:
            num_samples = config.global_batch_size / self.job.ranks.num_ranks / num_microbatches
        # An average, however samples share rows.
        num_tokens = num_samples * info.num_tokens / max(1, info.num_samples)
        batching, masked_length = config.batching, 0
        if batching.kind == "packed" and batching.strategy != "none" and not self.shell.uses_varlen:
            masked_length = batching.max_tokens or info.preprocess.get("max_tokens") or 0
        elif self.shell.block_layers:
            masked_length = info.num_tokens // max(1, info.num_samples)
        return memory_need(
            self.sizes,
            learned,
            self.sharing,
            compute_itemsize=self.job.rank_device.dtype.itemsize,
            optimizer_kind=config.optimizer.kind,
            num_microbatches=num_microbatches,
            num_tokens=int(num_tokens),
            masked_length=masked_length,
            num_masks_of_row=len(windows_of(self.shell.text_config)),
            residual_itemsize=4 if self.job.rank_device.precision == "fp16" else None,
            evaluates_held_out=config.evaluate.every_steps is not None,
        )

    def _check_memory(self) -> None:
        """Compare the needs of the largest phase, then of export and evaluation."""
        job = self.job
        needs = [
            (self._need_of(phase.config, info, learned), phase)
            for phase, info, learned in zip(self.phases, self.infos, self.learned, strict=True)
        ]
        need, phase = max(needs, key=lambda pair: pair[0].least_bytes)
        config = phase.config
        remedy = remedies(
            job.config, need, num_ranks=job.ranks.num_ranks, optimizer_kind=config.optimizer.kind
        )
        can_search = config.reader == "index" and config.num_microbatches != "auto"
        fewer_rows = "set `num_microbatches: auto`, or " if can_search else ""
        self.warnings.append(node_warning(job, need, self.sizes, remedy))
        if self.device.total_bytes is not None:
            self.warnings.append(judge_card(need, self.device, remedy, fewer_rows=fewer_rows))
        evaluates = job.config.evaluate.manifest is not None
        itemsize = evaluation_dtype(job.rank_device, job.config.strategy).itemsize
        ending = ending_need(self.sizes, evaluation_itemsize=itemsize if evaluates else None)
        self.warnings += judge_ending(
            ending,
            card=self.device,
            host=read_host_memory(os.environ),
            exports=job.ranks.rank == 0,
            num_local_ranks=job.context.num_local_ranks,
            node_name=job.context.node_name,
        )
        self.values["phase"] = phase.name
        self.values["memory"] = {
            **asdict(need),
            "least_bytes": need.least_bytes,
            "expected_bytes": need.expected_bytes,
            **asdict(ending),
        }

    def _check_attention(self) -> None:
        """Find the kernels by tower, for the rows of every phase; CPUs have enough memory."""
        rank_device = self.job.rank_device
        kernels = [
            find_kernels(
                use,
                rank_device.device,
                attention_name=self.shell.attention_name,
                uses_varlen=self.choice.uses_varlen,
            )
            for use in uses_of(self.shell, self.batching_kinds, rank_device.dtype)
        ]
        self.notes = [attention_note(each) for each in kernels]
        if any(each.use.has_mask or each.use.sizes_differ for each in kernels):
            self.notes.append(f"{self.choice.packed}: {self.choice.reason}")
        may_pack = not self.batching_kinds.isdisjoint({"packed", "auto"})
        if may_pack and has_delta_nets(self.shell.text_config):
            self.notes.append(describe_states())
        self.repeats_keys = any(each.repeats_keys for each in kernels)
        if self.device.type != "cpu":
            lengths = [
                phase.config.batching.max_tokens or info.preprocess.get("max_tokens")
                for phase, info in zip(self.phases, self.infos, strict=True)
            ]
            longest, where = max(filter(None, lengths), default=None), str(self.device)
            self.warnings += (
                attention_warning(each, where=where, max_tokens=longest) for each in kernels
            )
        self.values["attention"] = {
            f"{each.use.tower}{', packed' if each.use.has_mask else ''}": each.kernel
            for each in kernels
        }
        self.values["packed_attention"] = asdict(self.choice)
        self.values["cudnn_attention"] = torch.backends.cuda.cudnn_sdp_enabled()

    def _check_disk(self) -> None:
        """Compare checkpoints and export with the free disk."""
        names: frozenset[str] = frozenset().union(*self.learned)
        phase, folder = self.phases[-1], self.job.context.output_dir
        num_bytes = checkpoint_bytes(self.sizes, names, phase.config.optimizer.kind)
        free_bytes = shutil.disk_usage(folder).free
        self.warnings.append(
            disk_warning(
                checkpoint_bytes=num_bytes,
                keep_last=self.job.config.checkpoint.keep_last,
                num_present=len(list_checkpoints(phase.folder(folder) / "checkpoints")),
                export_bytes=4 * self.sizes.num_weights,
                free_bytes=free_bytes,
                folder=folder,
            )
        )
        self.values |= {"checkpoint_bytes": num_bytes, "disk_free_bytes": free_bytes}


def node_warning(job: Job, need: MemoryNeed, sizes: ModelSizes, remedy: str) -> str | None:
    """Judge the memory of the rank's node: for CPU computing, offloading, or reading weights.

    Raises:
        StageConfigError: the training does not fit.
    """
    context, on_cpu = job.context, job.rank_device.device.type == "cpu"
    least_bytes = need.offloaded_bytes + (need.least_bytes if on_cpu else 0)
    expected_bytes = need.offloaded_bytes + (need.expected_bytes if on_cpu else 0)
    if job.config.checkpoint.mode == "async":  # from the first save on
        expected_bytes += need.saved_bytes
        remedy += "; or save at once (`checkpoint: {mode: sync}`)"
    # before they are sharded, or moved to the card
    num_readers = context.num_local_ranks
    if job.config.strategy == "fsdp2":
        num_readers = 1 if context.node_rank == 0 else 0
    return judge_node(
        least_bytes=context.num_local_ranks * least_bytes,
        expected_bytes=max(
            context.num_local_ranks * expected_bytes, num_readers * sizes.stored_bytes
        ),
        host=read_host_memory(os.environ),
        node_name=context.node_name,
        remedy=remedy,
    )
