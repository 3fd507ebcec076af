"""From a staged data set to trained weights: build, restore, loop."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.data.augment import make_augmentation
from pipeline.data.batch import ModelNeeds
from pipeline.data.dataset import ShardedDataset
from pipeline.data.info import PACKS_DIR
from pipeline.data.prefetch import Prefetcher
from pipeline.data.reader import BatchReader
from pipeline.data.reading_plan import ReadingPlan
from pipeline.data.stream import ShardStream, StreamReader, expand_urls, own_shards
from pipeline.models import DataFacts
from pipeline.timing import SpanLog, StepRecorder
from pipeline.timing.profiling import make_profiling
from pipeline.training.batching import plan_reading, read_work_model, steps_to_make
from pipeline.training.boundary import Boundary
from pipeline.training.checkpoint import (
    Checkpoints,
    Identity,
    Restored,
    TrainingState,
    Work,
    make_saver,
    restore,
)
from pipeline.training.choose_batching import Trial, choose_batching
from pipeline.training.device import Workplace, read_device_memory
from pipeline.training.fingerprint import lasting_config
from pipeline.training.loop import LoopEnd, LoopSetup, run_steps
from pipeline.training.ranks import Ranks
from pipeline.training.report import TrainingReporter
from pipeline.training.spreading import SpreadModel, build_and_spread
from slurm_jobs.common.context import TaskContext
from slurm_jobs.common.errors import StageStoppedError
from slurm_jobs.common.progress import Progress
from slurm_jobs.common.stage_config.train import TrainConfig

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

    made: SpreadModel
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
        made = build_and_spread(job.config, job.context, job.workplace, job.ranks, facts)
    job, plan, num_steps = _plan(job, dataset, made, packs_dir)
    checkpoints = _find_checkpoints(job, made, dataset, num_steps)
    resumed = _restore(job, checkpoints)
    _announce(job, made.num_parameters, resumed.step, num_steps)
    reporter = _make_reporter(job, num_steps)
    with (
        _make_reader(job, dataset, plan, made.needs, resumed.step) as batches,
        _make_recorder(job, made, checkpoints.identity, num_steps) as recorder,
        make_profiling(job.config.profile, job.context, job.spans) as profiling,
        make_saver(job.config, checkpoints, job.context, job.spans, resumed.step) as saver,
    ):
        setup = LoopSetup(
            config=job.config,
            workplace=job.workplace,
            ranks=job.ranks,
            num_steps=num_steps,
            strategy=made.strategy,
            spread=made.spread,
            scaling=made.scaling,
            batches=batches,
            recorder=recorder,
            boundary=_make_boundary(job, made, num_steps, saver.has_ended_here),
            saver=saver,
            report=reporter,
        )
        end = run_steps(setup, resumed.step, profiling.watch)
    _check_stopped(end)
    made.strategy.close(made.spread)
    rate = _token_rate(job.ranks, reporter)
    return Trained(made=made, resumed=resumed, end=end, tokens_per_s=rate)


def _make_boundary(
    job: Job, made: SpreadModel, num_steps: int, has_upload_ended: Callable[[], bool]
) -> Boundary:
    return Boundary(
        job.ranks,
        job.config.checkpoint,
        num_steps,
        has_upload_ended,
        may_overflow=made.scaling.is_on,
    )


def _check_stopped(end: LoopEnd) -> None:
    if end.stopped:
        message = f"asked to stop: the state after step {end.num_steps_done} is saved"
        raise StageStoppedError(message)


def versions() -> dict[str, str]:
    """Of the libraries that numbers depend on."""
    return {name: importlib.metadata.version(name) for name in ("torch", "transformers")}


def _plan(
    job: Job, dataset: ShardedDataset, made: SpreadModel, packs_dir: Path
) -> tuple[Job, ReadingPlan, int]:
    """The job with its batching decided, what is read, and how many steps are made of it."""
    packs_dirs = (packs_dir, job.context.output_dir / PACKS_DIR)
    with job.spans.span("batch_plan") as notes:
        trial = Trial(
            config=job.config,
            dataset=dataset,
            strategy=made.strategy,
            spread=made.spread,
            workplace=job.workplace,
            ranks=job.ranks,
            packs_dirs=packs_dirs,
        )
        config = choose_batching(trial, job.context.output_dir)
        plan = plan_reading(
            config,
            dataset,
            model=read_work_model(made.spread.bare, dataset),
            ranks=job.ranks,
            packs_dirs=packs_dirs,
        )
        notes |= {"kind": config.batching.kind, "num_packs": plan.num_packs}
    return dataclasses.replace(job, config=config), plan, steps_to_make(config, plan)


def _find_checkpoints(
    job: Job, made: SpreadModel, dataset: ShardedDataset, num_steps: int
) -> Checkpoints:
    return Checkpoints(
        root=job.context.output_dir / "checkpoints",
        attempt=job.context.attempt,
        ranks=job.ranks,
        state=TrainingState(
            model=made.spread.bare,
            optimizer=made.spread.optimizer,
            extra={"scaler": made.scaling} if made.scaling.is_on else {},
        ),
        identity=Identity(
            lasting_config=lasting_config(job.config, num_steps),
            dataset_fingerprint=dataset.info.fingerprint,
            work=Work(fingerprint=job.context.fingerprint, num_again=job.context.num_again),
            versions=versions(),
            base=made.base,
        ),
    )


def _restore(job: Job, checkpoints: Checkpoints) -> Restored:
    with job.spans.span("checkpoint_load") as notes:
        resumed = restore(checkpoints)
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


def _make_recorder(job: Job, made: SpreadModel, identity: Identity, num_steps: int) -> StepRecorder:
    context = job.context
    return StepRecorder(
        context.timing_dir,
        job.ranks.rank,
        {
            "training": identity.training,
            "num_ranks": job.ranks.num_ranks,
            "local_rank": context.local_rank,
            "node_name": context.node_name,
            "device": job.workplace.device.type,
            "strategy": job.config.strategy,
            "precision": job.workplace.precision,
            "attention": made.spread.bare.attention_name,
            "num_steps": num_steps,
            "global_batch_size": job.config.global_batch_size,
        },
        read_memory=lambda: read_device_memory(job.workplace.device),
    )
