"""Trial of `slurm-jobs tune`: some steps of a real training, of which only the times are kept.

Model, strategy, data, loop and step records are those of the stage `train`. Nothing is saved,
exported, evaluated or sent to a tracker. `num_kept_steps` removes the data path: the same
shapes and work, but nothing is read.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pipeline.data.batch import Batch
from pipeline.data.disk_format.dataset_info import read_dataset_info
from pipeline.data.prefetch import Prefetcher
from pipeline.models.data_facts import load_tokenizer, read_facts
from pipeline.timing.profiler import make_profiling
from pipeline.timing.sampler import sample_system
from pipeline.timing.span_log import SpanLog
from pipeline.timing.thread_clock import NOT_TIMED
from pipeline.train.device.random_seeds import seed_generators
from pipeline.train.device.rank_device import prepare_device
from pipeline.train.job import Job
from pipeline.train.loop import run_steps
from pipeline.train.phase import phases_of
from pipeline.train.preflight.preflight import preflight
from pipeline.train.ranks.process_group import join_ranks, leave_ranks
from pipeline.train.trainer import Trainer
from pipeline.train.training_data.data_sources import find_datasets, open_sources
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.train import TrialConfig
from slurm_jobs.formats.dataset_folder import PROCESSOR_DIR
from slurm_jobs.formats.records.task_context import TaskContext


def run(config: Mapping[str, Any], context: TaskContext) -> dict[str, Any] | None:
    """Run the steps; called once on every rank; rank 0 returns the result.

    Raises:
        StageConfigError, StageError: as in `pipeline.train.run`.
    """
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    measured = build_config(TrialConfig, config)
    rank_device = prepare_device(measured.train, context)
    job = Job(
        config=measured.train,
        context=context,
        spans=SpanLog(context.timing_dir, context.rank),
        rank_device=rank_device,
        ranks=join_ranks(
            context,
            device_type=rank_device.device.type,
            timeout_min=measured.train.collective_timeout_min,
        ),
        began_unix_s=time.time(),
    )
    result = _measure(job, measured)
    leave_ranks()
    return result if context.rank == 0 else None


def _measure(job: Job, measured: TrialConfig) -> dict[str, Any]:
    """Open the data, build and plan like `train`, and run the steps of the first phase."""
    phases = phases_of(job.config)
    folders = find_datasets(phases, job.context)
    facts = read_facts(read_dataset_info(folders[0]), load_tokenizer(folders[0] / PROCESSOR_DIR))
    preflight(job, phases, folders, facts)
    device = job.rank_device.device
    with sample_system(job.config.sampler, job.context), open_sources(folders, job) as sources:
        trainer = Trainer(job, phases, sources, facts)
        trainer.build()
        phase = trainer.current = trainer.plan_phase(phases[0], sources[0])
        trainer.report, trainer.saver = _report_nothing, _SavesNothing()
        seed_generators(phase.config.seed, job.ranks.rank)
        with (
            trainer.make_recorder() as trainer.recorder,
            trainer.watch_compiling(functools.partial(trainer.recorder.set_apart, "compile_s")),
            make_profiling(job.config.profile, job.context, job.spans, device) as profiling,
            trainer.make_reader(0) as reader,
        ):
            trainer.batches = _batches(reader, measured)
            end = run_steps(trainer, 0, profiling.watch)
        trainer.model.strategy.close(trainer.model.parallel)
    return {
        "num_steps": end.num_steps_done,
        "final_loss": end.final_loss,
        "batching": phase.config.batching.kind,
        "num_microbatches": phase.config.num_microbatches,
        "num_compute_threads": job.rank_device.num_compute_threads,
    }


def _report_nothing(*_outcome: object) -> None:
    """Replace the reporter."""


def _batches(reader: Prefetcher, measured: TrialConfig) -> Prefetcher | KeptBatches | Dropping:
    if measured.num_kept_steps:
        return KeptBatches(reader, measured.num_kept_steps)
    if measured.num_dropped_steps:
        return Dropping(reader, measured.num_dropped_steps, before=measured.drop_before)
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

    def save(self, step: int, loss: float, *, must_end: bool) -> None:
        pass

    def finish(self) -> None:
        pass

    def has_ended_here(self) -> bool:
        return False
