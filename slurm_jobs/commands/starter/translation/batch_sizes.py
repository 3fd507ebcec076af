"""Batches, GPUs and length of another tool's training."""

from __future__ import annotations

import math

from slurm_jobs.base.units import number_of
from slurm_jobs.commands.starter.other_tools.tool_table import Meaning
from slurm_jobs.commands.starter.translation.translation import Translation
from slurm_jobs.formats.configs.training_parts import DEFAULT_NUM_LANES

_TRAIN_RESOURCES = ("stages", "train", "resources")
_OF_BATCH: tuple[Meaning, ...] = ("device_batch", "accumulation", "nodes", "ranks", "processes")


def translate_batches(translation: Translation) -> None:
    """Translate the samples of a step, how they fill rows, and the number of steps."""
    training = translation.training
    translation.is_packed = training.flag("packing")
    per_gpu = max(1, training.count("device_batch") or 1)
    num_gpus, of_whom = _num_gpus(translation)
    accumulation = training.count("accumulation")
    default_batch = training.tool.default_batch
    if accumulation is None and default_batch is not None:
        accumulation = math.ceil(default_batch / (per_gpu * num_gpus))
    accumulation = max(1, accumulation or 1)
    batch = training.count("global_batch") or per_gpu * accumulation * num_gpus
    num_ranks = translation.num_ranks = _num_ranks(translation, batch)
    _write_batch(translation, batch, num_ranks)
    gpus = number_of("GPU", num_gpus)
    product = f"{per_gpu} per GPU x {accumulation} accumulated x {gpus} ({of_whom})"
    text = f"`global_batch_size: {batch}` = {product}"
    translation.account_all(_OF_BATCH, "translated", text)
    translation.account("visible_gpus", "translated", "Slurm sets which GPUs a job has")
    translation.account("global_batch", "kept", f"`global_batch_size: {batch}`")
    num_microbatches = batch // num_ranks // per_gpu
    if num_microbatches > 1 and batch % (num_ranks * per_gpu) == 0:
        pieces = translation.change("num_microbatches", num_microbatches)
        translation.account("accumulation", "translated", f"{text}; {pieces} per rank")
    _translate_rows(translation)
    _translate_length(translation, batch)
    translation.keep("seed", "seed", training.count("seed"))


def _num_gpus(translation: Translation) -> tuple[int, str]:
    """Return the GPUs of the training, and how they are known."""
    training = translation.training
    if num_processes := training.count("processes"):
        return max(1, num_processes), "the processes in the file"
    nodes = max(1, training.count("nodes") or 1)
    if num_ranks := training.count("ranks"):
        return nodes * max(1, num_ranks), "as in the file"
    visible = training.words("visible_gpus")
    if visible:
        return nodes * len(visible), "as in the file"
    num_ranks = translation.facts.num_ranks
    return num_ranks, "those of a node here, because the file does not say how many"


def _num_ranks(translation: Translation, batch: int) -> int:
    """Return the ranks of this training: most of a node that divide the batch."""
    most = translation.facts.num_ranks
    num_ranks = next(number for number in range(most, 0, -1) if batch % number == 0)
    if num_ranks < most:
        for key in ("tasks_per_node", "gpus_per_node"):
            translation.changes.append(((*_TRAIN_RESOURCES, key), num_ranks))
        if num_ranks == 1:
            translation.change("strategy", "single")
    return num_ranks


def _write_batch(translation: Translation, batch: int, num_ranks: int) -> None:
    translation.change("global_batch_size", batch)
    if translation.is_packed:
        # A step has at least one row per lane, and no more, because a row has several samples.
        lanes = batch
    elif batch % DEFAULT_NUM_LANES == 0 and DEFAULT_NUM_LANES % num_ranks == 0:
        lanes = DEFAULT_NUM_LANES
    else:
        lanes = num_ranks
    translation.change("num_lanes", lanes)


def _translate_rows(translation: Translation) -> None:
    training = translation.training
    if not translation.is_packed:
        text = translation.change("batching", {"kind": "grouped"})
        about = "one sample per row; `{kind: packed}` fills rows, which is faster"
        translation.account("packing", "translated", f"{text}: {about}")
        translation.without(["packed_tokens"], "rows are not packed")
        return
    length = training.count("packed_tokens") or translation.limits.max_tokens
    text = translation.change("batching", {"kind": "packed", "max_tokens": length})
    translation.account("packing", "kept", f"{text}; samples of a row never see each other")
    translation.account("packed_tokens", "kept", f"`batching.max_tokens: {length}`")


def _translate_length(translation: Translation, batch: int) -> None:
    training = translation.training
    steps, epochs = training.count("steps"), training.number("epochs")
    if steps is not None and steps > 0:
        translation.dropped.append("num_epochs")
        translation.keep("steps", "num_steps", steps)
        translation.without(["epochs"], f"{steps} steps decide")
        translation.num_steps = steps
        return
    translation.without(["steps"], "the epochs decide")
    if epochs is None or epochs <= 0:
        return
    epochs = int(epochs) if epochs == int(epochs) else epochs
    translation.keep("epochs", "num_epochs", epochs)
    num_rows = translation.facts.data.num_rows
    if num_rows is not None and not translation.is_packed:
        num_trained = num_rows * (1 - translation.held_out_share)
        translation.num_steps = int(epochs * num_trained // batch)
