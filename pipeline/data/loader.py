"""Reader of one rank's batches: augmentation, prefetching and the plan of reads."""

from __future__ import annotations

import dataclasses
import functools
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np
import torch
from PIL import Image, ImageEnhance

from pipeline.data.batch import Batch, BufferPool, ModelNeeds, assemble, refuse_batch
from pipeline.data.dataset import Gathered, ShardedDataset, gather_samples
from pipeline.data.format import DatasetInfo, Sample
from pipeline.data.order import (
    BatchLayout,
    EpochOrder,
    Microbatch,
    WorkOf,
    dealt_order,
    position_at,
    rank_microbatches,
    shuffled_order,
)
from pipeline.data.packing.budget import Packs
from pipeline.timing.thread_clock import ThreadClock
from slurm_jobs.shared.configs.training_parts import AugmentConfig
from slurm_jobs.shared.errors import StageConfigError

if TYPE_CHECKING:
    from typing_extensions import Self


# Random changes of images at reading time: new ones each epoch, the same after a resume.
#
# They depend on the seed, the epoch and the sample's number only, not on ranks, threads or the
# step at which training started.


_AUGMENT_WORD = 2
"""Separates these seeds from those of the order."""
_MAX_STRETCH = 4 / 3
"""Limit of a crop's aspect ratio, as in torchvision's RandomResizedCrop."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Augmentation:
    """Augmentation of a sample's images as the config says."""

    config: AugmentConfig
    seed: int

    def __call__(self, sample: Sample, *, number: int, epoch: int) -> Sample:
        """Return the sample with changed images of the same sizes; tokens stay.

        Args:
            sample: The stored sample.
            number: Its number in the index.
            epoch: The epoch that reads it.
        """
        if not sample.images:
            return sample
        words = [_AUGMENT_WORD, self.seed, epoch, number]
        draw = np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))
        colours = self._draw_colours(draw)
        images = tuple(self._change(image, draw, colours) for image in sample.images)
        return dataclasses.replace(sample, images=images)

    def _draw_colours(self, draw: np.random.Generator) -> list[tuple[Enhancer, float]]:
        """Draw enhancers and factors in random order, the same for all images of a sample."""
        ranges = (
            (ImageEnhance.Brightness, self.config.brightness),
            (ImageEnhance.Contrast, self.config.contrast),
            (ImageEnhance.Color, self.config.saturation),
        )
        factors = [(kind, draw.uniform(1 - most, 1 + most)) for kind, most in ranges]
        order = draw.permutation(len(factors))
        return [factors[i] for i in order if factors[i][1] != 1.0]

    def _change(
        self,
        pixels: np.ndarray,
        draw: np.random.Generator,
        colours: list[tuple[Enhancer, float]],
    ) -> np.ndarray:
        """Return a changed image, uint8 [height, width, 3], of the same size."""
        image = Image.fromarray(pixels)
        box = draw_box(draw, image.size, self.config.min_crop_share)
        if box is not None:
            image = image.resize(image.size, Image.Resampling.BICUBIC, box=box)
        if draw.random() < self.config.mirror_share:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        for kind, factor in colours:
            image = kind(image).enhance(factor)
        return np.asarray(image)


Enhancer = Callable[[Image.Image], ImageEnhance._Enhance]  # noqa: SLF001 - no public base class


def draw_box(
    draw: np.random.Generator, size: tuple[int, int], min_share: float
) -> tuple[float, float, float, float] | None:
    """Draw a crop of `min_share` of the area or more; None for the whole image.

    Drawn as in torchvision's RandomResizedCrop: area uniform, aspect ratio log-uniform.
    """
    share = draw.uniform(min_share, 1.0)
    stretch = np.exp(draw.uniform(-np.log(_MAX_STRETCH), np.log(_MAX_STRETCH)))
    x_share, y_share = draw.random(2)
    if min_share >= 1.0:
        return None
    width, height = size
    cut_width = min(width, width * np.sqrt(share * stretch))
    cut_height = min(height, height * np.sqrt(share / stretch))
    left, top = x_share * (width - cut_width), y_share * (height - cut_height)
    return (left, top, left + cut_width, top + cut_height)


def check_augmentation(config: AugmentConfig, info: DatasetInfo, key: str = "augment") -> None:
    """Refuse changes that would make the tiles of an image inconsistent.

    `key` is the name of the config in messages.

    Raises:
        StageConfigError: images that are stored as tiles would be mirrored or cropped.
    """
    requested = [
        f"{key}.{name} is {value:g}"
        for name, value, unchanged in (
            ("mirror_share", config.mirror_share, 0.0),
            ("min_crop_share", config.min_crop_share, 1.0),
        )
        if value != unchanged
    ]
    if requested and info.image_kind == "tiled":
        message = (
            f"{' and '.join(requested)}: the data set's processor cuts images into tiles, and each "
            "tile would be changed separately, so that the tiles no longer fit together; remove "
            "these settings (brightness, contrast and saturation are allowed)"
        )
        raise StageConfigError(message)


def make_augmentation(config: AugmentConfig, seed: int) -> Augmentation | None:
    """Return the augmentation of a config; None if it changes nothing."""
    return None if config == AugmentConfig() else Augmentation(config=config, seed=seed)


# Iterator over steps whose batches are assembled by threads ahead of time, in order.


class Prefetcher:
    """Iterator over steps, each a list of microbatches; `_submit_step` starts the next one.

    Errors of a thread are raised by the step they belong to. Close it, or use it in a `with`.
    """

    def __init__(self, pool: ThreadPoolExecutor, prefetch: int) -> None:
        """Start to read `prefetch` steps ahead."""
        self._pool = pool
        self._closed = False
        self._waiting: deque[list[Future[Batch]]] = deque()
        for _ in range(max(1, prefetch)):
            self._waiting.append(self._submit_step())

    def _submit_step(self) -> list[Future[Batch]]:
        raise NotImplementedError

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> list[Batch]:
        if self._closed:
            raise StopIteration
        batches = [future.result() for future in self._waiting.popleft()]
        self._waiting.append(self._submit_step())
        return batches

    def peek(self) -> list[Batch] | None:
        """Return the next step if its threads have finished; does not wait.

        None if one of them failed: the step raises that error.
        """
        futures = self._waiting[0] if self._waiting else []
        if not futures or any(not future.done() or future.exception() for future in futures):
            return None
        return [future.result() for future in futures]

    def close(self) -> None:
        """Stop the threads; batches read ahead are dropped."""
        self._closed = True
        self._waiting.clear()
        self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def make_pool(num_threads: int, gpu: torch.device | None) -> ThreadPoolExecutor:
    """Return threads that pin memory for `gpu`; by default they would all open the first GPU."""
    use_gpu = None if gpu is None else functools.partial(torch.cuda.set_device, gpu)
    return ThreadPoolExecutor(num_threads, thread_name_prefix="batch", initializer=use_gpu)


# Data that a training reads, before ranks divide it: packs, their order, their row length.
#
# Pure: from the columns of the index, the packs and numbers of the spec.


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadingPlan:
    """Samples of each pack, and the order of the packs."""

    layout: BatchLayout
    """Sizes in packs."""
    num_packs: int
    """Packs in an epoch."""
    order: EpochOrder
    packs: Packs | None = None
    """None: pack n is sample n."""
    row_length: int | None = None
    """Tokens of a row; None pads a microbatch to its longest."""

    def samples_of(self, pack: int) -> Sequence[int]:
        """Return the numbers of the samples in a pack, in the order of the row."""
        if self.packs is None:
            return (pack,)
        return self.packs.pack(pack).tolist()


def plan_shuffled(num_samples: int, *, seed: int, layout: BatchLayout) -> ReadingPlan:
    """Plan one sample per row, in random order."""
    return ReadingPlan(
        layout=layout, num_packs=num_samples, order=shuffled_order(num_samples, seed)
    )


def plan_grouped(lengths: np.ndarray, *, seed: int, layout: BatchLayout) -> ReadingPlan:
    """Plan one sample per row, with samples of similar length in a batch to reduce padding.

    `lengths` are integers [num_samples].
    """

    def work_of(samples: np.ndarray) -> np.ndarray:
        return lengths[samples].astype(np.float64)

    order = dealt_order(work_of, len(lengths), seed, layout, alike=True)
    return ReadingPlan(layout=layout, num_packs=len(lengths), order=order)


def plan_packed(
    packs: Packs, work_of: WorkOf, *, seed: int, layout: BatchLayout, row_length: int | None
) -> ReadingPlan:
    """Plan several samples per row, with equal work in the lanes of a global batch."""
    return ReadingPlan(
        layout=layout,
        num_packs=len(packs),
        order=dealt_order(work_of, len(packs), seed, layout),
        packs=packs,
        row_length=row_length,
    )


# Batches of one rank, assembled by background threads ahead of time, in order.
#
# Threads, not processes: decoding and copying release the interpreter's lock, and nothing has to
# be pickled.


class BatchReader(Prefetcher):
    """Endless iterator over the steps of one rank: each gives its microbatches as a list.

    The content of a step is a function of the plan and the step alone, so a reader can start at
    any `start_step`. Errors of a background thread (`StageError`, naming shard and key;
    `StageConfigError` where a sample does not fit the levels) are raised by the step they
    belong to. Close it, or use it in a `with`.

    Batches for a `gpu` are in pinned memory, so that it copies them asynchronously.
    """

    def __init__(
        self,
        dataset: ShardedDataset,
        plan: ReadingPlan,
        *,
        rank: int,
        start_step: int = 0,
        needs: ModelNeeds = ModelNeeds(),
        augment: Augmentation | None = None,
        gpu: torch.device | None = None,
        num_threads: int = 2,
        prefetch: int = 4,
    ) -> None:
        """Start to read `prefetch` steps ahead."""
        self._dataset, self._plan, self._rank = dataset, plan, rank
        self._augment, self._needs = augment, needs
        self._pin_memory = gpu is not None
        self._buffers = BufferPool(pin_memory=self._pin_memory)
        self._next_step = start_step
        super().__init__(make_pool(num_threads, gpu), prefetch)

    def _submit_step(self) -> list[Future[Batch]]:
        plan, step = self._plan, self._next_step
        self._next_step = step + 1
        parts = rank_microbatches(step, plan.layout, self._rank, plan.num_packs, plan.order)
        epoch = position_at(step, plan.layout.global_batch_size, plan.num_packs).epoch
        return [self._pool.submit(self._assemble, part, epoch) for part in parts]

    def _assemble(self, part: Microbatch, epoch: int) -> Batch:
        clock = ThreadClock()
        rows = [self._plan.samples_of(pack) for pack in part.packs.tolist()]
        gathered = self._gather(rows, part.epochs.tolist())
        try:
            batch = self._put_together(gathered, [len(row) for row in rows], epoch)
        except ValueError as error:
            refuse_batch(str(self._dataset.files.shared_dir), error)
        return dataclasses.replace(batch, loading=clock.read())

    def _put_together(self, gathered: Gathered, row_sizes: Sequence[int], epoch: int) -> Batch:
        return assemble(
            gathered,
            row_sizes,
            image_token_id=self._dataset.info.image_token_id,
            pad_token_id=self._dataset.info.pad_token_id,
            epoch=epoch,
            buffers=self._buffers,
            length=self._plan.row_length,
            needs=self._needs,
            pin_memory=self._pin_memory,
        )

    def _gather(self, rows: Sequence[Sequence[int]], epochs: Sequence[int]) -> Gathered:
        """Return the samples of all rows; `epochs` has one entry per row."""
        if self._augment is None and not self._needs.original_sizes:
            return self._dataset.gather([number for row in rows for number in row])
        samples = (
            self._sample(number, epoch)
            for row, epoch in zip(rows, epochs, strict=True)
            for number in row
        )
        try:
            return gather_samples(
                samples, self._dataset.rule, with_original_sizes=self._needs.original_sizes
            )
        except ValueError as error:
            refuse_batch(str(self._dataset.files.shared_dir), error)

    def _sample(self, number: int, epoch: int) -> Sample:
        sample = self._dataset.sample(number)
        if self._augment is None:
            return sample
        return self._augment(sample, number=number, epoch=epoch)
