"""Trials of steps: the largest microbatch that fits, and the way of batching that is fastest."""

from __future__ import annotations

import functools
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from torch import nn

from pipeline.data.batch import Batch, ModelNeeds
from pipeline.data.batches.heaviest import SampleSizes, find_heaviest
from pipeline.data.dataset import ShardedDataset
from pipeline.data.loader import BatchReader
from pipeline.data.order import BatchLayout
from pipeline.data.reading_plan import ReadingPlan
from pipeline.models.layouts.image_layout import ImageLayout
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.timing.span_log import SpanLog
from pipeline.train.batches import loss_of, to_device
from pipeline.train.batching import plan_reading, read_work_model, steps_to_make
from pipeline.train.checkpoints.generator_state import rng_state, set_rng_state
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.memory import measured_memory
from pipeline.train.memory.measured_memory import Growth, MemoryUse, extrapolate
from pipeline.train.memory.out_of_memory import less_memory
from pipeline.train.optimizer.optimizers import state_bytes
from pipeline.train.ranks.process_group import Ranks
from pipeline.train.strategies.strategy import ParallelModel, Strategy
from slurm_jobs.shared.configs.train import TrainConfig
from slurm_jobs.shared.errors import DeviceMemoryError, StageConfigError
from slurm_jobs.shared.files import write_json_atomic
from slurm_jobs.shared.regular_files import read_bytes

T = TypeVar("T")

# Passes before a training's first step, to measure time and memory; nothing is learned.


_TRAINED = (
    *("model", "adapters", "quantize", "learn", "levels"),
    *("global_batch_size", "num_lanes", "batching", "seed"),
)
"""Fields of the config that affect passes and checkpoints: none of `MAY_CHANGE`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """Inputs of a trial."""

    config: TrainConfig
    dataset: ShardedDataset
    strategy: Strategy
    parallel: ParallelModel
    needs: ModelNeeds
    """Requirements of model and targets for batches."""
    rank_device: RankDevice
    ranks: Ranks
    num_local_ranks: int
    """Ranks of this node, which share its memory."""
    spans: SpanLog
    packs_dirs: tuple[Path, ...]

    @property
    def way(self) -> dict[str, Any]:
        """Arguments of `learn_nothing` for passing microbatches through the model."""
        return {
            "model": self.parallel.model,
            "layout": self.parallel.bare.layout,
            "strategy": self.strategy,
            "rank_device": self.rank_device,
        }

    def describe(self, *more: str) -> dict[str, Any]:
        """Describe the training, as JSON, to compare with that of a stored choice.

        `more`: Further fields of the config.
        """
        values = asdict(self.config)
        config = {name: values[name] for name in (*_TRAINED, *more)}
        return {"config": config, "dataset": self.dataset.info.fingerprint}

    def plan(self, config: TrainConfig) -> ReadingPlan:
        """Plan the reading of a config."""
        return plan_reading(
            config,
            self.dataset,
            model=read_work_model(self.parallel.bare, self.dataset),
            ranks=self.ranks,
            packs_dirs=self.packs_dirs,
        )

    def reader(self, plan: ReadingPlan, *, rank: int, **options: Any) -> BatchReader:
        """Open a reader that prefetches one step."""
        device = self.rank_device.device
        gpu = device if device.type == "cuda" else None
        return BatchReader(
            self.dataset, plan, rank=rank, needs=self.needs, gpu=gpu, prefetch=1, **options
        )


@contextmanager
def leaving_no_trace(device: torch.device) -> Iterator[None]:
    """Restore the random number generators of `device` (for dropout) at the end of the block."""
    before = rng_state(device)
    try:
        yield
    finally:
        set_rng_state(before)


def learn_nothing(
    batch: Batch,
    *,
    is_last: bool,
    model: nn.Module,
    layout: ImageLayout,
    strategy: Strategy,
    rank_device: RankDevice,
) -> None:
    """Run forward and backward of a microbatch; keep its gradients.

    `model` is that of `ParallelModel`, `layout` its image layout; `is_last` in its step.
    """
    inputs = to_device(batch, rank_device, layout)
    with strategy.microbatch(model, is_last=is_last):
        with strategy.forward_context():
            loss = loss_of(model, inputs)
        loss.backward()


def time_step(
    batches: Sequence[Batch],
    *,
    model: nn.Module,
    layout: ImageLayout,
    strategy: Strategy,
    rank_device: RankDevice,
) -> float:
    """Return seconds of forward and backward; gradients are discarded, nothing is learned.

    `model` is that of `ParallelModel`, `layout` its image layout.
    """
    start_s = time.perf_counter()
    for number, batch in enumerate(batches, start=1):
        learn_nothing(
            batch,
            is_last=number == len(batches),
            model=model,
            layout=layout,
            strategy=strategy,
            rank_device=rank_device,
        )
    if rank_device.device.type == "cuda":
        torch.cuda.synchronize(rank_device.device)  # SYNC: the timed work must have ended
    spent_s = time.perf_counter() - start_s
    model.zero_grad()
    return spent_s


# Search for the fewest microbatches of a rank's share of a step that fit in memory.
#
# Forward and backward of the heaviest microbatches of the whole training are run, from one row
# upwards. More rows are tried only if the peaks so far predict that they fit, because a rank that
# runs out of memory amid collectives blocks the others. The rank with the least room decides for
# all. Nothing is learned.


GB = 1e9


class NoRoomError(StageConfigError):
    """A single row does not fit into memory; raised on all ranks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
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

    trial: Trial
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


def search(trial: Trial, capacity_bytes: float) -> Found:
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
    return Found(
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


# `num_microbatches: auto`: searched for once, and stored next to the checkpoints.
#
# The number changes the last bits of the results, not the samples of a step. So attempts on the
# same number of ranks and the same kind of devices reuse the stored number.


log = logging.getLogger(__name__)

_DECIDE = (
    *("strategy", "accelerate", "sharding", "deterministic", "num_steps", "num_epochs"),
    *("optimizer", "memory_share", "activation_checkpointing", "compile"),
)
"""Fields of the config on which the number depends, too."""


def settle_microbatches(trial: Trial, folder: Path) -> TrainConfig:
    """Return the config with a number of microbatches; a collective if it is searched for.

    `folder` stores it, by kind of batching.

    Raises:
        StageConfigError: a single row does not fit in memory.
    """
    config, ranks = trial.config, trial.ranks
    if config.num_microbatches != "auto":
        return config
    device, file, kind = (
        trial.rank_device.device,
        folder / "microbatches.json",
        config.batching.kind,
    )
    capacity = measured_memory.read_capacity(device, trial.num_local_ranks)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    devices = ranks.gather(f"{name}, {capacity / GB:.1f} GB")
    # what another attempt must have in common
    key = trial.describe(*_DECIDE) | {
        "precision": trial.rank_device.precision,
        "spread": asdict(trial.strategy.facts(trial.parallel)),  # a file of accelerate may change
        "num_ranks": ranks.num_ranks,
        "devices": sorted(set(devices)),
    }
    choices = {}
    if ranks.rank == 0:
        consequence = "num_microbatches is searched for again"
        choices = _read_kept(file, _check_choices, consequence) or {}
    kept = choices.get(kind, {"key": None})
    number = ranks.from_main(kept["num_microbatches"] if kept["key"] == _as_json(key) else None)
    if number is None:
        with trial.spans.span("microbatch_search") as notes:
            result = search(trial, capacity)
            notes |= {"num_microbatches": result.num_microbatches, "batching": kind}
        number, use = result.num_microbatches, result.use
        if ranks.rank == 0:
            write_json_atomic(file, {**choices, kind: {"key": key, **asdict(result)}})
            log.info(
                "num_microbatches: auto takes %s of %s a step on each rank (batching: %s): the "
                "heaviest needs %s of the %s that memory_share allows (%.0f %% of %s); found in "
                "%.1f s",
                f"{number:,} microbatch{'' if number == 1 else 'es'}",
                f"{result.num_rows:,} row{'' if result.num_rows == 1 else 's'}",
                kind,
                _gb_text(use.peak_bytes),
                _gb_text(use.capacity_bytes * config.memory_share),
                100 * config.memory_share,
                _gb_text(use.capacity_bytes),
                result.search_s,
            )
    elif ranks.rank == 0:
        log.info("num_microbatches: auto takes %d, as an earlier attempt found", number)
    return replace(config, num_microbatches=number)


def _check_choices(values: Any) -> dict[str, Any]:
    """Check the fields of the choices, by kind of batching, or raise."""
    return {
        kind: {**choice, "key": choice["key"], "num_microbatches": int(choice["num_microbatches"])}
        for kind, choice in values.items()
    }


def _read_kept(file: Path, check: Callable[[Any], T], consequence: str) -> T | None:
    """Return the checked values of a file; None if it does not exist, or with a warning."""
    try:
        return check(json.loads(read_bytes(file)))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        log.warning("%s is damaged (%r): %s", file, error, consequence)
        return None


def _as_json(values: dict[str, Any]) -> Any:
    """Return the values as they are read back: tuples become lists."""
    return json.loads(json.dumps(values))


def _gb_text(num_bytes: float) -> str:
    """Return `0.0123 GB`, `61.2 GB`, `1,230 GB`: no exponent, whatever the size."""
    size = num_bytes / GB
    return f"{size:,.0f} GB" if size >= 100 else f"{size:.3g} GB"


# `batching.kind: auto`: measures whether packed rows or batches of similar lengths are faster.
#
# Packing saves padding. With a dense mask, attention costs the square of the row instead of the
# samples' squares. Which effect is larger depends on model, lengths and kernel, so both are tried
# on the data. The choice is stored next to the checkpoints, because the order of samples depends
# on it.
#
# With `num_microbatches: auto` each kind is tried with as few microbatches as fit in memory: the
# comparison uses the settings of the training.


_KINDS: tuple[Literal["grouped", "packed"], ...] = ("grouped", "packed")
_NUM_TRIALS = 3
"""Steps of each kind that are timed, alternating, after one warm-up step of each."""


def choose_batching(trial: Trial, folder: Path) -> TrainConfig:
    """Return the config with the chosen kind of batching; equal on every rank.

    `folder` stores the choice. It is measured again if the model, the data or the batches
    change; then no checkpoint can be continued either. Devices, precision, strategy and the
    number of ranks also affect speed, but do not cause a new choice: training can continue from
    its checkpoints with others, and these have one order of samples.
    """
    config = trial.config
    if config.batching.kind != "auto":
        return config
    key, file = _as_json(trial.describe()), folder / "batching.json"

    def check(kept: Any) -> str | None:
        return kept["kind"] if kept["key"] == key and kept["kind"] in _KINDS else None

    kind = None
    if trial.ranks.rank == 0:
        kind = _read_kept(file, check, "the kinds of batching are measured again")
    kind = trial.ranks.from_main(kind)
    if kind is None:
        with leaving_no_trace(trial.rank_device.device):
            rates = _measure(trial, folder)
        kind = max(rates, key=rates.__getitem__)
        if trial.ranks.rank == 0:
            write_json_atomic(file, {"key": key, "kind": kind, "tokens_per_s": rates})
            log.info(
                "batching: auto takes %s (%s)",
                kind, ", ".join(f"{name} {rate:,.0f} tokens/s" for name, rate in rates.items()),
            )  # fmt: skip
    return replace(config, batching=replace(config.batching, kind=kind))


def _measure(trial: Trial, folder: Path) -> dict[str, float]:
    """Return tokens per second of all ranks without padding, by kind: the fastest trial of each.

    Raises:
        NoRoomError: `num_microbatches: auto` has no room for either kind.
    """
    readers: dict[str, BatchReader] = {}
    refused: NoRoomError | None = None
    try:
        for kind in _KINDS:
            try:
                batching = replace(trial.config.batching, kind=kind)
                config = replace(trial.config, batching=batching)
                config = settle_microbatches(replace(trial, config=config), folder)
                readers[kind] = trial.reader(trial.plan(config), rank=trial.ranks.rank)
            except NoRoomError as error:
                refused = error
                if trial.ranks.rank == 0:
                    log.info("batching: auto cannot use %s: %s", kind, error)
        if refused is not None and not readers:
            raise refused
        rates: dict[str, list[float]] = {kind: [] for kind in readers}
        for number in range(1 + _NUM_TRIALS):
            for kind, reader in readers.items():
                batches = next(reader)
                trial.ranks.barrier()
                spent_s = time_step(batches, **trial.way)
                tokens, seconds = trial.ranks.sums([sum(b.num_tokens for b in batches), spent_s])
                if number:
                    rates[kind].append(tokens / (seconds / trial.ranks.num_ranks))
    finally:
        for reader in readers.values():
            reader.close()
    return {kind: max(values) for kind, values in rates.items()}
