"""One phase of a training: its data, its starting point, its loop."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pipeline.data.augment import make_augmentation
from pipeline.data.batch import Batch
from pipeline.data.dataset import ShardedDataset
from pipeline.data.info import PACKS_DIR
from pipeline.data.prefetch import Prefetcher
from pipeline.data.reader import BatchReader
from pipeline.data.reading_plan import ReadingPlan
from pipeline.data.stream import ShardStream, StreamReader, expand_urls, own_shards
from pipeline.timing import StepRecorder
from pipeline.training.batches import make_counter
from pipeline.training.batching import plan_reading, read_work_model, steps_to_make
from pipeline.training.boundary import Boundary
from pipeline.training.checkpoint import (
    Checkpoints,
    Restored,
    TimedSaver,
    make_saver,
    restore,
)
from pipeline.training.choose_batching import choose_batching
from pipeline.training.device import seed_generators
from pipeline.training.fingerprint import fingerprint, lasting_config
from pipeline.training.held_out import HeldOut
from pipeline.training.job import Job
from pipeline.training.less_memory import telling_what_takes_less
from pipeline.training.loop import LoopEnd, LoopSetup, Report, Watch, run_steps
from pipeline.training.microbatches import settle_microbatches
from pipeline.training.phases import Phase
from pipeline.training.report import TrainingReporter
from pipeline.training.sources import Source
from pipeline.training.spreading import SpreadModel
from pipeline.training.trial import Trial
from slurm_jobs.common.heartbeat import steps_change
from slurm_jobs.common.stage_config.train import TrainConfig

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedPhase:
    """Phase with a known number of steps."""

    phase: Phase
    config: TrainConfig
    """Config of the phase, with kind of batching and number of microbatches resolved."""
    dataset: ShardedDataset
    plan: ReadingPlan
    num_steps: int
    first_step: int
    """Steps of the phases before."""

    @property
    def lasting(self) -> dict[str, Any]:
        """Part of its config that must not change between attempts."""
        return lasting_config(self.config, self.num_steps)


@dataclass(frozen=True, kw_only=True, slots=True)
class PhaseEnd:
    """Result of a phase in this attempt."""

    planned: PlannedPhase
    resumed: Restored
    loop: LoopEnd
    num_skips: int
    """Steps skipped under fp16."""

    @property
    def final_loss(self) -> float | None:
        """Loss of the phase's last step, of any attempt."""
        return self.resumed.loss if self.loop.final_loss is None else self.loop.final_loss


def plan_phase(
    job: Job, phase: Phase, source: Source, made: SpreadModel, first_step: int
) -> PlannedPhase:
    """Plan the phase's data and number of steps; a collective.

    Args:
        job: Job of this rank.
        phase: The phase.
        source: Its data set.
        made: Model that is sharded for this phase.
        first_step: Steps of the phases before.
    """
    dataset, folder = source.dataset, phase.folder(job.context.output_dir)
    if job.ranks.rank == 0:
        folder.mkdir(parents=True, exist_ok=True)
    with job.spans.span("batch_plan") as notes:
        trial = _make_trial(job, phase, source, made)
        trial = replace(trial, config=choose_batching(trial, folder))
        config = settle_microbatches(trial, folder)
        plan = plan_reading(
            config,
            dataset,
            model=read_work_model(made.spread.bare, dataset),
            ranks=job.ranks,
            packs_dirs=trial.packs_dirs,
        )
        notes |= {"kind": config.batching.kind, "num_packs": plan.num_packs}
    return PlannedPhase(
        phase=phase,
        config=config,
        dataset=dataset,
        plan=plan,
        num_steps=steps_to_make(config, plan),
        first_step=first_step,
    )


def _make_trial(job: Job, phase: Phase, source: Source, made: SpreadModel) -> Trial:
    return Trial(
        config=phase.config,
        dataset=source.dataset,
        strategy=made.strategy,
        spread=made.spread,
        needs=made.needs,
        workplace=job.workplace,
        ranks=job.ranks,
        num_local_ranks=job.context.num_local_ranks,
        spans=job.spans,
        packs_dirs=(source.packs_dir, job.context.output_dir / PACKS_DIR),
    )


def training_fingerprint(phases: Sequence[PlannedPhase]) -> str:
    """Return a fingerprint; attempts with equal ones can continue each other's checkpoints."""
    parts = [{"config": p.lasting, "data": p.dataset.info.fingerprint} for p in phases]
    return fingerprint(parts[0] if len(parts) == 1 else {"phases": parts})


def trainings_of(phases: Sequence[PlannedPhase]) -> list[str]:
    """Return for each phase the fingerprint of the training that ends with it.

    Its results stay valid if only later phases change.
    """
    return [training_fingerprint(phases[: number + 1]) for number in range(len(phases))]


@dataclass(frozen=True, kw_only=True, slots=True)
class Watchers:
    """Observers of the steps of all phases."""

    recorder: StepRecorder
    reporter: TrainingReporter
    begin: Callable[[int], None]
    """Called before a phase's first step with the steps done so far, of all phases; not for a
    completed phase."""
    watch: Watch
    make_held_out: Callable[[SpreadModel], HeldOut] | None
    """Makes the held-out evaluation for a model; None if there is none."""


def train_phase(
    job: Job, planned: PlannedPhase, made: SpreadModel, checkpoints: Checkpoints, told: Watchers
) -> PhaseEnd:
    """Train from the phase's newest checkpoint, or from its start, to its last step.

    Raises:
        StageConfigError, StageStoppedError, StageError: as in `pipeline.training.run`.
    """
    resumed = _restore(job, planned, checkpoints)
    if resumed.step < planned.num_steps:
        told.begin(planned.first_step + resumed.step)
    look = _begin_looks(planned, made, resumed, told)
    with (
        make_reader(job, planned, made, resumed.step) as batches,
        make_saver(planned.config, checkpoints, job.context, job.spans, resumed.step) as saver,
    ):
        setup = make_loop_setup(
            job,
            planned,
            made,
            batches=batches,
            peek=batches.peek,
            recorder=told.recorder,
            saver=saver,
            report=told.reporter,
            look=look,
        )
        _note_change(job, told.reporter.start_clock())
        steps_change()
        with telling_what_takes_less(planned.phase.config, job.ranks, told.recorder):
            loop = run_steps(setup, resumed.step, told.watch)
    return PhaseEnd(planned=planned, resumed=resumed, loop=loop, num_skips=made.scaling.num_skips)


def _note_change(job: Job, since_s: float | None) -> None:
    """Record the time between the steps of two phases, which no step contains."""
    if since_s is not None:
        job.spans.add("phase_change", start_unix_s=time.time() - since_s, duration_s=since_s)


def _restore(job: Job, planned: PlannedPhase, checkpoints: Checkpoints) -> Restored:
    seed_generators(planned.config.seed, job.ranks.rank)  # restored steps come after it
    with job.spans.span("checkpoint_load") as notes:
        resumed = restore(checkpoints)
        notes["step"] = resumed.step
    if resumed.step and resumed.is_loaded and job.ranks.rank == 0:
        where = f" of phase {planned.phase.name}" if planned.phase.name else ""
        log.info("continues after step %d of %d%s", resumed.step, planned.num_steps, where)
    return resumed


def _begin_looks(
    planned: PlannedPhase, made: SpreadModel, resumed: Restored, told: Watchers
) -> Callable[[int], object] | None:
    """Return the held-out evaluation; it runs at the starting step, if that was due."""
    if told.make_held_out is None or not resumed.is_loaded:  # no step is left for that
        return None
    held_out = told.make_held_out(made)
    step, ends_phase = planned.first_step + resumed.step, resumed.step == planned.num_steps
    if resumed.step and planned.config.evaluate.is_look_due(step, ends_phase=ends_phase):
        held_out.look_unless_found(step)  # a stop or a kill may have come between
    return held_out.look


def make_loop_setup(
    job: Job,
    planned: PlannedPhase,
    made: SpreadModel,
    *,
    batches: Iterator[list[Batch]],
    peek: Callable[[], Sequence[Batch] | None],
    recorder: StepRecorder,
    saver: TimedSaver,
    report: Report,
    look: Callable[[int], object] | None = None,
) -> LoopSetup:
    """Return the loop's inputs for the phase; the other arguments are as in `LoopSetup`."""
    boundary = Boundary(
        job.ranks,
        planned.config.checkpoint,
        planned.num_steps,
        saver.has_ended_here,
    )
    return LoopSetup(
        config=planned.config,
        workplace=job.workplace,
        ranks=job.ranks,
        num_steps=planned.num_steps,
        first_step=planned.first_step,
        strategy=made.strategy,
        spread=made.spread,
        scaling=made.scaling,
        batches=batches,
        peek=peek,
        count=make_counter(made.spread.bare, planned.dataset.info),
        recorder=recorder,
        boundary=boundary,
        saver=saver,
        look=look,
        report=report,
    )


def make_reader(job: Job, planned: PlannedPhase, made: SpreadModel, start_step: int) -> Prefetcher:
    """Return a reader that prefetches this rank's batches, from the step `start_step` on."""
    config, dataset, ranks = planned.config, planned.dataset, job.ranks
    options: dict[str, Any] = {
        "needs": made.needs,
        "augment": make_augmentation(config.augment, config.seed),
        "gpu": job.workplace.device if job.workplace.device.type == "cuda" else None,
        "num_threads": config.num_loader_threads,
        "prefetch": config.num_prefetch_batches,
    }
    if config.reader == "index":
        return BatchReader(dataset, planned.plan, rank=ranks.rank, start_step=start_step, **options)
    shards, locate = own_shards(dataset)
    if config.stream.urls:
        shards, locate = expand_urls(config.stream.urls), str
    stream = ShardStream(
        urls=shards,
        locate=locate,
        seed=config.seed,
        rank=ranks.rank,
        num_ranks=ranks.num_ranks,
        shuffle_buffer=config.stream.shuffle_buffer,
        start_step=start_step,
    )
    # Tokens of native images share positions, so a token count is not a position count.
    limit = None if dataset.info.image_kind == "native" else made.spread.bare.max_positions
    return StreamReader(dataset.info, stream, planned.plan.layout, max_tokens=limit, **options)
