"""Remedies when a GPU's memory runs out, and the error that names them.

For memory that is estimated before the first step, `memory_fit` has separate
remedies, because it knows which part of the state is too large.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pipeline.timing.recorder import StepRecorder
from pipeline.train.ranks.process_group import Ranks
from slurm_jobs.base.errors import DeviceMemoryError
from slurm_jobs.formats.configs.train import TrainConfig


def less_memory(config: TrainConfig) -> str:
    """Return settings that reduce memory and that this config does not use yet."""
    ways = ["lower batching.max_tokens"] if config.batching.kind == "packed" else []
    ways.append("preprocess with a lower max_tokens or max_images")
    if not config.activation_checkpointing:
        ways.append("set `activation_checkpointing: true`")
    return "; ".join([*ways, smaller_state(config)])


def smaller_state(config: TrainConfig) -> str:
    """Return the ways to smaller weights and optimizer state that this config does not use."""
    ways = []
    if config.strategy in {"ddp", "single"}:
        ways.append("set `strategy: fsdp2`")
    if config.adapters is None:
        ways.append("set adapters")
    elif config.quantize is None:
        ways.append("set quantize")
    if config.optimizer.kind == "adamw":
        ways.append("set `optimizer.kind: adamw_8bit`")
    if config.strategy == "fsdp2" and config.device == "cuda" and not config.sharding.cpu_offload:
        ways.append("set `sharding.cpu_offload: true`")
    ways.append("use more ranks, or devices with more memory")
    return "; ".join(ways)


@contextmanager
def explain_out_of_memory_in_steps(
    config: TrainConfig, ranks: Ranks, recorder: StepRecorder
) -> Iterator[None]:
    """Wrap the steps; `config` is the user's, before `auto` values were resolved.

    Raises:
        DeviceMemoryError: this rank's GPU ran out of memory; a retry would fail the same way.
    """
    if config.num_microbatches == "auto":
        pieces = f"lower memory_share ({config.memory_share:g})"
    else:
        auto = "`num_microbatches: auto`, or " if config.reader == "index" else ""
        pieces = f"set {auto}num_microbatches to more than {config.num_microbatches}"
    try:
        yield
    except torch.OutOfMemoryError:
        remedy = f"{pieces}; {less_memory(config)}"
        with explain_out_of_memory(ranks, f"in step {recorder.step}", remedy):
            raise


@contextmanager
def explain_out_of_memory(ranks: Ranks, where: str, remedy: str) -> Iterator[None]:
    """Turn running out of GPU memory into an error that names the remedy.

    Raises:
        DeviceMemoryError: this rank's GPU ran out of memory; a retry would fail the same way.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        message = f"rank {ranks.rank} ran out of memory {where} ({error}); {remedy}"
        raise DeviceMemoryError(message) from error
