"""Cost of recording a step (laps, counts of its work, device marks) and the load of a node.

    python -m benchmarks.recording [--quick] [--json FILE]

One thread does nothing but record, for a batch of a small training, and its CPU time is measured.
The goal, 1 % of a step of 20 ms, is therefore what recording adds to any step. `with a device` uses
a clock whose marks are Python objects instead of CUDA events; the time that torch takes to queue an
event comes on top and is not measured here. The load of this node is read as the thread of a
training reads it, once per second by default.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from benchmarks.table import Row, arguments, row, show
from benchmarks.training_stage import make_context
from pipeline.timing.flops import ModelWork, PartWork
from pipeline.timing.recorder import StepOutcome, StepRecorder
from pipeline.timing.sampler import SystemSampler, find_sources
from pipeline.timing.thread_clock import NOT_TIMED, ThreadClock
from pipeline.train.reporting.trackers import Trackers
from pipeline.train.reporting.training_reporter import TrainingFacts, TrainingReporter
from pipeline.train.training_data.batches import StepCounter
from slurm_jobs.formats.configs.training_parts import TrackersConfig
from slurm_jobs.formats.records.progress_file import Progress

GOAL_US = 200.0
"""1 % of a step of 20 ms."""
LOAD_GOAL_US = 2_000.0
"""0.2 % of a core, at one reading per second."""
NUM_ROWS, LENGTH, NUM_IMAGE_TOKENS, IMAGE_SIDE, PATCH = 32, 512, 256, 224, 14
OUTCOME = StepOutcome(loss=1.0, learning_rate=1e-3, grad_norm=1.0)


class Marks:
    """A device that is always done; replaces `CudaClock`."""

    def __init__(self) -> None:
        self._free: list[Any] = []

    def mark(self) -> Any:
        """See `CudaClock`."""
        mark = self._free.pop() if self._free else SimpleNamespace(at_s=0.0)
        mark.at_s = time.perf_counter()
        return mark

    def has_passed(self, _mark: Any) -> bool:
        """See `CudaClock`."""
        return True

    def wait(self, _mark: Any) -> None:
        """See `CudaClock`."""

    def seconds_between(self, first: Any, last: Any) -> float:
        """See `CudaClock`."""
        return last.at_s - first.at_s

    def give_back(self, marks: Any) -> None:
        """See `CudaClock`."""
        self._free.extend(marks)


def make_batch() -> Any:
    """Make the batch to count: 32 samples of 512 tokens with one image, one row each."""
    ids = np.full((NUM_ROWS, LENGTH), 5)
    ids[:, :NUM_IMAGE_TOKENS] = 4
    return SimpleNamespace(
        input_ids=torch.from_numpy(ids),
        segment_bounds=torch.arange(0, NUM_ROWS * LENGTH + 1, LENGTH, dtype=torch.int32),
        image_sizes=torch.full((NUM_ROWS, 2), IMAGE_SIDE),
        learned=SimpleNamespace(places=np.zeros(NUM_ROWS * 64)),
        epoch=0,
        num_samples=NUM_ROWS,
        num_tokens=NUM_ROWS * LENGTH,
        num_padding_tokens=0,
        num_supervised_tokens=NUM_ROWS * 64,
        num_images=NUM_ROWS,
        loading=ThreadClock().read(),
        reading=NOT_TIMED,
    )


def cost_us(folder: Path, *, num_steps: int, num_microbatches: int, device: bool) -> float:
    """Return the CPU microseconds per step of everything the loop does to record it."""
    batches = [make_batch()] * num_microbatches
    part = PartWork(num_weights={3: 10**6}, attention_width={3: 64})
    work = ModelWork(vision=part, projector=part, language=part, head=part, window_patches=8)
    count = StepCounter(work=work, patch_size=PATCH, image_token_id=4, pad_token_id=0)
    context = make_context("train", folder)
    facts = TrainingFacts(
        num_steps=num_steps, num_ranks=1, log_every_steps=10**9, peak_flops_per_s=312e12
    )
    reporter = TrainingReporter(
        Progress(context.task_dir, "steps", num_steps), Trackers(TrackersConfig(), context), facts
    )
    clock = Marks() if device else None
    with StepRecorder(
        context.timing_dir, 0, {}, device_clock=clock, peak_flops_per_s=312e12
    ) as recorder:
        start_s = time.thread_time()
        for step in range(num_steps):
            recorder.start_step(step)
            recorder.lap("data_wait_s")
            counts = count(batches)
            recorder.lap("other_s")
            recorder.lap("rank_wait_s", part="rank_wait_data_s")
            for _ in range(num_microbatches):
                recorder.lap("host_to_device_s")
                recorder.lap("forward_s")
                recorder.lap("backward_s")
            recorder.lap("optimizer_s")
            recorder.lap("rank_wait_s")
            recorder.lap("optimizer_s")
            data_wait_s = recorder.seconds_so_far("data_wait_s")
            recorder.lap("rank_wait_s")
            recorder.end_step(counts)
            recorder.add_outcome(OUTCOME)
            reporter(step + 1, OUTCOME, counts, data_wait_s, time.monotonic())
        taken_s = time.thread_time() - start_s
    return 1e6 * taken_s / num_steps


def load_cost_us(folder: Path, num_readings: int) -> float:
    """Return the CPU microseconds per reading of this node's load, without GPUs."""
    sources = find_sources(folder, {"CUDA_VISIBLE_DEVICES": ""})
    sampler = SystemSampler(folder / "node.system", sources, every_s=1.0, metadata={})
    start_s = time.thread_time()
    for _ in range(num_readings):
        sampler.take()
    return 1e6 * (time.thread_time() - start_s) / num_readings


def median_us(repeats: int, cost: Callable[[Path], float]) -> float:
    """Return the median of several measurements, each in a new folder."""
    costs_us = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            costs_us.append(cost(Path(folder)))
    return statistics.median(costs_us)


def main() -> None:
    """Run the benchmark."""
    options = arguments(__doc__)
    num_steps, num_readings, repeats = (500, 50, 3) if options.quick else (3_000, 300, 7)
    rows: list[Row] = []
    for device in (False, True):
        for num_microbatches in (1, 8):
            cost = partial(
                cost_us, num_steps=num_steps, num_microbatches=num_microbatches, device=device
            )
            median_cost_us = median_us(repeats, cost)
            where = "with a device" if device else "on a CPU"
            many = "microbatches" if num_microbatches > 1 else "microbatch"
            case = f"record a step {where}, {num_microbatches} {many} of {NUM_ROWS} samples"
            at_most = GOAL_US if num_microbatches == 1 else None
            rows.append(row(case, "us of the host", median_cost_us, at_most=at_most))
    median_cost_us = median_us(repeats, partial(load_cost_us, num_readings=num_readings))
    rows.append(
        row("read the load of this node", "us of the host", median_cost_us, at_most=LOAD_GOAL_US)
    )
    show(rows, options, ["torch", "numpy"])


if __name__ == "__main__":
    main()
