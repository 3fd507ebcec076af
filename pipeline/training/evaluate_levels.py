"""Held-out samples with chained targets: each level sees the model's own previous answers.

As in use: the manifest's answers are used only for the comparison.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import torch

from pipeline.data.batch import collate
from pipeline.data.buffers import BufferPool
from pipeline.data.gathered import image_rule
from pipeline.data.sample_format import IGNORED_LABEL, Sample
from pipeline.models import DataFacts, VisionLanguageModel
from pipeline.preprocess.encode import EncodedPrompt, SampleEncoder
from pipeline.preprocess.rejects import SampleRejectedError
from pipeline.training.batches import to_device
from pipeline.training.device import Workplace
from pipeline.training.prompts import to_prompt
from slurm_jobs.common.manifests.rows import Content, ManifestRow, Message
from slurm_jobs.common.stage_config.levels import LevelConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Asker:
    """Model with levels, and the encoding of rows as its prompts."""

    model: VisionLanguageModel
    """In eval mode, and not sharded."""
    levels: Sequence[LevelConfig]
    encoder: SampleEncoder
    facts: DataFacts
    workplace: Workplace
    max_new_tokens: int

    def ask(self, level: int, prompts: Sequence[EncodedPrompt]) -> list[str]:
        """Return the model's answers at one level."""
        if not prompts:
            return []
        if self.levels[level].head == "text":
            return self.generate(prompts)
        told = tell_classes(self, level, prompts)
        return [self.levels[level].classes[number] for number in told]

    def generate(self, prompts: Sequence[EncodedPrompt]) -> list[str]:
        """Return the model's answers as text."""
        asked = [to_prompt(prompt) for prompt in prompts]
        said = self.model.generate(asked, max_new_tokens=self.max_new_tokens)
        decode = self.encoder.chat.tokenizer.decode
        return [decode(answer, skip_special_tokens=True).strip() for answer in said]


@dataclass(frozen=True, kw_only=True, slots=True)
class LevelAnswer:
    """Answer of a model at one level of a row."""

    reference: str
    generated: str
    """Empty if the row, with the previous answers, is too long."""
    exact: bool = field(init=False)

    def __post_init__(self) -> None:
        """Compare."""
        object.__setattr__(self, "exact", self.generated == self.reference)


def ask_chains(asker: Asker, rows: Sequence[ManifestRow]) -> list[dict[str, LevelAnswer]]:
    """Return the answers to some rows by name of the level; each row has a valid first level."""
    chains: list[dict[str, LevelAnswer]] = [{} for _ in rows]
    for level, config in enumerate(asker.levels):
        prompts: dict[int, EncodedPrompt] = {}
        for number, row in enumerate(rows):
            before = [answer.generated for answer in chains[number].values()]
            with suppress(SampleRejectedError):  # the previous answers may be of any length
                prompts[number] = asker.encoder.encode_prompt(row_up_to(row, level, before))
        said = dict(zip(prompts, asker.ask(level, list(prompts.values())), strict=True))
        for number, row in enumerate(rows):
            chains[number][config.name] = LevelAnswer(
                reference=_turns(row)[level].text.strip(), generated=said.get(number, "")
            )
    return chains


def first_level(row: ManifestRow, levels: Sequence[LevelConfig]) -> ManifestRow:
    """Return the row up to its first answer.

    Raises:
        SampleRejectedError: it has more or fewer answers than there are levels, or an answer
            that is not one of its level's classes.
    """
    turns = _turns(row)
    if len(turns) != len(levels):
        message = f"{row.origin}: {len(turns)} assistant turns, and there are {len(levels)} levels"
        raise SampleRejectedError(reason="bad_row", message=message)
    for level, turn in zip(levels, turns, strict=True):
        answer = turn.text.strip()
        if level.head == "classes" and answer not in level.classes:
            message = (
                f"{row.origin}, level {level.name}: the answer {answer!r} is none of the "
                f"{len(level.classes)} classes"
            )
            raise SampleRejectedError(reason="bad_row", message=message)
    return row_up_to(row, 0, ())


def _turns(row: ManifestRow) -> list[Message]:
    return [message for message in row.messages if message.role == "assistant"]


def row_up_to(row: ManifestRow, level: int, answers: Sequence[str]) -> ManifestRow:
    """Return the row up to its assistant turn `level`, with other answers in the previous turns."""
    turns = [n for n, message in enumerate(row.messages) if message.role == "assistant"]
    messages = list(row.messages[: turns[level] + 1])
    for turn, answer in zip(turns[:level], answers, strict=True):
        said = (Content(kind="text", value=answer),)
        messages[turn] = dataclasses.replace(messages[turn], content=said)
    return dataclasses.replace(row, messages=tuple(messages))


@torch.inference_mode()
def tell_classes(asker: Asker, level: int, prompts: Sequence[EncodedPrompt]) -> list[int]:
    """Return the likeliest class of each prompt."""
    model = asker.model
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
        rule=image_rule(asker.facts.info),
        needs=model.layout.needs,
        image_token_id=asker.facts.info.image_token_id,
        pad_token_id=asker.facts.info.pad_token_id,
        epoch=0,
        buffers=BufferPool(pin_memory=False),
    )
    inputs = to_device(batch, asker.workplace, model.layout)
    hidden, _ = model.hidden_states(
        inputs.input_ids, inputs.vision, inputs.position_ids, image_places=inputs.image_places
    )
    rows = torch.arange(len(prompts), device=hidden.device)
    lasts = torch.tensor([len(prompt.input_ids) - 1 for prompt in prompts], device=hidden.device)
    logits = model.class_logits(level, hidden[rows, lasts])
    told: list[int] = logits.argmax(-1).tolist()  # SYNC: the answers come to the host
    return told
