"""Training from first to last step: phases, checkpoints, records."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from pipeline.data.batch import Batch, ModelNeeds
from pipeline.data.dataset import ShardedDataset
from pipeline.data.format import PACKS_DIR
from pipeline.data.loader import BatchReader, Prefetcher, ReadingPlan, make_augmentation
from pipeline.data.stream import ShardStream, StreamReader, expand_urls, own_shards
from pipeline.models.compute import USUAL_VARIANTS
from pipeline.models.layouts import DataFacts
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.timing.flops import FORMULA, find_card
from pipeline.timing.profiler import make_profiling
from pipeline.timing.recorder import CompileWatch, CudaClock, DeviceClock, StepRecorder
from pipeline.train.batches import make_counter
from pipeline.train.batching import plan_reading, read_work_model, steps_to_make
from pipeline.train.checkpoint import Restored, TimedSaver, conclude, make_saver, restore
from pipeline.train.checkpoint_files import Identity, Work, fingerprint, lasting_config
from pipeline.train.checkpoint_state import Checkpoints, LaterPhase, TrainingState
from pipeline.train.device import Workplace, near_cores, read_device_memory, seed_generators
from pipeline.train.held_out import (
    HELD_OUT_NAME,
    HeldOut,
    HeldOutLog,
    HeldOutShare,
    Look,
    encode_share,
    read_looks,
)
from pipeline.train.job import Job, Phase, Source, versions
from pipeline.train.loop import Boundary, LoopEnd, LoopSetup, Report, Watch, run_steps
from pipeline.train.memory import naming_the_remedy, smaller_state, telling_what_takes_less
from pipeline.train.prepare import SpreadModel, build_and_spread, respread
from pipeline.train.ranks import Ranks
from pipeline.train.trackers import Course, Trackers, TrainingReporter
from pipeline.train.trials import Trial, choose_batching, settle_microbatches
from slurm_jobs.shared.configs.train import TrainConfig
from slurm_jobs.shared.errors import StageConfigError, StageStoppedError
from slurm_jobs.shared.files import Progress, ranges_text
from slurm_jobs.shared.heartbeat import steps_change

# One phase of a training: its data, its starting point, its loop.


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
        StageConfigError, StageStoppedError, StageError: as in `pipeline.train.run`.
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


# Identity of a phase's checkpoints, and of those of the phases after it.


def find_checkpoints(
    job: Job,
    planned: Sequence[PlannedPhase],
    made: SpreadModel,
    ends: Sequence[PhaseEnd],
    follows: str,
) -> Checkpoints:
    """Return the checkpoints of the phase that comes after `ends`; `follows` as in `Identity`."""
    each, *later = planned[len(ends) :]
    return Checkpoints(
        root=_root(job, each),
        attempt=job.context.attempt,
        ranks=job.ranks,
        state=TrainingState(
            model=made.spread.bare,
            optimizer=made.spread.optimizer,
            learned=made.learning.so_far[each.phase.number],
            extra={"scaler": made.scaling} if made.scaling.is_on else {},
            device=job.workplace.device,
        ),
        identity=_identity(job, each, made, follows),
        later=[
            LaterPhase(root=_root(job, phase), identity=_identity(job, phase, made, ""))
            for phase in later
        ],
        can_begin=not ends or ends[-1].resumed.is_loaded,
    )


def _root(job: Job, planned: PlannedPhase) -> Path:
    return planned.phase.folder(job.context.output_dir) / "checkpoints"


def _identity(job: Job, planned: PlannedPhase, made: SpreadModel, follows: str) -> Identity:
    return Identity(
        lasting_config=planned.lasting,
        dataset_fingerprint=planned.dataset.info.fingerprint,
        work=Work(fingerprint=job.context.fingerprint, num_again=job.context.num_again),
        versions=versions(),
        base=made.learning.bases[planned.phase.number],
        follows=follows,
    )


# Recorder, reporter and trackers of a rank's steps, and their initial facts.
#
# This defines the header of a file of step records; `pipeline.timing` writes it.


def make_recorder(
    job: Job, model: VisionLanguageModel, planned: Sequence[PlannedPhase]
) -> StepRecorder:
    """Return the recorder for all phases of this attempt."""
    context, workplace = job.context, job.workplace
    clock, synchronize = choose_clock(workplace.device, job.config.timing)
    flops = describe_flops(workplace, card_name(workplace))
    return StepRecorder(
        context.timing_dir,
        job.ranks.rank,
        {
            "training": training_fingerprint(planned),
            "num_ranks": job.ranks.num_ranks,
            "local_rank": context.local_rank,
            "node_name": context.node_name,
            "device": workplace.device.type,
            "cores": ranges_text(sorted(os.sched_getaffinity(0))),
            "cores_near_gpu": ranges_text(near_cores(workplace.device)),
            "strategy": job.config.strategy,
            "precision": workplace.precision,
            "attention": model.attention_name,
            "num_steps": _num_steps(planned),
            "global_batch_size": planned[0].config.global_batch_size,
            "timing": job.config.timing,
            "flops": flops,
            "phases": [
                {
                    "name": p.phase.name,
                    "first_step": p.first_step,
                    "num_steps": p.num_steps,
                    "training": training,
                }
                for p, training in zip(planned, trainings_of(planned), strict=True)
            ],
        },
        read_memory=lambda: read_device_memory(workplace.device),
        device_clock=clock,
        synchronize=synchronize,
        peak_flops_per_s=flops["peak_flops_per_s"],
    )


def watch_compiling(
    job: Job, set_apart: Callable[[int], None], num_phases: int
) -> contextlib.AbstractContextManager[object]:
    """Log compilations; does nothing if nothing is compiled.

    `set_apart` gets the duration of each compilation, in nanoseconds.
    """
    if job.config.compile is None:
        return contextlib.nullcontext()
    return CompileWatch(
        set_apart,
        num_expected=num_phases * USUAL_VARIANTS,
        is_main=job.ranks.rank == 0,
    )


def make_reporter(
    job: Job, trackers: Trackers, planned: Sequence[PlannedPhase]
) -> TrainingReporter:
    """Return the reporter for all phases of this attempt."""
    num_steps = _num_steps(planned)
    is_main = job.ranks.rank == 0
    flops = describe_flops(job.workplace, card_name(job.workplace))
    course = Course(
        num_steps=num_steps,
        num_ranks=job.ranks.num_ranks,
        log_every_steps=job.config.log_every_steps,
        peak_flops_per_s=flops["peak_flops_per_s"],
    )
    progress = Progress(job.context.task_dir, "steps", num_steps) if is_main else None
    return TrainingReporter(progress, trackers, course)


def start_trackers(
    job: Job, trackers: Trackers, planned: Sequence[PlannedPhase], num_steps_done: int
) -> None:
    """Open trackers before the attempt's first step, in a span, because a service may be slow."""
    if not trackers.are_waiting:
        return
    first = planned[0].config
    settings = {
        "strategy": first.strategy,
        "precision": job.workplace.precision,
        "num_ranks": job.ranks.num_ranks,
        "num_steps": _num_steps(planned),
        "global_batch_size": first.global_batch_size,
        "learning_rate": first.optimizer.learning_rate,
        "seed": first.seed,
    }
    with job.spans.span("trackers_start"):
        trackers.start(num_steps_done, training_fingerprint(planned), settings)


def describe_flops(workplace: Workplace, name: str) -> dict[str, Any]:
    """Describe the formula of `model_flops` and `mfu`, and the peak with its source; else None.

    Args:
        workplace: Workplace of this rank.
        name: Name of its card; empty on a CPU.
    """
    card = find_card(name)
    peaks = {} if card is None else card.flops_per_s
    uses_tf32 = workplace.precision == "fp32" and torch.backends.cuda.matmul.allow_tf32
    precision = "tf32" if uses_tf32 and "tf32" in peaks else workplace.precision
    return {
        "formula": FORMULA,
        "card": name or None,
        "peak_flops_per_s": peaks.get(precision),
        "peak_source": None if card is None else card.source,
    }


def _num_steps(planned: Sequence[PlannedPhase]) -> int:
    return sum(phase.num_steps for phase in planned)


def card_name(workplace: Workplace) -> str:
    """Return the card's name from the driver; empty on a CPU."""
    if workplace.device.type != "cuda":
        return ""
    return torch.cuda.get_device_name(workplace.device)


def choose_clock(
    device: torch.device, timing: str
) -> tuple[DeviceClock | None, Callable[[], None] | None]:
    """Return the device's clock, or a function that synchronises with it; neither on a CPU."""
    if device.type != "cuda":
        return None, None
    if timing == "sync":
        return None, functools.partial(torch.cuda.synchronize, device)
    return CudaClock(), None


# Training from staged data sets to weights: build, plan, and train phase after phase.
#
# Every attempt runs all phases. For a completed phase it only loads the last checkpoint, whose
# weights the next phase starts with. So the previous phases are compared like everything else
# that a checkpoint depends on. If that checkpoint is damaged, a later phase's has its weights,
# and nothing is loaded.


@dataclass(frozen=True, kw_only=True, slots=True)
class Trained:
    """Result of training on a rank."""

    made: SpreadModel
    phases: Sequence[PhaseEnd]
    """Ends of all phases."""
    tokens_per_s: float | None
    """Over all ranks, padding not counted; None if no step was made."""
    looks: Sequence[Look]
    """Evaluations on held-out samples, from all attempts at this training with the same
    samples; on rank 0."""

    @property
    def num_steps(self) -> int:
        """Steps of all phases."""
        return sum(end.planned.num_steps for end in self.phases)

    @property
    def resumed_from_step(self) -> int:
        """Step at which this attempt began, counted over all phases."""
        begun = (e for e in self.phases if e.resumed.step < e.planned.num_steps)
        first = next(begun, None)
        return self.num_steps if first is None else first.planned.first_step + first.resumed.step

    @property
    def made_steps(self) -> bool:
        """True if this attempt made steps; False if it began where the training ends."""
        return self.resumed_from_step < self.num_steps


def fit(
    job: Job,
    phases: Sequence[Phase],
    sources: Sequence[Source],
    facts: DataFacts,
    trackers: Trackers,
) -> Trained:
    """Train from the newest checkpoints, or from the start, to the last step; raises like `run`.

    `sources` are the phases' data sets, in their order; `trackers` stay open.
    """
    made, device = _build(job, phases, facts), job.workplace.device
    with watch_compiling(job, lambda _: None, len(phases)):  # in trials
        made, planned = _plan(job, phases, sources, made)
    reporter = make_reporter(job, trackers, planned)
    _announce(job, made.num_parameters, planned)
    share = _encode_held_out(job, facts, made.needs, sources[0].processor_dir)
    with (
        make_recorder(job, made.spread.bare, planned) as recorder,
        watch_compiling(job, functools.partial(recorder.set_apart, "compile_s"), len(planned)),
        make_profiling(job.config.profile, job.context, job.spans, device) as profiling,
    ):
        told = Watchers(
            recorder=recorder,
            reporter=reporter,
            begin=functools.partial(start_trackers, job, trackers, planned),
            watch=profiling.watch,
            make_held_out=_make_held_out(job, facts, share, planned, reporter),
        )
        made, ends = _train(job, planned, made, told)
        told.begin(sum(each.num_steps for each in planned))  # for messages after the steps
    made.strategy.close(made.spread)
    return Trained(
        made=made,
        phases=ends,
        tokens_per_s=_token_rate(job.ranks, reporter),
        looks=_read_looks(job, share, planned),
    )


def _build(job: Job, phases: Sequence[Phase], facts: DataFacts) -> SpreadModel:
    remedy = smaller_state(job.config)
    with (
        job.spans.span("model_build"),
        naming_the_remedy(job.ranks, "while the model was built", remedy),
    ):
        return build_and_spread(
            job.config,
            phases,
            context=job.context,
            workplace=job.workplace,
            ranks=job.ranks,
            data=facts,
        )


def _plan(
    job: Job, phases: Sequence[Phase], sources: Sequence[Source], made: SpreadModel
) -> tuple[SpreadModel, list[PlannedPhase]]:
    """Plan all phases before the first step, so that planning errors appear at once."""
    planned: list[PlannedPhase] = []
    for phase, source in zip(phases, sources, strict=True):
        made = _for_phase(job, made, phase, anew=len(phases) > 1)
        first_step = sum(before.num_steps for before in planned)
        planned.append(plan_phase(job, phase, source, made, first_step))
    if problem := job.config.profile.why_never(sum(each.num_steps for each in planned)):
        raise StageConfigError(problem)
    return made, planned


def _train(
    job: Job, planned: Sequence[PlannedPhase], made: SpreadModel, told: Watchers
) -> tuple[SpreadModel, list[PhaseEnd]]:
    ends: list[PhaseEnd] = []
    follows = ""
    for each in planned:
        anew = len(planned) > 1 or each.phase.config.has_trials
        made = _for_phase(job, made, each.phase, anew=anew)
        checkpoints = find_checkpoints(job, planned, made, ends, follows)
        ends.append(end := train_phase(job, each, made, checkpoints, told))
        _check_stopped(end)
        if each is not planned[-1]:
            follows = conclude(checkpoints, each.num_steps)
    return made, ends


def _for_phase(job: Job, made: SpreadModel, phase: Phase, *, anew: bool) -> SpreadModel:
    """Shard again with the phase's trained parameters; unchanged for the only phase.

    After trials it is sharded again: ddp orders gradient buckets by the first backward pass,
    which with more than two ranks changes the last bits of their sums.
    """
    return respread(made, phase, job.workplace) if anew else made


def _encode_held_out(
    job: Job, facts: DataFacts, needs: ModelNeeds, processor_dir: Path
) -> HeldOutShare | None:
    """Encode this rank's held-out samples, if they are evaluated during training."""
    if job.config.evaluate.every_steps is None:
        return None
    with job.spans.span("heldout_encode"):
        return encode_share(job, facts, needs, processor_dir)


def _make_held_out(
    job: Job,
    facts: DataFacts,
    share: HeldOutShare | None,
    planned: Sequence[PlannedPhase],
    reporter: TrainingReporter,
) -> Callable[[SpreadModel], HeldOut] | None:
    if share is None:
        return None
    told = HeldOutLog(
        job.context.output_dir / HELD_OUT_NAME if job.ranks.rank == 0 else None,
        attempt=job.context.attempt,
        trainings=_last_steps(planned),
        basis=share.basis,
        tell=reporter.tell,
    )
    return lambda made: HeldOut(job, facts, made, share, told)


def _read_looks(
    job: Job, share: HeldOutShare | None, planned: Sequence[PlannedPhase]
) -> list[Look]:
    """Read earlier evaluations of the same samples, or the latest ones; on rank 0."""
    if job.ranks.rank != 0:
        return []
    basis = None if share is None else share.basis
    path = job.context.output_dir / HELD_OUT_NAME
    return read_looks(path, _last_steps(planned), basis)


def _last_steps(planned: Sequence[PlannedPhase]) -> dict[str, int]:
    """Return steps at the end of each phase, by the training that ends with it."""
    ends = (phase.first_step + phase.num_steps for phase in planned)
    return dict(zip(trainings_of(planned), ends, strict=True))


def _check_stopped(end: PhaseEnd) -> None:
    if not end.loop.stopped:
        return
    phase = end.planned.phase
    where = f" of phase {phase.name}" if phase.name else ""
    message = f"asked to stop: the state after step {end.loop.num_steps_done}{where} is saved"
    raise StageStoppedError(message)


def _token_rate(ranks: Ranks, reporter: TrainingReporter) -> float | None:
    (num_tokens,) = ranks.sums([reporter.num_tokens])
    return num_tokens / reporter.elapsed_s if num_tokens else None


def _announce(job: Job, num_parameters: int, planned: Sequence[PlannedPhase]) -> None:
    if job.ranks.rank != 0:
        return
    num_threads = job.workplace.num_compute_threads
    log.info(
        "plan: %s parameters, each rank with %d CPU thread%s; %s",
        f"{num_parameters:,}",
        num_threads,
        "" if num_threads == 1 else "s",
        ", then ".join(_describe_phase(phase) for phase in planned),
    )


def _describe_phase(planned: PlannedPhase) -> str:
    """Return `lora: 1,000 steps of 64 samples, each rank's share at once`."""
    layout, what = planned.plan.layout, "rows" if planned.plan.packs is not None else "samples"
    number = layout.num_microbatches
    pieces = "at once" if number == 1 else f"in {number:,} microbatches"
    name = f"{planned.phase.name}: " if planned.phase.name else ""
    return (
        f"{name}{planned.num_steps:,} steps of {layout.global_batch_size:,} {what}, each rank's "
        f"share {pieces}"
    )
