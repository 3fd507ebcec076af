"""Held-out samples with chained targets: each level asked with the model's own answers before it.

As in use: what the manifest says of a level is seen by nobody but the comparison.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from pipeline.data.batch import collate
from pipeline.data.buffers import BufferPool
from pipeline.data.gathered import ImageRule
from pipeline.data.sample_format import IGNORED_LABEL, Sample
from pipeline.models import VisionLanguageModel
from pipeline.preprocess.encode import EncodedPrompt, SampleEncoder
from pipeline.preprocess.manifest_rows import Content, ManifestRow
from pipeline.preprocess.rejects import SampleRejectedError
from pipeline.training.batches import to_device
from pipeline.training.device import Workplace
from slurm_jobs.common.stage_config.levels import LevelConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelAnswers:
    """What a model says of one row, level by level."""

    references: tuple[str, ...]
    answers: tuple[str, ...]

    @property
    def exact(self) -> tuple[bool, ...]:
        """Of each level."""
        pairs = zip(self.answers, self.references, strict=True)
        return tuple(answer == reference for answer, reference in pairs)


def row_up_to(row: ManifestRow, level: int, answers: Sequence[str]) -> ManifestRow:
    """The row up to its assistant's turn number `level`, with other answers in those before.

    Raises:
        SampleRejectedError: it has fewer turns.
    """
    turns = [n for n, message in enumerate(row.messages) if message.role == "assistant"]
    if len(turns) <= level:
        message = f"{row.origin}: {len(turns)} assistant turns, and level {level + 1} is asked for"
        raise SampleRejectedError(reason="levels", message=message)
    messages = list(row.messages[: turns[level] + 1])
    for turn, answer in zip(turns[:level], answers, strict=True):
        said = (Content(kind="text", value=answer),)
        messages[turn] = dataclasses.replace(messages[turn], content=said)
    return dataclasses.replace(row, messages=tuple(messages))


@torch.inference_mode()
def tell_classes(
    model: VisionLanguageModel,
    level: int,
    prompts: Sequence[EncodedPrompt],
    *,
    rule: ImageRule,
    pad_token_id: int,
    workplace: Workplace,
) -> list[int]:
    """The likeliest class of each prompt; `model` is in eval mode, and whole."""
    samples = [
        Sample(
            key=prompt.key,
            input_ids=prompt.input_ids,
            labels=np.full_like(prompt.input_ids, IGNORED_LABEL),
            images=prompt.images,
            meta={"original_sizes": prompt.original_sizes},
        )
        for prompt in prompts
    ]
    batch = collate(
        [[sample] for sample in samples],
        rule=rule,
        needs=model.layout.needs,
        pad_token_id=pad_token_id,
        epoch=0,
        buffers=BufferPool(pin_memory=False),
    )
    inputs = to_device(batch, workplace, model.layout)
    hidden, _ = model.hidden_states(inputs.input_ids, inputs.vision, inputs.position_ids)
    lasts = torch.tensor([len(prompt.input_ids) - 1 for prompt in prompts], device=hidden.device)
    before = hidden[torch.arange(len(prompts), device=hidden.device), lasts]
    found: list[int] = model.class_logits(level, before).argmax(-1).tolist()  # SYNC
    return found


def summarise_levels(
    levels: Sequence[LevelConfig], found: Sequence[LevelAnswers]
) -> dict[str, Any]:
    """By level, and of all levels of a sample together: the share of exact answers."""
    exact = [answers.exact for answers in found]
    shares = {
        level.name: sum(row[number] for row in exact) / len(exact) if exact else None
        for number, level in enumerate(levels)
    }
    return {"levels": shares, "all_levels": sum(map(all, exact)) / len(exact) if exact else None}


def encode_level(
    encoder: SampleEncoder,
    rows: Sequence[tuple[ManifestRow, Sequence[str]]],
    level: int,
) -> Iterator[EncodedPrompt | SampleRejectedError]:
    """The prompt of each row up to a level, with the answers so far; or why there is none."""
    for row, answers in rows:
        try:
            yield encoder.encode_prompt(row_up_to(row, level, answers))
        except SampleRejectedError as error:
            yield error
