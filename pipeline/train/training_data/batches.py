"""Counting of the loader's batches, copying to the device, and passing to the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn

from pipeline.data.batch import Batch
from pipeline.data.batches.batch_work import count_work
from pipeline.data.batches.learned_targets import ClassPlaces, TargetGroups
from pipeline.data.disk_format.dataset_info import DatasetInfo
from pipeline.models.attention_kernels.packed_rows import Packing
from pipeline.models.computation.model_work import read_work
from pipeline.models.layouts.image_layout import ImageLayout, StoredImages, VisionInputs
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.timing.flops import ModelWork, WorkCounts, model_flops
from pipeline.timing.recorder import StepCounts
from pipeline.timing.thread_clock import add_up
from pipeline.train.device.rank_device import RankDevice


@dataclass(frozen=True, kw_only=True, slots=True)
class StepCounter:
    """Counts the contents of a step's microbatches, and their work for the model."""

    work: ModelWork
    """Work of the model, for the parameters trained in this phase."""
    patch_size: int
    image_token_id: int
    pad_token_id: int

    def __call__(self, batches: Sequence[Batch]) -> StepCounts:
        """Return the counts of one step on this rank."""
        works = [self._work_of(batch) for batch in batches]
        loading = add_up(batch.loading for batch in batches)
        return StepCounts(
            epoch=batches[0].epoch,
            num_microbatches=len(batches),
            num_samples=sum(b.num_samples for b in batches),
            num_tokens=sum(b.num_tokens for b in batches),
            num_padding_tokens=sum(b.num_padding_tokens for b in batches),
            num_supervised_tokens=sum(b.num_supervised_tokens for b in batches),
            num_images=sum(b.num_images for b in batches),
            num_image_tokens=sum(work.num_image_tokens for work in works),
            model_flops=sum(model_flops(self.work, work) for work in works),
            loader_s=loading.wall_s,
            loader_cpu_s=loading.cpu_s,
            loader_core_wait_s=loading.core_wait_s,
            loader_read_blocked_s=add_up(batch.reading for batch in batches).blocked_s,
        )

    def _work_of(self, batch: Batch) -> WorkCounts:
        return count_work(
            batch,
            patch_size=self.patch_size,
            image_token_id=self.image_token_id,
            pad_token_id=self.pad_token_id,
            window_patches=self.work.window_patches,
            window_tokens=self.work.window_tokens,
        )


def make_counter(model: VisionLanguageModel, data: DatasetInfo) -> StepCounter:
    """Make a counter for a model with its currently trained parameters, and a data set."""
    return StepCounter(
        work=read_work(model),
        patch_size=model.patch_size,
        image_token_id=data.image_token_id,
        pad_token_id=data.pad_token_id,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelInputs:
    """Microbatch on the device: the arguments of `VisionLanguageModel.forward`."""

    input_ids: torch.Tensor
    """int64 [num_rows, length]."""
    supervised: torch.Tensor
    """int64 [num_supervised]."""
    targets: torch.Tensor
    """int64 [num_supervised]."""
    vision: VisionInputs
    """Empty without an image."""
    image_places: torch.Tensor | None
    """int64 [num_image_tokens]; None without an image."""
    position_ids: torch.Tensor | None
    """None if positions simply count the tokens of one sample per row."""
    packing: Packing
    groups: TargetGroups | None
    """Of the targets; None if all are summed."""
    classes: Mapping[int, ClassPlaces]
    """Targets by level that has a classifier head."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Copied:
    """Microbatch on the device; images are not yet in the model's layout."""

    inputs: ModelInputs
    """Without `vision`; `packing` has the dtype of no computation yet."""
    images: StoredImages | None
    """Pixels are on the device, sizes on the host."""


def copy_batch(batch: Batch, device: torch.device) -> Copied:
    """Queue the copies of the model's inputs; the batch is kept until they are done.

    No SYNC: the reader pins memory for a GPU, which then copies asynchronously.
    """

    def move(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(device, non_blocking=True)

    images = None
    if batch.num_images:
        images = StoredImages(
            pixels=move(batch.pixels),
            sizes=batch.image_sizes,
            pictures=batch.pictures,
        )
    learned = batch.learned
    groups = learned.groups
    if groups is not None:
        groups = groups._replace(of_targets=move(groups.of_targets))
    counts_on = batch.position_ids.ndim == 2 and not batch.is_packed
    inputs = ModelInputs(
        input_ids=move(batch.input_ids),
        supervised=move(learned.places),
        targets=move(learned.targets),
        vision={},
        image_places=None if batch.image_places is None else move(batch.image_places),
        position_ids=None if counts_on else move(batch.position_ids),
        packing=Packing(
            bounds=move(batch.segment_bounds) if batch.is_packed else None,
            lengths=tuple(batch.segment_bounds.diff().tolist()),
            dtype=torch.float32,
        ),
        groups=groups,
        classes={
            level: (move(places), move(classes))
            for level, (places, classes) in learned.classes.items()
        },
    )
    return Copied(inputs=inputs, images=images)


def arrange(copied: Copied, rank_device: RankDevice, layout: ImageLayout) -> ModelInputs:
    """Return the model's inputs, computed on the device."""
    inputs, images = copied.inputs, copied.images
    return replace(
        inputs,
        vision={} if images is None else layout.arrange(images, rank_device.dtype),
        packing=replace(inputs.packing, dtype=rank_device.dtype),
    )


def to_device(batch: Batch, rank_device: RankDevice, layout: ImageLayout) -> ModelInputs:
    """Copy and arrange."""
    return arrange(copy_batch(batch, rank_device.device), rank_device, layout)


def losses_of(model: nn.Module, inputs: ModelInputs) -> torch.Tensor:
    """Return the loss summed over each group's targets, in nats: float32 [num_groups].

    `model` is a `VisionLanguageModel`, or a wrapper with the same call.
    """
    losses: torch.Tensor = model(
        input_ids=inputs.input_ids,
        supervised=inputs.supervised,
        targets=inputs.targets,
        vision=inputs.vision,
        image_places=inputs.image_places,
        position_ids=inputs.position_ids,
        packing=inputs.packing,
        groups=inputs.groups,
        classes=inputs.classes,
    )
    return losses


def loss_of(model: nn.Module, inputs: ModelInputs) -> torch.Tensor:
    """Return the loss summed over all groups: float32 scalar."""
    return losses_of(model, inputs).sum()
