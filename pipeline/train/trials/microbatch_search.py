"""Search for the fewest microbatches of a rank's share of a step that fit in memory.

Forward and backward of the heaviest microbatches of the whole training are run, from one row
upwards. More rows are tried only if the peaks so far predict that they fit, because a rank that
runs out of memory amid collectives blocks the others. The rank with the least room decides for
all. Nothing is learned.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from pipeline.data.batch import Batch
from pipeline.data.batches.heaviest import SampleSizes, find_heaviest
from pipeline.data.dataset import ShardedDataset
from pipeline.data.order import BatchLayout
from pipeline.data.reading_plan import ReadingPlan
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.memory import measured_memory
from pipeline.train.memory.measured_memory import Growth, MemoryUse, extrapolate
from pipeline.train.memory.out_of_memory import less_memory
from pipeline.train.optimizer.optimizers import state_bytes
from pipeline.train.training_data.batching import steps_to_make
from pipeline.train.trials.trial import TrialInputs
from pipeline.train.trials.trial_passes import learn_nothing, leaving_no_trace
from slurm_jobs.base.errors import DeviceMemoryError

GB = 1e9


class NoRoomError(DeviceMemoryError):
    """A single row does not fit into memory; raised on all ranks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MicrobatchChoice:
    """Result of a search, equal on every rank."""

    num_microbatches: int
    num_rows: int
    """Rows of a microbatch."""
    use: MemoryUse
    """Memory of the rank with the least room."""
    tried: Mapping[int, float]
    """Peak bytes of the rank with the least room, by number of rows."""
    search_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class _Bench:
    """Inputs of the trials on this rank."""

    trial: TrialInputs
    plan: ReadingPlan
    """Plan of the training."""
    heaviest: Mapping[int, Sequence[np.ndarray]]
    """Packs of the heaviest microbatches, by number of rows."""

    def grow(self, num_rows: int) -> Growth:
        """Return the extra memory of the heaviest microbatches of this many rows; a collective.

        State that one leaves, such as gradients, must exist while others run.

        Raises:
            DeviceMemoryError: they do not fit into the GPU.
        """
        packs, trial = self.heaviest[num_rows], self.trial
        by_rank = trial.ranks.gather(len(packs))
        num_trials = trial.ranks.from_main(max(by_rank, default=0))  # all ranks keep in step
        is_whole = num_rows == self.plan.layout.rank_batch_size
        flat = np.concatenate(packs)
        layout = BatchLayout(
            global_batch_size=num_rows, num_lanes=1, num_ranks=1, num_microbatches=1
        )
        plan = replace(
            self.plan,
            layout=layout,
            num_packs=len(flat),
            order=lambda _epoch, start, stop: flat[start:stop],
        )
        peaks = []
        with trial.reader(plan, rank=0, num_threads=1) as reader:  # starts again at its end
            for _ in range(num_trials):
                (batch,) = next(reader)
                growth = first = self._measure(batch, num_rows, is_last=is_whole)
                if not is_whole:
                    # More than two change nothing: gradients exist from the first on.
                    growth = first.then(self._measure(batch, num_rows, is_last=True))
                peaks.append(growth.peak_bytes)
                trial.parallel.model.zero_grad()
        return Growth(peak_bytes=max(peaks), left_bytes=first.left_bytes)

    def _measure(self, batch: Batch, num_rows: int, *, is_last: bool) -> Growth:
        trial = self.trial
        work = functools.partial(learn_nothing, batch, is_last=is_last, **trial.way)
        try:
            return measured_memory.measure_growth(work, trial.rank_device.device)
        except torch.OutOfMemoryError as error:
            message = (
                f"num_microbatches: auto: rank {trial.ranks.rank} ran out of memory when it "
                f"tried microbatches of {num_rows} rows ({error}); set num_microbatches to a "
                f"number above {self.plan.layout.rank_batch_size // num_rows}, or: "
                f"{less_memory(trial.config)}; or raise memory_share"
            )
            raise DeviceMemoryError(message) from error


def search(trial: TrialInputs, capacity_bytes: float) -> MicrobatchChoice:
    """Try microbatches of increasing rows; a collective.

    `capacity_bytes` is that of this rank's device.

    Raises:
        NoRoomError: on all ranks, if a single row does not fit.
    """
    begun_s = time.perf_counter()
    # The number of pieces has no influence on what it reads.
    config, model = replace(trial.config, num_microbatches=1), trial.parallel.bare
    plan = trial.plan(config)
    most_rows = plan.layout.rank_batch_size
    heaviest = find_heaviest(
        plan,
        _sizes(trial.dataset, model),
        rank=trial.ranks.rank,
        num_steps=steps_to_make(config, plan),
        row_counts=[rows for rows in range(1, most_rows + 1) if most_rows % rows == 0],
    )
    with leaving_no_trace(trial.rank_device.device):
        tried = _try_rows(_Bench(trial=trial, plan=plan, heaviest=heaviest), capacity_bytes)
    measured_memory.forget_peaks(trial.rank_device.device)
    memory_share = config.memory_share
    fitting = [rows for rows, use in tried.items() if use.share <= memory_share]
    if not fitting:
        use = tried[1]
        message = (
            f"num_microbatches: auto: a single row takes {use.peak_bytes / GB:.3g} GB, but "
            f"memory_share ({memory_share:g}) allows {use.capacity_bytes * memory_share / GB:.3g} "
            f"GB of a rank's {use.capacity_bytes / GB:.3g} GB: {less_memory(trial.config)}; or "
            "raise memory_share"
        )
        raise NoRoomError(message)
    num_rows = max(fitting)
    return MicrobatchChoice(
        num_microbatches=most_rows // num_rows,
        num_rows=num_rows,
        use=tried[num_rows],
        tried={rows: use.peak_bytes for rows, use in tried.items()},
        search_s=time.perf_counter() - begun_s,
    )


def _try_rows(bench: _Bench, capacity_bytes: float) -> dict[int, MemoryUse]:
    """Return the memory of each tried number of rows, on the rank with the least room."""
    trial, row_counts = bench.trial, sorted(bench.heaviest)
    device = trial.rank_device.device

    def fullest(peak_bytes: float) -> MemoryUse:
        use = MemoryUse(peak_bytes=peak_bytes, capacity_bytes=capacity_bytes)
        by_rank = trial.ranks.gather(use)
        largest: MemoryUse = trial.ranks.from_main(
            max(by_rank, key=lambda use: use.share, default=None)
        )
        return largest

    # Half of the reserved memory is a margin for error.
    most_share = (1 + trial.config.memory_share) / 2
    tried: dict[int, MemoryUse] = {}
    for _ in range(2):  # not counted: libraries allocate at their first use, ddp at its second
        bench.grow(row_counts[0])
    state = state_bytes(trial.parallel.optimizer, trial.config.optimizer, device.type)
    resident = measured_memory.read_resident(device) + state
    peaks: list[tuple[int, float]] = []
    left = 0.0
    for num_rows in row_counts:
        if peaks:
            ahead = extrapolate(peaks, resident + left, num_rows)
            if num_rows == row_counts[-1]:  # no gradients exist yet when its backward pass begins
                ahead = max(ahead - left, resident + left)
            if fullest(ahead).share > most_share:
                continue
        growth = bench.grow(num_rows)
        left = growth.left_bytes
        peaks.append((num_rows, resident + growth.peak_bytes))
        tried[num_rows] = fullest(peaks[-1][1])
    return tried


def _sizes(dataset: ShardedDataset, model: VisionLanguageModel) -> SampleSizes:
    """Weigh samples: a layer's saved activations grow with its width, a tower's with its layers."""
    info, whole = dataset.info, dataset.index.whole
    if info.image_height is not None and info.image_width is not None:
        num_pixels = whole("num_images").astype(np.int64) * info.image_height * info.image_width
    else:
        num_pixels = whole("num_pixels")
    vision, language = (tower.num_layers * tower.hidden_size for tower in model.sizes())
    return SampleSizes(
        num_tokens=whole("num_tokens"),
        num_learned=whole("num_supervised_tokens"),
        num_pixels=num_pixels,
        tokens_per_pixel=vision / language / model.patch_size**2,
    )
