"""Trainer of one rank: builds the model, plans all phases, and trains one after the other.

Every attempt runs all phases. For a completed phase it only loads the last checkpoint, whose
weights the next phase starts with. This also checks that earlier phases still match the
checkpoints that build on them. A damaged last checkpoint of a completed phase is skipped if a
later phase has a checkpoint, which has its weights.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from pipeline.data.augmentation import make_augmentation
from pipeline.data.batches.manifest_groups import group_manifests, mixed_manifests
from pipeline.data.dataset import ShardedDataset
from pipeline.data.disk_format.dataset_info import PACKS_DIR
from pipeline.data.loader import BatchReader
from pipeline.data.prefetch import Prefetcher
from pipeline.data.reading_plan import ReadingPlan
from pipeline.data.webdataset_reader import ShardStream, StreamReader, expand_urls, own_shards
from pipeline.models.computation.compiling import USUAL_VARIANTS
from pipeline.models.data_facts import DataFacts
from pipeline.timing.card_peaks import find_card
from pipeline.timing.compile_watch import CompileWatch
from pipeline.timing.device_clock import CudaClock
from pipeline.timing.flops import FORMULA
from pipeline.timing.profiler import make_profiling
from pipeline.timing.recorder import StepRecorder
from pipeline.train.checkpoints.checkpoint_record import Identity, Work
from pipeline.train.checkpoints.last_of_phase import conclude
from pipeline.train.checkpoints.lasting_config import fingerprint, lasting_config
from pipeline.train.checkpoints.measured_saver import make_saver
from pipeline.train.checkpoints.restoring import Restored, restore
from pipeline.train.checkpoints.training_state import Checkpoints, LaterPhase, TrainingState
from pipeline.train.device.device_memory import read_device_memory
from pipeline.train.device.numa_cores import near_cores
from pipeline.train.device.random_seeds import seed_generators
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.held_out import (
    HELD_OUT_NAME,
    HeldOut,
    HeldOutLog,
    HeldOutResult,
    HeldOutShare,
    encode_share,
    read_results,
)
from pipeline.train.job import Job, versions
from pipeline.train.loop import Report, StepBatches, StepSaver, Watch, run_steps
from pipeline.train.memory.out_of_memory import (
    explain_out_of_memory,
    explain_out_of_memory_in_steps,
    smaller_state,
)
from pipeline.train.phase import Phase
from pipeline.train.reporting.trackers import Trackers
from pipeline.train.reporting.training_reporter import TrainingFacts, TrainingReporter
from pipeline.train.trained_model.trained_model import (
    TrainedModel,
    build_trained_model,
    switch_phase,
)
from pipeline.train.training_data.batching import plan_reading, read_work_model, steps_to_make
from pipeline.train.training_data.data_sources import Source
from pipeline.train.trials.batching_choice import choose_batching
from pipeline.train.trials.microbatch_choice import settle_microbatches
from pipeline.train.trials.trial import TrialInputs
from slurm_jobs.base.errors import StageConfigError, StageStoppedError
from slurm_jobs.base.index_ranges import ranges_text
from slurm_jobs.formats.configs.train import TrainConfig
from slurm_jobs.formats.records.activity import current_progress
from slurm_jobs.formats.records.heartbeat import steps_change
from slurm_jobs.formats.timings.manifest_losses import MANIFESTS_KEY

log = logging.getLogger(__name__)


@dataclass(kw_only=True)
class PlannedPhase:
    """Phase with a known number of steps, and later its progress in this attempt."""

    phase: Phase
    config: TrainConfig
    """Config of the phase, with kind of batching and number of microbatches resolved."""
    dataset: ShardedDataset
    plan: ReadingPlan
    num_steps: int
    first_step: int
    """Steps of the phases before."""
    resumed: Restored = field(default_factory=lambda: Restored(step=0, loss=None))
    final_loss: float | None = None
    """Loss of the phase's last step, of any attempt."""
    num_skips: int = 0
    """Steps skipped under fp16."""

    @property
    def lasting(self) -> dict[str, Any]:
        """Part of its config that must not change between attempts."""
        return lasting_config(self.config, self.num_steps)

    @property
    def last_step(self) -> int:
        """Steps of all phases at its end."""
        return self.first_step + self.num_steps

    def describe(self) -> str:
        """Return `lora: 1,000 steps of 64 samples, each rank's share at once`."""
        layout, what = self.plan.layout, "rows" if self.plan.packs is not None else "samples"
        number = layout.num_microbatches
        pieces = "at once" if number == 1 else f"in {number:,} microbatches"
        name = f"{self.phase.name}: " if self.phase.name else ""
        return (
            f"{name}{self.num_steps:,} steps of {layout.global_batch_size:,} {what}, each rank's "
            f"share {pieces}"
        )


class Trainer:
    """One rank's training; `pipeline.train.loop.run_steps` reads its attributes."""

    model: TrainedModel
    """Model, optimizer and strategy, as parallelized for the current phase."""
    current: PlannedPhase
    batches: StepBatches
    """Yields one list of microbatches per step of the current phase."""
    saver: StepSaver
    recorder: StepRecorder
    report: Report
    evaluate_held_out: Callable[[int], object] | None = None
    """Evaluates held-out samples after this many steps of all phases; a collective."""
    tokens_per_s: float | None
    """Over all ranks, padding not counted; None if no step was made."""
    held_out_results: Sequence[HeldOutResult] = ()
    """Evaluations of the same held-out samples, of all attempts at this training; on rank 0."""

    def __init__(
        self, job: Job, phases: Sequence[Phase], sources: Sequence[Source], facts: DataFacts
    ) -> None:
        """Take the phases' data sets, `sources`, in their order."""
        self.job, self.rank_device, self.ranks = job, job.rank_device, job.ranks
        self.phases, self.sources, self.facts = phases, sources, facts
        # Levels are groups of targets themselves.
        infos = [] if job.config.levels else [source.dataset.info for source in sources]
        self.manifests = mixed_manifests(infos)
        self.planned: list[PlannedPhase] = []
        self._share: HeldOutShare | None = None

    @property
    def num_steps(self) -> int:
        """Steps of all phases."""
        return sum(phase.num_steps for phase in self.planned)

    @property
    def resumed_from_step(self) -> int:
        """Step at which this attempt began, counted over all phases."""
        for phase in self.planned:
            if phase.resumed.step < phase.num_steps:
                return phase.first_step + phase.resumed.step
        return self.num_steps

    def train(self, trackers: Trackers) -> None:
        """Train from the newest checkpoints, or from the start, to the last step.

        `trackers` stay open.

        Raises:
            StageConfigError, StageStoppedError, StageError: as in `pipeline.train.run`.
        """
        job, device = self.job, self.rank_device.device
        remedy = smaller_state(job.config)
        with (
            job.spans.span("model_build"),
            explain_out_of_memory(self.ranks, "while the model was built", remedy),
        ):
            self.build()
        with self.watch_compiling(lambda _: None):  # in trials
            self._plan()
        self._trackers = trackers
        self.report = self._reporter = self._make_reporter(trackers)
        if self.ranks.rank == 0:
            num_threads = self.rank_device.num_compute_threads
            log.info(
                "plan: %s parameters, each rank with %d CPU thread%s; %s",
                f"{self.model.num_parameters:,}",
                num_threads,
                "" if num_threads == 1 else "s",
                ", then ".join(phase.describe() for phase in self.planned),
            )
        if job.config.evaluate.every_steps is not None:
            with job.spans.span("heldout_encode"):
                self._share = encode_share(
                    job, self.facts, self.model.needs, self.sources[0].processor_dir
                )
        with (
            self.make_recorder() as self.recorder,
            self.watch_compiling(functools.partial(self.recorder.set_apart, "compile_s")),
            make_profiling(job.config.profile, job.context, job.spans, device) as profiling,
        ):
            follows = ""
            for phase in self.planned:
                follows = self._train_phase(phase, follows, profiling.watch)
            self._start_trackers(self.num_steps)  # for messages after the steps
        self.model.strategy.close(self.model.parallel)
        (num_tokens,) = self.ranks.sums([self._reporter.num_tokens])
        self.tokens_per_s = num_tokens / self._reporter.elapsed_s if num_tokens else None
        if self.ranks.rank == 0:
            basis = None if self._share is None else self._share.basis
            path = job.context.output_dir / HELD_OUT_NAME
            self.held_out_results = read_results(path, self._last_steps(), basis)

    def build(self) -> None:
        """Build the model, and parallelize it for the first phase."""
        self.model = build_trained_model(
            self.job.config,
            self.phases,
            context=self.job.context,
            rank_device=self.rank_device,
            ranks=self.ranks,
            data=self.facts,
        )

    def _plan(self) -> None:
        """Plan all phases before the first step, so that planning errors appear at once."""
        for phase, source in zip(self.phases, self.sources, strict=True):
            if len(self.phases) > 1:
                self.model = switch_phase(self.model, phase, self.rank_device)
            self.plan_phase(phase, source)
        if problem := self.job.config.profile.why_never(self.num_steps):
            raise StageConfigError(problem)

    def plan_phase(self, phase: Phase, source: Source) -> PlannedPhase:
        """Plan the data and number of steps of the next phase, which the model is parallelized for.

        A collective.
        """
        job, dataset = self.job, source.dataset
        folder = phase.folder(job.context.output_dir)
        if self.ranks.rank == 0:
            folder.mkdir(parents=True, exist_ok=True)
        with job.spans.span("batch_plan") as notes:
            trial = TrialInputs(
                config=phase.config,
                dataset=dataset,
                strategy=self.model.strategy,
                parallel=self.model.parallel,
                needs=self.model.needs,
                rank_device=self.rank_device,
                ranks=self.ranks,
                num_local_ranks=job.context.num_local_ranks,
                spans=job.spans,
                packs_dirs=(source.packs_dir, job.context.output_dir / PACKS_DIR),
            )
            batched = choose_batching(trial, folder)
            config = settle_microbatches(replace(trial, config=batched), folder)
            plan = plan_reading(
                config,
                dataset,
                model=read_work_model(self.model.parallel.bare, dataset),
                ranks=self.ranks,
                packs_dirs=trial.packs_dirs,
            )
            notes |= {"kind": config.batching.kind, "num_packs": plan.num_packs}
        planned = PlannedPhase(
            phase=phase,
            config=config,
            dataset=dataset,
            plan=plan,
            num_steps=steps_to_make(config, plan),
            first_step=self.num_steps,  # of the phases planned so far
        )
        self.planned.append(planned)
        return planned

    def _train_phase(self, phase: PlannedPhase, follows: str, watch: Watch) -> str:
        """Train from the phase's newest checkpoint, or from its start, to its last step.

        `follows`, and what is returned for the next phase, are as in `Identity`.
        """
        job = self.job
        of_phase = f" of phase {phase.phase.name}" if phase.phase.name else ""
        self.current = phase
        self.evaluate_held_out = None  # the old one refers to the last phase's optimizer
        if len(self.planned) > 1 or phase.phase.config.has_trials:
            # After trials, too: ddp orders gradient buckets by the first backward pass, which
            # with more than two ranks changes the last bits of their sums.
            self.model = switch_phase(self.model, phase.phase, self.rank_device)
        checkpoints = self._checkpoints(follows)
        # before `restore`, which sets the generators as they were at the checkpoint
        seed_generators(phase.config.seed, self.ranks.rank)
        with job.spans.span("checkpoint_load") as notes:
            phase.resumed = resumed = restore(checkpoints)
            notes["step"] = resumed.step
        if (progress := current_progress()) is not None:
            progress.num_done = phase.first_step + resumed.step
        if resumed.step and resumed.is_loaded and self.ranks.rank == 0:
            log.info("continues after step %d of %d%s", resumed.step, phase.num_steps, of_phase)
        if resumed.step < phase.num_steps:
            self._start_trackers(phase.first_step + resumed.step)
        self._start_held_out()
        with (
            self.make_reader(resumed.step) as self.batches,
            make_saver(
                phase.config, checkpoints, job.context, job.spans, resumed.step
            ) as self.saver,
        ):
            if (since_s := self._reporter.start_clock()) is not None:  # no step contains that time
                start_unix_s = time.time() - since_s
                job.spans.add("phase_change", start_unix_s=start_unix_s, duration_s=since_s)
            steps_change()
            with explain_out_of_memory_in_steps(phase.phase.config, self.ranks, self.recorder):
                end = run_steps(self, resumed.step, watch)
        del self.batches, self.saver
        phase.final_loss = resumed.loss if end.final_loss is None else end.final_loss
        phase.num_skips = self.model.scaling.num_skips
        if end.stopped:
            message = f"asked to stop: the state after step {end.num_steps_done}{of_phase} is saved"
            raise StageStoppedError(message)
        return "" if phase is self.planned[-1] else conclude(checkpoints, phase.num_steps)

    def _start_held_out(self) -> None:
        """Evaluate held-out samples from now on; at the starting step, too, if that was due."""
        job, phase, share = self.job, self.current, self._share
        # A phase whose weights are not loaded is completed: no step of it is left to evaluate.
        if share is None or not phase.resumed.is_loaded:
            return
        held_out_log = HeldOutLog(
            job.context.output_dir / HELD_OUT_NAME if self.ranks.rank == 0 else None,
            attempt=job.context.attempt,
            trainings=self._last_steps(),
            basis=share.basis,
            track=self._reporter.track,
        )
        held_out = HeldOut(job, self.facts, self.model, share, held_out_log)
        resumed, step = phase.resumed, phase.first_step + phase.resumed.step
        ends_phase = resumed.step == phase.num_steps
        if resumed.step and phase.config.evaluate.is_evaluation_due(step, ends_phase=ends_phase):
            held_out.evaluate_unless_done(step)  # a stop or a kill may have prevented it
        self.evaluate_held_out = held_out.evaluate

    def make_reader(self, start_step: int) -> Prefetcher:
        """Return a reader that prefetches this rank's batches, from the step `start_step` on."""
        phase, ranks, device = self.current, self.ranks, self.rank_device.device
        config, dataset = phase.config, phase.dataset
        options: dict[str, Any] = {
            "needs": replace(
                self.model.needs, manifests=group_manifests(dataset.info, self.manifests)
            ),
            "augment": make_augmentation(config.augment, config.seed),
            "gpu": device if device.type == "cuda" else None,
            "num_threads": config.num_loader_threads,
            "prefetch": config.num_prefetch_batches,
        }
        if config.reader == "index":
            return BatchReader(
                dataset, phase.plan, rank=ranks.rank, start_step=start_step, **options
            )
        locate: Callable[[str], str]
        if config.stream.urls:
            shards, locate = expand_urls(config.stream.urls), str
        else:
            shards, locate = own_shards(dataset)
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
        is_native = dataset.info.image_kind == "native"
        limit = None if is_native else self.model.parallel.bare.max_positions
        return StreamReader(dataset.info, stream, phase.plan.layout, max_tokens=limit, **options)

    def _checkpoints(self, follows: str) -> Checkpoints:
        number = self.current.phase.number
        return Checkpoints(
            root=self._checkpoint_root(self.current),
            attempt=self.job.context.attempt,
            ranks=self.ranks,
            state=TrainingState(
                model=self.model.parallel.bare,
                optimizer=self.model.parallel.optimizer,
                learned=self.model.learning.so_far[number],
                extra={"scaler": self.model.scaling} if self.model.scaling.is_on else {},
                device=self.rank_device.device,
            ),
            identity=self._identity(self.current, follows),
            later=[
                LaterPhase(root=self._checkpoint_root(phase), identity=self._identity(phase, ""))
                for phase in self.planned[number + 1 :]
            ],
            can_begin=number == 0 or self.planned[number - 1].resumed.is_loaded,
        )

    def _checkpoint_root(self, phase: PlannedPhase) -> Path:
        return phase.phase.folder(self.job.context.output_dir) / "checkpoints"

    def _identity(self, phase: PlannedPhase, follows: str) -> Identity:
        context = self.job.context
        return Identity(
            lasting_config=phase.lasting,
            dataset_fingerprint=phase.dataset.info.fingerprint,
            work=Work(fingerprint=context.fingerprint, num_again=context.num_again),
            versions=versions(),
            base=self.model.learning.bases[phase.phase.number],
            follows=follows,
        )

    def _fingerprint_of_first(self, num_phases: int) -> str:
        """Return the fingerprint of the training that consists of the first `num_phases` phases.

        Attempts with equal fingerprints can continue each other's checkpoints. That of one phase is
        as it was before there were phases.
        """
        parts = [
            {"config": phase.lasting, "data": phase.dataset.info.fingerprint}
            for phase in self.planned[:num_phases]
        ]
        return fingerprint(parts[0] if len(parts) == 1 else {"phases": parts})

    def _last_steps(self) -> dict[str, int]:
        """Map the fingerprint of the training up to a phase to the number of its last step."""
        return {
            self._fingerprint_of_first(num_phases): phase.last_step
            for num_phases, phase in enumerate(self.planned, start=1)
        }

    def release_model(self) -> None:
        """Drop the references to the model and its optimizer."""
        self.evaluate_held_out = None
        del self.model

    def make_recorder(self) -> StepRecorder:
        """Return the recorder of the steps of all planned phases, with the header of its file."""
        config, context, rank_device = self.job.config, self.job.context, self.rank_device
        clock, synchronize = choose_clock(rank_device.device, config.timing)
        flops = describe_flops(rank_device, _card_name(rank_device))
        return StepRecorder(
            context.timing_dir,
            self.ranks.rank,
            {
                "training": self._fingerprint_of_first(len(self.planned)),
                "num_ranks": self.ranks.num_ranks,
                "local_rank": context.local_rank,
                "node_name": context.node_name,
                "device": rank_device.device.type,
                "cores": ranges_text(sorted(os.sched_getaffinity(0))),
                "cores_near_gpu": ranges_text(near_cores(rank_device.device)),
                "strategy": config.strategy,
                "precision": rank_device.precision,
                "attention": self.model.parallel.bare.attention_name,
                "num_steps": self.num_steps,
                "global_batch_size": self.planned[0].config.global_batch_size,
                "timing": config.timing,
                "flops": flops,
                MANIFESTS_KEY: self.manifests,
                "phases": [
                    {
                        "name": phase.phase.name,
                        "first_step": phase.first_step,
                        "num_steps": phase.num_steps,
                        "training": self._fingerprint_of_first(num_phases),
                    }
                    for num_phases, phase in enumerate(self.planned, start=1)
                ],
            },
            read_memory=functools.partial(read_device_memory, rank_device.device),
            device_clock=clock,
            synchronize=synchronize,
            peak_flops_per_s=flops["peak_flops_per_s"],
        )

    def watch_compiling(
        self, set_apart: Callable[[int], None]
    ) -> contextlib.AbstractContextManager[object]:
        """Log compilations; does nothing if nothing is compiled.

        `set_apart` gets the duration of each compilation, in nanoseconds.
        """
        if self.job.config.compile is None:
            return contextlib.nullcontext()
        return CompileWatch(
            set_apart,
            num_expected=len(self.planned or self.phases) * USUAL_VARIANTS,
            is_main=self.ranks.rank == 0,
        )

    def _make_reporter(self, trackers: Trackers) -> TrainingReporter:
        flops = describe_flops(self.rank_device, _card_name(self.rank_device))
        facts = TrainingFacts(
            num_steps=self.num_steps,
            num_ranks=self.ranks.num_ranks,
            log_every_steps=self.job.config.log_every_steps,
            peak_flops_per_s=flops["peak_flops_per_s"],
            manifests=self.manifests,
        )
        if (progress := current_progress()) is not None:
            progress.count("steps", self.num_steps)
        return TrainingReporter(progress, trackers, facts)

    def _start_trackers(self, num_steps_done: int) -> None:
        """Open trackers before the attempt's first step, in a span: a service may be slow."""
        if not self._trackers.are_waiting:
            return
        first = self.planned[0].config
        settings = {
            "strategy": first.strategy,
            "precision": self.rank_device.precision,
            "num_ranks": self.ranks.num_ranks,
            "num_steps": self.num_steps,
            "global_batch_size": first.global_batch_size,
            "learning_rate": first.optimizer.learning_rate,
            "seed": first.seed,
        }
        with self.job.spans.span("trackers_start"):
            self._trackers.start(
                num_steps_done, self._fingerprint_of_first(len(self.planned)), settings
            )


def describe_flops(rank_device: RankDevice, name: str) -> dict[str, Any]:
    """Describe the formula of `model_flops` and `mfu`, and the card's peak with its source.

    Peak and source are None if they are not known. `name` is the card's; empty on a CPU.
    """
    card = find_card(name)
    peaks = {} if card is None else card.flops_per_s
    uses_tf32 = rank_device.precision == "fp32" and torch.backends.cuda.matmul.allow_tf32
    precision = "tf32" if uses_tf32 and "tf32" in peaks else rank_device.precision
    return {
        "formula": FORMULA,
        "card": name or None,
        "peak_flops_per_s": peaks.get(precision),
        "peak_source": None if card is None else card.source,
    }


def _card_name(rank_device: RankDevice) -> str:
    """Return the card's name from the driver; empty on a CPU."""
    if rank_device.device.type != "cuda":
        return ""
    return torch.cuda.get_device_name(rank_device.device)


def choose_clock(
    device: torch.device, timing: str
) -> tuple[CudaClock | None, Callable[[], None] | None]:
    """Return the device's clock, or a function that synchronises with it; neither on a CPU."""
    if device.type != "cuda":
        return None, None
    if timing == "sync":
        return None, functools.partial(torch.cuda.synchronize, device)
    return CudaClock(), None
