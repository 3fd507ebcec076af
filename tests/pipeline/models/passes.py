"""Losses, gradients and prompts of models of transformers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from pipeline.data.batch import Batch
from pipeline.data.disk_format.sample_members import Sample
from pipeline.models.generation import Prompt
from pipeline.models.layouts.image_layout import StoredImages
from pipeline.models.vision_language import VisionLanguageModel
from pipeline.train.device.rank_device import RankDevice
from pipeline.train.training_data.batches import loss_of, to_device
from tests.pipeline.models.conftest import Kind

CPU = RankDevice(device=torch.device("cpu"), precision="fp32", num_compute_threads=1)
SPARE = 5
"""Places that a packed row has more than its samples fill."""


def loss(model: VisionLanguageModel, batch: Batch) -> torch.Tensor:
    return loss_of(model, to_device(batch, CPU, model.layout))


def packed_rows(samples: Sequence[Sample]) -> tuple[list[list[Sample]], int]:
    rows = [[samples[0], samples[1]], [samples[2], samples[3]]]
    return rows, SPARE + max(sum(len(s.input_ids) for s in row) for row in rows)


def gradients(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def prompt_of(kind: Kind, sample: Sample) -> Prompt:
    start = int(np.argmax(sample.labels != -100))
    flat = [image.reshape(-1, 3) for image in sample.images] or [np.empty((0, 3), dtype=np.uint8)]
    sizes = sample.meta["original_sizes"]
    pictures = [(height, width, len(sizes)) for width, height in sizes]
    return Prompt(
        input_ids=sample.input_ids[:start].tolist(),
        images=StoredImages(
            pixels=torch.from_numpy(np.concatenate(flat)),
            sizes=torch.tensor([i.shape[:2] for i in sample.images]).reshape(-1, 2),
            pictures=torch.tensor(pictures).reshape(-1, 3),
        ),
    )
