"""Recorder, reporter and trackers of a rank's steps, and their initial facts.

This defines the header of a file of step records; `pipeline.timing` writes it.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pipeline.models.compiling import USUAL_VARIANTS
from pipeline.models.interface import VisionLanguageModel
from pipeline.timing import StepRecorder
from pipeline.timing.compile_watch import CompileWatch
from pipeline.timing.device_clock import CudaClock, DeviceClock
from pipeline.timing.flops import FORMULA
from pipeline.timing.peaks import find_card
from pipeline.training.device import Workplace, near_cores, read_device_memory
from pipeline.training.job import Job
from pipeline.training.one_phase import PlannedPhase, training_fingerprint, trainings_of
from pipeline.training.report import Course, TrainingReporter
from pipeline.training.trackers import Trackers
from slurm_jobs.common.progress import Progress
from slurm_jobs.common.ranges import ranges_text


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
