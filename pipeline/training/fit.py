"""Training from staged data sets to weights: build, plan, and train phase after phase.

Every attempt runs all phases. For a completed phase it only loads the last checkpoint, whose
weights the next phase starts with. So the previous phases are compared like everything else
that a checkpoint depends on. If that checkpoint is damaged, a later phase's has its weights,
and nothing is loaded.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipeline.data.batch import ModelNeeds
from pipeline.models import DataFacts
from pipeline.timing.profiling import make_profiling
from pipeline.training.checkpoint import conclude
from pipeline.training.held_out import HeldOut, HeldOutShare, encode_share
from pipeline.training.held_out_log import HELD_OUT_NAME, HeldOutLog, Look, read_looks
from pipeline.training.job import Job
from pipeline.training.less_memory import naming_the_remedy, smaller_state
from pipeline.training.one_phase import (
    PhaseEnd,
    PlannedPhase,
    Watchers,
    plan_phase,
    train_phase,
    trainings_of,
)
from pipeline.training.phase_checkpoints import find_checkpoints
from pipeline.training.phases import Phase
from pipeline.training.ranks import Ranks
from pipeline.training.recording import (
    make_recorder,
    make_reporter,
    start_trackers,
    watch_compiling,
)
from pipeline.training.report import TrainingReporter
from pipeline.training.sources import Source
from pipeline.training.spreading import SpreadModel, build_and_spread, respread
from pipeline.training.trackers import Trackers
from slurm_jobs.common.errors import StageConfigError, StageStoppedError

log = logging.getLogger(__name__)


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
