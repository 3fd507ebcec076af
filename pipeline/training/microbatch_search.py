"""The search for the fewest microbatches of a rank's share of a step that memory has room for.

Forward and backward of the heaviest microbatches of the whole training are really run, from one row
upwards. More rows are tried only where the peaks so far foretell that there is room for them,
because a rank that runs out of memory amid collectives leaves the others waiting. The rank with the
least room decides for all. Nothing is learned by it.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from pipeline.data.batch import Batch
from pipeline.data.dataset import ShardedDataset
from pipeline.data.heaviest import SampleSizes, find_heaviest
from pipeline.data.order import BatchLayout
from pipeline.data.reader import BatchReader
from pipeline.data.reading_plan import ReadingPlan
from pipeline.models import VisionLanguageModel
from pipeline.training import peak_memory
from pipeline.training.batching import plan_reading, read_work_model, steps_to_make
from pipeline.training.less_memory import less_memory
from pipeline.training.optimizer import state_bytes
from pipeline.training.peak_memory import Growth, MemoryUse, extrapolate
from pipeline.training.ranks import Ranks
from pipeline.training.trial import Trial, learn_nothing, leaving_no_trace
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.stage_config.train import TrainConfig

GB = 1e9


class NoRoomError(StageConfigError):
    """Not even a row at a time fits into memory; raised on all ranks alike."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What a search came to, the same on every rank."""

    num_microbatches: int
    num_rows: int
    """Of a microbatch."""
    use: MemoryUse
    """Of the rank with the least room."""
    tried: Mapping[int, float]
    """By number of rows: the peak of the rank with the least room, in bytes."""
    search_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class _Bench:
    """What is tried on this rank."""

    trial: Trial
    plan: ReadingPlan
    """Of the training."""
    heaviest: Mapping[int, Sequence[np.ndarray]]
    """By number of rows, the packs of each of some microbatches."""

    def grow(self, num_rows: int) -> Growth:
        """What the heaviest microbatches of so many rows take beyond what is there; a collective.

        What one leaves behind has to be there while others go on: gradients.

        Raises:
            StageConfigError: they do not fit into the GPU.
        """
        packs, trial = self.heaviest[num_rows], self.trial
        by_rank = trial.ranks.gather(len(packs))
        num_trials = trial.ranks.from_main(max(by_rank, default=0))  # all ranks keep in step
        is_whole = num_rows == self.plan.layout.rank_batch_size
        found = []
        with self._reader(packs) as reader:  # begins again where it has no more
            for _ in range(num_trials):
                (batch,) = next(reader)
                first = self._measure(batch, num_rows, is_last=is_whole)
                # More than two change nothing: gradients are there from the first on.
                found.append(
                    first if is_whole else first.then(self._measure(batch, num_rows, is_last=True))
                )
                left = first.left_bytes
                trial.spread.model.zero_grad()
        return Growth(peak_bytes=max(one.peak_bytes for one in found), left_bytes=left)

    def _reader(self, packs: Sequence[np.ndarray]) -> BatchReader:
        flat, num_rows = np.concatenate(packs), len(packs[0])
        layout = BatchLayout(
            global_batch_size=num_rows, num_lanes=1, num_ranks=1, num_microbatches=1
        )
        own = replace(
            self.plan,
            layout=layout,
            num_packs=len(flat),
            order=lambda _epoch, start, stop: flat[start:stop],
        )
        trial = self.trial
        options = {"needs": trial.needs, "gpu": trial.gpu, "num_threads": 1, "prefetch": 1}
        return BatchReader(trial.dataset, own, rank=0, **options)

    def _measure(self, batch: Batch, num_rows: int, *, is_last: bool) -> Growth:
        trial = self.trial
        work = functools.partial(learn_nothing, batch, is_last=is_last, **trial.way)
        try:
            return peak_memory.measure_growth(work, trial.workplace.device)
        except torch.OutOfMemoryError as error:
            message = (
                f"num_microbatches: auto: rank {trial.ranks.rank} ran out of memory when it "
                f"tried microbatches of {num_rows} rows ({error}); give num_microbatches as a "
                f"number, more than {self.plan.layout.rank_batch_size // num_rows}, or: "
                f"{less_memory(trial.config)}; or raise memory_share"
            )
            raise StageConfigError(message) from error


def search(trial: Trial, capacity_bytes: float) -> Found:
    """Try microbatches of more and more rows; a collective.

    `capacity_bytes` is what this rank's device has.

    Raises:
        NoRoomError: on all ranks, if there is no room for a row at a time.
    """
    begun_s = time.perf_counter()
    bench = _make_bench(trial)
    tried: dict[int, MemoryUse] = {}
    with leaving_no_trace(trial.workplace.device):
        tried = _try_rows(bench, capacity_bytes)
    peak_memory.forget_peaks(trial.workplace.device)
    fitting = [rows for rows, use in tried.items() if use.share <= trial.config.memory_share]
    if not fitting:
        raise NoRoomError(_no_room(trial.config, tried[1]))
    num_rows = max(fitting)
    return Found(
        num_microbatches=bench.plan.layout.rank_batch_size // num_rows,
        num_rows=num_rows,
        use=tried[num_rows],
        tried={rows: use.peak_bytes for rows, use in tried.items()},
        search_s=time.perf_counter() - begun_s,
    )


def _try_rows(bench: _Bench, capacity_bytes: float) -> dict[int, MemoryUse]:
    """What was tried, by number of rows."""
    trial, row_counts = bench.trial, sorted(bench.heaviest)
    device = trial.workplace.device
    # Half of what is to stay free is room to err.
    most_share = (1 + trial.config.memory_share) / 2
    tried: dict[int, MemoryUse] = {}
    for _ in range(2):  # do not count: libraries take memory at their first use, ddp at its second
        bench.grow(row_counts[0])
    state = state_bytes(trial.spread.optimizer, trial.config.optimizer, device.type)
    resident = peak_memory.read_resident(device) + state
    peaks: list[tuple[int, float]] = []
    left = 0.0
    for num_rows in row_counts:
        if peaks:
            ahead = extrapolate(peaks, resident + left, num_rows)
            if num_rows == row_counts[-1]:  # no gradients are there yet when its backward begins
                ahead = max(ahead - left, resident + left)
            use = MemoryUse(peak_bytes=ahead, capacity_bytes=capacity_bytes)
            if _fullest(trial.ranks, use).share > most_share:
                continue
        growth = bench.grow(num_rows)
        left = growth.left_bytes
        peaks.append((num_rows, resident + growth.peak_bytes))
        use = MemoryUse(peak_bytes=peaks[-1][1], capacity_bytes=capacity_bytes)
        tried[num_rows] = _fullest(trial.ranks, use)
    return tried


def _fullest(ranks: Ranks, use: MemoryUse) -> MemoryUse:
    """That of the rank with the least room, on every rank."""
    by_rank = ranks.gather(use)
    found: MemoryUse = ranks.from_main(max(by_rank, key=lambda one: one.share, default=None))
    return found


def _make_bench(trial: Trial) -> _Bench:
    # Into how many pieces it cuts has no influence on what it reads.
    config, model = replace(trial.config, num_microbatches=1), trial.spread.bare
    plan = plan_reading(
        config,
        trial.dataset,
        model=read_work_model(model, trial.dataset),
        ranks=trial.ranks,
        packs_dirs=trial.packs_dirs,
    )
    num_rows = plan.layout.rank_batch_size
    heaviest = find_heaviest(
        plan,
        _sizes(trial.dataset, model),
        rank=trial.ranks.rank,
        num_steps=steps_to_make(config, plan),
        row_counts=[rows for rows in range(1, num_rows + 1) if num_rows % rows == 0],
    )
    return _Bench(trial=trial, plan=plan, heaviest=heaviest)


def _sizes(dataset: ShardedDataset, model: VisionLanguageModel) -> SampleSizes:
    """What a layer keeps for the backward grows with its width, and a tower's with its layers."""
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


def _no_room(config: TrainConfig, use: MemoryUse) -> str:
    return (
        f"num_microbatches: auto: a single row at a time takes {use.peak_bytes / GB:.3g} GB, and "
        f"memory_share ({config.memory_share:g}) leaves "
        f"{use.capacity_bytes * config.memory_share / GB:.3g} GB of a rank's "
        f"{use.capacity_bytes / GB:.3g} GB: {less_memory(config)}; or raise memory_share"
    )
