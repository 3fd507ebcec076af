"""Trial of `slurm-jobs tune`: some steps of a real training, of which only the times are kept.

Model, strategy, data, loop and step records are those of the stage `train`. Nothing is saved,
exported, evaluated or sent to a tracker. `num_kept_steps` removes the data path: the same
shapes and work, but nothing is read.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipeline.data.batch import Batch
from pipeline.data.format import read_dataset_info
from pipeline.data.loader import Prefetcher
from pipeline.models.layouts import load_tokenizer, read_facts
from pipeline.timing.profiler import make_profiling
from pipeline.timing.recorder import NOT_TIMED, SpanLog
from pipeline.timing.sampler import sample_system
from pipeline.train.device import prepare_device, seed_generators
from pipeline.train.job import Job, find_datasets, open_sources, phases_of
from pipeline.train.loop import LoopEnd, run_steps
from pipeline.train.preflight import preflight
from pipeline.train.prepare import SpreadModel, build_and_spread
from pipeline.train.ranks import join_ranks, leave_ranks
from pipeline.train.trainer import (
    PlannedPhase,
    make_loop_setup,
    make_reader,
    make_recorder,
    plan_phase,
    watch_compiling,
)
from slurm_jobs.shared.config import build_config
from slurm_jobs.shared.configs.train import MeasureConfig
from slurm_jobs.shared.manifest_formats import PROCESSOR_DIR
from slurm_jobs.shared.records import TaskContext


def run(config: Mapping[str, Any], context: TaskContext) -> dict[str, Any] | None:
    """Run the steps; called once on every rank; rank 0 returns the result.

    Raises:
        StageConfigError, StageError: as in `pipeline.train.run`.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    asked = build_config(MeasureConfig, config)
    workplace = prepare_device(asked.train, context)
    job = Job(
        config=asked.train,
        context=context,
        spans=SpanLog(context.timing_dir, context.rank),
        workplace=workplace,
        ranks=join_ranks(
            context,
            device_type=workplace.device.type,
            timeout_min=asked.train.collective_timeout_min,
        ),
        began_unix_s=time.time(),
    )
    said = _measure(job, asked)
    leave_ranks()
    return said if context.rank == 0 else None


def _measure(job: Job, asked: MeasureConfig) -> dict[str, Any]:
    """Open the data, build and plan like `train`, and run the steps."""
    phases = phases_of(job.config)
    folders = find_datasets(phases, job.context)
    facts = read_facts(read_dataset_info(folders[0]), load_tokenizer(folders[0] / PROCESSOR_DIR))
    preflight(job, phases, folders, facts)
    with sample_system(job.config.sampler, job.context), open_sources(folders, job) as sources:
        made = build_and_spread(
            job.config,
            phases,
            context=job.context,
            workplace=job.workplace,
            ranks=job.ranks,
            data=facts,
        )
        planned = plan_phase(job, phases[0], sources[0], made, 0)
        end = _make_steps(job, planned, made, asked)
        made.strategy.close(made.spread)
    return {
        "num_steps": end.num_steps_done,
        "final_loss": end.final_loss,
        "batching": planned.config.batching.kind,
        "num_microbatches": planned.config.num_microbatches,
        "num_compute_threads": job.workplace.num_compute_threads,
    }


def _make_steps(
    job: Job, planned: PlannedPhase, made: SpreadModel, asked: MeasureConfig
) -> LoopEnd:
    """Run the loop of `train`, with a saver that saves nothing."""
    device = job.workplace.device
    seed_generators(planned.config.seed, job.ranks.rank)
    with (
        make_recorder(job, made.spread.bare, [planned]) as recorder,
        watch_compiling(job, functools.partial(recorder.set_apart, "compile_s"), 1),
        make_profiling(job.config.profile, job.context, job.spans, device) as profiling,
        make_reader(job, planned, made, 0) as reader,
    ):
        batches = _batches(reader, asked)
        setup = make_loop_setup(
            job,
            planned,
            made,
            batches=batches,
            peek=batches.peek,
            recorder=recorder,
            saver=_SavesNothing(),
            report=lambda *_told: None,
        )
        return run_steps(setup, 0, profiling.watch)


def _batches(reader: Prefetcher, asked: MeasureConfig) -> Prefetcher | KeptBatches | Dropping:
    if asked.num_kept_steps:
        return KeptBatches(reader, asked.num_kept_steps)
    if asked.num_dropped_steps:
        return Dropping(reader, asked.num_dropped_steps, before=asked.drop_before)
    return reader


class Dropping:
    """Reader that drops, once, what it has prefetched.

    First steps are slow (kernels are loaded, layers compiled), so a loader that is slower than
    the steps gets ahead of them. A trial would mistake that for speed, the more the longer the
    prefetch queue.
    """

    def __init__(self, reader: Prefetcher, num_steps: int, *, before: int) -> None:
        """Drop `num_steps` before step `before`: at least as many as may be prefetched."""
        self._reader, self._num_dropped, self._before = reader, num_steps, before
        self._number = 0

    def __iter__(self) -> Iterator[list[Batch]]:
        return self

    def __next__(self) -> list[Batch]:
        if self._number == self._before:
            for _ in range(self._num_dropped):
                next(self._reader)
        self._number += 1
        return next(self._reader)

    def peek(self) -> list[Batch] | None:
        """Return the next step if ready; None before the step at which some are dropped."""
        return None if self._number == self._before else self._reader.peek()


class KeptBatches:
    """First steps of a reader, kept in memory and repeated.

    The reader is closed: its threads compete for no core, and their time is not recorded.
    """

    def __init__(self, reader: Prefetcher, num_steps: int) -> None:
        self._kept: Sequence[list[Batch]] = [
            [replace(batch, loading=NOT_TIMED, reading=NOT_TIMED) for batch in next(reader)]
            for _ in range(num_steps)
        ]
        self._number = 0
        reader.close()

    def __iter__(self) -> Iterator[list[Batch]]:
        return self

    def __next__(self) -> list[Batch]:
        batches = self.peek()
        self._number += 1
        return batches

    def peek(self) -> list[Batch]:
        """Return the next step; always ready."""
        return self._kept[self._number % len(self._kept)]


class _SavesNothing:
    """Replaces the saver: the loop requests a checkpoint after its last step."""

    save: Callable[..., None] = staticmethod(lambda *_step, **_must_end: None)
    finish: Callable[[], None] = staticmethod(lambda: None)
    has_ended_here: Callable[[], bool] = staticmethod(lambda: False)
