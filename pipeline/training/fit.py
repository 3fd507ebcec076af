"""From a staged data set to trained weights: build, restore, loop."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pipeline.data.augment import make_augmentation
from pipeline.data.batch import ModelNeeds
from pipeline.data.dataset import ShardedDataset
from pipeline.data.info import PACKS_DIR
from pipeline.data.prefetch import Prefetcher
from pipeline.data.reader import BatchReader
from pipeline.data.reading_plan import ReadingPlan
from pipeline.data.stream import ShardStream, StreamReader, expand_urls, own_shards
from pipeline.models import DataFacts, VisionLanguageModel, build_model
from pipeline.timing import SpanLog, StepRecorder
from pipeline.timing.profiling import make_profiling
from pipeline.training.batching import plan_reading, read_work_model, steps_to_make
from pipeline.training.boundary import Boundary
from pipeline.training.checkpoint import Checkpointer, Restored
from pipeline.training.checkpoint_files import Work
from pipeline.training.choose_batching import Trial, choose_batching
from pipeline.training.device import Workplace, read_device_memory
from pipeline.training.fingerprint import lasting_config
from pipeline.training.loop import LoopEnd, LoopSetup, run_steps
from pipeline.training.optimizer import make_optimizer
from pipeline.training.ranks import Ranks
from pipeline.training.report import TrainingReporter
from pipeline.training.stop_time import StopTime
from pipeline.training.strategy import apply_strategy, count_parameters
from slurm_jobs.common.context import TaskContext
from slurm_jobs.common.errors import StageStoppedError
from slurm_jobs.common.progress import Progress
from slurm_jobs.common.stage_config.train import TrainConfig
from slurm_jobs.common.stop import note_stop_time

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """What every part of the stage needs."""

    config: TrainConfig
    context: TaskContext
    spans: SpanLog
    workplace: Workplace
    ranks: Ranks
    began_unix_s: float
    """When this attempt began."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """What training left behind on a rank."""

    model: VisionLanguageModel
    num_parameters: int
    resumed: Restored
    end: LoopEnd
    tokens_per_s: float | None
    """Over all ranks, padding not counted; None if no step was made."""

    @property
    def made_steps(self) -> bool:
        """Whether this attempt made any; not if it began where the training ends."""
        return self.resumed.step < self.end.num_steps_done


def fit(job: Job, dataset: ShardedDataset, facts: DataFacts, packs_dir: Path) -> Trained:
    """Train from the newest checkpoint, or from the start, to the last step; raises as `run`.

    `packs_dir` keeps packs for other attempts and trainings, if it may be written.
    """
    with job.spans.span("model_build"):
        model, num_parameters = _build(job, facts)
        optimizer = make_optimizer(model, job.config.optimizer)
    job, plan, num_steps = _plan(job, dataset, model, packs_dir)
    checkpointer = _make_checkpointer(job, model, optimizer, dataset, num_steps)
    resumed = _restore(job, checkpointer)
    _announce(job, num_parameters, resumed.step, num_steps)
    reporter = _make_reporter(job, num_steps)
    with (
        _make_reader(job, dataset, plan, model.layout.needs, resumed.step) as batches,
        _make_recorder(job, model, checkpointer, num_steps) as recorder,
        make_profiling(job.config.profile, job.context, job.spans) as profiling,
    ):
        setup = LoopSetup(
            config=job.config,
            workplace=job.workplace,
            ranks=job.ranks,
            num_steps=num_steps,
            model=model,
            optimizer=optimizer,
            batches=batches,
            recorder=recorder,
            boundary=Boundary(job.ranks, job.config.checkpoint, num_steps),
            save=_timed_save(job, checkpointer, resumed.step),
            report=reporter,
        )
        end = run_steps(setup, resumed.step, profiling.watch)
    _check_stopped(end)
    return Trained(
        model=model,
        num_parameters=num_parameters,
        resumed=resumed,
        end=end,
        tokens_per_s=_token_rate(job.ranks, reporter),
    )


def _check_stopped(end: LoopEnd) -> None:
    if end.stopped:
        message = f"asked to stop: the state after step {end.num_steps_done} is saved"
        raise StageStoppedError(message)


def versions() -> dict[str, str]:
    """Of the libraries that numbers depend on."""
    return {name: importlib.metadata.version(name) for name in ("torch", "transformers")}


def _build(job: Job, facts: DataFacts) -> tuple[VisionLanguageModel, int]:
    """The model as the strategy spreads it, and how many parameters it has as a whole."""
    model = build_model(job.config.model, facts, seed=job.config.seed)
    num_parameters = count_parameters([model])
    spread = apply_strategy(model, job.config, job.workplace, num_ranks=job.ranks.num_ranks)
    return spread, num_parameters


def _plan(
    job: Job, dataset: ShardedDataset, model: VisionLanguageModel, packs_dir: Path
) -> tuple[Job, ReadingPlan, int]:
    """The job with its batching decided, what is read, and how many steps are made of it."""
    packs_dirs = (packs_dir, job.context.output_dir / PACKS_DIR)
    with job.spans.span("batch_plan") as notes:
        trial = Trial(
            config=job.config,
            dataset=dataset,
            model=model,
            workplace=job.workplace,
            ranks=job.ranks,
            packs_dirs=packs_dirs,
        )
        config = choose_batching(trial, job.context.output_dir)
        plan = plan_reading(
            config,
            dataset,
            model=read_work_model(model, dataset),
            ranks=job.ranks,
            packs_dirs=packs_dirs,
        )
        notes |= {"kind": config.batching.kind, "num_packs": plan.num_packs}
    return dataclasses.replace(job, config=config), plan, steps_to_make(config, plan)


def _make_checkpointer(
    job: Job,
    model: VisionLanguageModel,
    optimizer: torch.optim.Optimizer,
    dataset: ShardedDataset,
    num_steps: int,
) -> Checkpointer:
    return Checkpointer(
        root=job.context.output_dir / "checkpoints",
        attempt=job.context.attempt,
        keep_last=job.config.checkpoint.keep_last,
        ranks=job.ranks,
        model=model,
        optimizer=optimizer,
        lasting_config=lasting_config(job.config, num_steps),
        dataset_fingerprint=dataset.info.fingerprint,
        work=Work(fingerprint=job.context.fingerprint, num_again=job.context.num_again),
        versions=versions(),
    )


def _restore(job: Job, checkpointer: Checkpointer) -> Restored:
    with job.spans.span("checkpoint_load") as notes:
        resumed = checkpointer.restore()
        notes["step"] = resumed.step
    return resumed


def _make_reader(
    job: Job, dataset: ShardedDataset, plan: ReadingPlan, needs: ModelNeeds, start_step: int
) -> Prefetcher:
    config = job.config
    options: dict[str, Any] = {
        "needs": needs,
        "augment": make_augmentation(config.augment, config.seed),
        "gpu": job.workplace.device if job.workplace.device.type == "cuda" else None,
        "num_threads": config.num_loader_threads,
        "prefetch": config.num_prefetch_batches,
    }
    if config.reader == "index":
        return BatchReader(dataset, plan, rank=job.ranks.rank, start_step=start_step, **options)
    shards, locate = own_shards(dataset)
    if config.stream.urls:
        shards, locate = expand_urls(config.stream.urls), str
    stream = ShardStream(
        urls=shards,
        locate=locate,
        seed=config.seed,
        rank=job.ranks.rank,
        num_ranks=job.ranks.num_ranks,
        shuffle_buffer=config.stream.shuffle_buffer,
        start_step=start_step,
    )
    return StreamReader(dataset.info, stream, plan.layout, **options)


def _timed_save(
    job: Job, checkpointer: Checkpointer, start_step: int
) -> Callable[[int, float], None]:
    """Save, and note how long it would take to stop."""
    stop_time = StopTime(start_step, time.monotonic())

    def save(step: int, loss: float) -> None:
        begun_s = time.monotonic()
        with job.spans.span("checkpoint", step=step):
            checkpointer.save(step, loss)
        stop_s = stop_time.after_save(step, begun_s, time.monotonic())
        if job.ranks.rank == 0:
            note_stop_time(job.context.task_dir, stop_s)

    return save


def _token_rate(ranks: Ranks, reporter: TrainingReporter) -> float | None:
    (num_tokens,) = ranks.sums([reporter.num_tokens])
    return num_tokens / reporter.elapsed_s if num_tokens else None


def _announce(job: Job, num_parameters: int, start_step: int, num_steps: int) -> None:
    if job.ranks.rank != 0:
        return
    log.info(
        "%d parameters, %s over %d ranks, %s, %d threads each; steps %d to %d",
        num_parameters,
        job.config.strategy,
        job.ranks.num_ranks,
        job.workplace.precision,
        job.workplace.num_compute_threads,
        start_step,
        num_steps,
    )


def _make_reporter(job: Job, num_steps: int) -> TrainingReporter:
    is_main = job.ranks.rank == 0
    return TrainingReporter(
        Progress(job.context.task_dir, "steps", num_steps) if is_main else None,
        num_steps=num_steps,
        num_ranks=job.ranks.num_ranks,
        log_every_steps=job.config.log_every_steps,
    )


def _make_recorder(
    job: Job, model: VisionLanguageModel, checkpointer: Checkpointer, num_steps: int
) -> StepRecorder:
    context = job.context
    return StepRecorder(
        context.timing_dir,
        job.ranks.rank,
        {
            "training": checkpointer.training,
            "num_ranks": job.ranks.num_ranks,
            "local_rank": context.local_rank,
            "node_name": context.node_name,
            "device": job.workplace.device.type,
            "strategy": job.config.strategy,
            "precision": job.workplace.precision,
            "attention": model.attention_name,
            "num_steps": num_steps,
            "global_batch_size": job.config.global_batch_size,
        },
        read_memory=lambda: read_device_memory(job.workplace.device),
    )
