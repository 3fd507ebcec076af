"""Speed of a model on each arrangement: forward and backward of one rank's share.

On real data, read as in training. Arrangements alternate, so that a slowdown of the machine
affects all of them. Reading, other ranks and the optimizer are not included.
"""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import xxhash

from pipeline.data.dataset import ShardedDataset
from pipeline.data.loader import BatchReader
from pipeline.data.order import rank_microbatches
from pipeline.data.reading_plan import ReadingPlan
from pipeline.models.build import make_unloaded
from pipeline.models.computation.recompute import recompute_layers
from pipeline.models.data_facts import DataFacts, load_tokenizer, read_facts
from pipeline.models.data_fit import check_images
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.accelerate_settings import asked_precision
from pipeline.train.device.precision import choose_precision
from pipeline.train.device.rank_device import RankDevice, threads_per_rank
from pipeline.train.strategies.single import Single
from pipeline.train.trained_model.bare_model import attention_of
from pipeline.train.trials.trial_passes import time_step
from slurm_jobs.base.machine import available_memory_bytes
from slurm_jobs.formats.configs.train import TrainConfig
from slurm_jobs.formats.configs.training_parts import ShardingConfig
from slurm_jobs.formats.dataset_folder import PROCESSOR_DIR

NUM_ROUNDS = 8
"""Timed steps of each arrangement, after one warm-up step."""

_BYTES_PER_PARAMETER = 8
"""fp32, and its gradient."""

Report = Callable[[int, int, str], None]
"""Takes done, total and their unit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One timed step."""

    work: float
    """Work computed, padding included, in tokens' worth."""
    spent_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ArrangementSpeed:
    """Speed of one arrangement on one rank."""

    work_per_s: float
    """In tokens' worth, as `Step.work`, so that a step with few images or little padding does
    not seem fast. From the fastest step, which was least disturbed."""
    median_work_per_s: float
    """Median of the timed steps; the difference shows how much they were disturbed."""
    num_steps: int
    """Number of timed steps."""
    is_cold: bool
    """True if time was up after the first step, which then counts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Bench:
    """Model for timed steps, and its device."""

    config: TrainConfig
    dataset: ShardedDataset
    facts: DataFacts
    rank_device: RankDevice
    skeleton: VisionLanguageModel
    """Sizes of the model, without memory for its weights."""


def make_bench(config: TrainConfig, dataset: ShardedDataset, dataset_dir: Path) -> Bench:
    """Return the sizes of the config's model on this data set, and the best local device.

    Raises:
        StageConfigError: the config's model does not fit this data set.
    """
    check_images(config.model, dataset.info)
    facts = read_facts(dataset.info, load_tokenizer(dataset_dir / PROCESSOR_DIR))
    # One process without sharding, which must cast.
    return Bench(
        config=replace(config, strategy="single", sharding=ShardingConfig(), accelerate=None),
        dataset=dataset,
        facts=facts,
        rank_device=find_rank_device(config),
        skeleton=make_unloaded(config.model, facts, torch.device("meta")),
    )


def lacking_memory(bench: Bench) -> str | None:
    """Return why the model is too large to run here; None if it is not."""
    num_parameters = sum(parameter.numel() for parameter in bench.skeleton.parameters())
    needed = _BYTES_PER_PARAMETER * num_parameters
    if bench.rank_device.device.type == "cuda":
        free = torch.cuda.mem_get_info(bench.rank_device.device)[0]
    else:
        free = available_memory_bytes()
    if needed <= free:
        return None
    return (
        f"the {num_parameters / 1e9:.1f} billion parameters of the model and their gradients "
        f"need {math.ceil(needed / 1e9)} GB, but {math.floor(free / 1e9)} GB are free here"
    )


def find_rank_device(config: TrainConfig) -> RankDevice:
    """Return the config's device and precision, or the CPU if no GPU is visible."""
    num_threads = config.num_compute_threads or threads_per_rank(
        os.environ.get("SLURM_CPUS_PER_TASK"),
        num_cpus=len(os.sched_getaffinity(0)),
        num_local_ranks=1,
    )
    torch.set_num_threads(num_threads)
    if config.device == "cuda" and torch.cuda.is_available():
        device = torch.device("cuda", torch.cuda.current_device())
        capability = torch.cuda.get_device_capability(device)
    else:
        device, capability = torch.device("cpu"), None
    return RankDevice(
        device=device,
        precision=choose_precision(asked_precision(config), capability),
        num_compute_threads=num_threads,
    )


def device_text(rank_device: RankDevice) -> str:
    """Return `NVIDIA A100, bf16` or `CPU, 2 threads, fp32`."""
    if rank_device.device.type == "cuda":
        return f"{torch.cuda.get_device_name(rank_device.device)}, {rank_device.precision}"
    number = rank_device.num_compute_threads
    return f"CPU, {number} thread{'s' if number > 1 else ''}, {rank_device.precision}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Timings:
    """Results of `measure_plans`; a plan that was not run in time is in none of them."""

    measured: Mapping[str, ArrangementSpeed]
    """Results by name of the plan."""
    same_as: Mapping[str, str]
    """For plans whose timed batches equal another plan's: the name of that plan, whose result
    they share."""
    too_large: frozenset[str]
    """Plans of which a step does not fit into the GPU's memory."""


def measure_plans(
    bench: Bench,
    plans: Mapping[str, ReadingPlan],
    *,
    work_of: Callable[[ReadingPlan, int], float],
    limit_s: float,
    report: Report,
) -> Timings:
    """Measure each plan; `work_of` returns rank 0's work in a step of a plan.

    Raises:
        StageError: a sample cannot be read.
    """
    same_as = share(plans)
    model = make_unloaded(bench.config.model, bench.facts, bench.rank_device.device)
    if bench.rank_device.device.type == "cuda":  # otherwise a reference would be timed
        choice = attention_of(model, bench.config, bench.rank_device, {"packed"})
        model.uses_varlen = choice.uses_varlen
    if bench.config.activation_checkpointing:
        recompute_layers(model)
    gpu = bench.rank_device.device if bench.rank_device.device.type == "cuda" else None
    with ExitStack() as stack:
        readers: dict[str, BatchReader] = {}
        for name, plan in plans.items():
            if name not in same_as:
                reader = BatchReader(
                    bench.dataset, plan, rank=0, needs=model.layout.needs, gpu=gpu, prefetch=1
                )
                readers[name] = stack.enter_context(reader)
        num_taken = dict.fromkeys(readers, 0)

        def take_step(name: str) -> Step | None:
            batches = next(readers[name])
            work = work_of(plans[name], num_taken[name])
            num_taken[name] += 1
            try:
                spent_s = time_step(
                    batches,
                    model=model,
                    layout=model.layout,
                    strategy=Single(bench.rank_device),
                    rank_device=bench.rank_device,
                )
            except torch.OutOfMemoryError:
                model.zero_grad()
                return None
            return Step(work=work, spent_s=spent_s)

        steps = take_turns(readers, take_step, limit_s=limit_s, report=report)
    measured: dict[str, ArrangementSpeed] = {}
    too_large: set[str] = set()
    for name in plans:
        taken = steps[same_as.get(name, name)]
        if taken is None:
            too_large.add(name)
        elif taken:
            measured[name] = summarise(taken)
    return Timings(measured=measured, same_as=same_as, too_large=frozenset(too_large))


def take_turns(
    names: Iterable[str],
    take_step: Callable[[str], Step | None],
    *,
    limit_s: float,
    report: Report,
    clock: Callable[[], float] = time.monotonic,
) -> dict[str, list[Step] | None]:
    """Run one step of each name, round by round; none begins after `limit_s`.

    The first one always runs. If the step of a name is None, it has failed: its list is None,
    and it has no further turns.
    """
    steps: dict[str, list[Step] | None] = {name: [] for name in names}
    turns = [name for _ in range(1 + NUM_ROUNDS) for name in steps]
    end_s = clock() + limit_s
    for number, name in enumerate(turns):
        if number and clock() >= end_s:
            break
        taken = steps[name]
        if taken is not None:
            step = take_step(name)
            steps[name] = None if step is None else [*taken, step]
        report(number + 1, len(turns), "steps timed")
    return steps


def summarise(steps: Sequence[Step]) -> ArrangementSpeed:
    """Summarise all steps but the first, which has cold caches and allocators."""
    paces = [step.work / step.spent_s for step in steps[1:] or steps]
    return ArrangementSpeed(
        work_per_s=max(paces),
        median_work_per_s=statistics.median(paces),
        num_steps=len(paces),
        is_cold=len(steps) == 1,
    )


def share(plans: Mapping[str, ReadingPlan]) -> dict[str, str]:
    """Return, for plans whose timed batches equal an earlier plan's, the name of that plan."""
    first_with: dict[str, str] = {}
    """Name of the first plan by the digest of its batches."""
    same: dict[str, str] = {}
    for name, plan in plans.items():
        packs = []
        for step in range(1 + NUM_ROUNDS):
            for microbatch in rank_microbatches(step, plan.layout, 0, plan.num_packs, plan.order):
                samples = [list(map(int, plan.samples_of(int(pack)))) for pack in microbatch.packs]
                packs.append(samples)
        digest = xxhash.xxh3_128_hexdigest(repr((plan.row_length, packs)).encode())
        other = first_with.setdefault(digest, name)
        if other != name:
            same[name] = other
    return same
