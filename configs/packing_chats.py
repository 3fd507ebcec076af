"""Chats of unequal length for the recipe `packing`: none to four pictures each, one turn to dozens.

The pictures are the demo's. How many a chat has, and how much is asked about each, is drawn from
skewed distributions, as collected data have them: most chats are short, some are ten times as long.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import recipes
import shapes_demo

from slurm_jobs.base.files import write_text_atomic
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.records.task_context import TaskContext

SHARES = {0: 0.1, 1: 0.5, 2: 0.2, 3: 0.12, 4: 0.08}
"""Of the chats, by how many pictures they have."""
TURNS_LOG_MEAN, TURNS_LOG_SD, MOST_TURNS = 0.5, 0.9, 8
"""Turns about one picture are log-normal, as lengths of chats are, and at least one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatsConfig:
    """How many chats, and how large their pictures are for the model."""

    num_train: int = 20_000
    num_pictures: int = 2_000
    """From which each chat draws its own."""
    image_size: int = 224
    """What pictures are resized to, in pixels; a multiple of 16."""
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what no chats can be made of."""
        if self.num_train < 1:
            message = f"num_train is {self.num_train}: give 1 or more"
            raise ValueError(message)
        if self.num_pictures < max(SHARES):
            message = f"num_pictures is {self.num_pictures}: give {max(SHARES)} or more"
            raise ValueError(message)
        recipes.check_image_size(self.image_size)


def chats(config: Mapping[str, Any], context: TaskContext) -> dict[str, Any]:
    """Write pictures, a processor and `train.jsonl` into the output folder."""
    settings, out_dir = build_config(ChatsConfig, config), context.output_dir
    render = {
        "num_train": settings.num_pictures,
        "num_heldout": 0,
        "max_side_px": 200,
        "seed": settings.seed,
    }
    pictures = recipes.draw_pictures(render, context)["train"]
    shapes_demo.write_processor(out_dir / "processor", settings.image_size)
    rng = random.Random(settings.seed)  # noqa: S311 - chats, not secrets
    rows = []
    for number in range(settings.num_train):
        (num_images,) = rng.choices(list(SHARES), list(SHARES.values()))
        chosen = rng.sample(pictures, num_images)
        row = {
            "id": f"chat-{number:06d}",
            "images": [str(picture.path.relative_to(out_dir)) for picture in chosen],
            "messages": conversation(chosen, rng) if chosen else talk(rng.choice(pictures), rng),
        }
        rows.append(json.dumps(row))
    write_text_atomic(out_dir / "train.jsonl", "".join(f"{row}\n" for row in rows))
    return {"num_train": len(rows), "num_pictures": len(pictures)}


def conversation(
    pictures: Sequence[shapes_demo.Picture], rng: random.Random
) -> list[dict[str, Any]]:
    """Picture after picture, questions about each; its place is before the first of them."""
    turns = []
    for picture in pictures:
        for number, (asked, answered) in enumerate(_questions(picture, rng)):
            turns.append(recipes.turn("user", asked, shown=number == 0))
            turns.append(recipes.turn("assistant", answered))
    return turns


def talk(picture: shapes_demo.Picture, rng: random.Random) -> list[dict[str, Any]]:
    """Without a picture: the questions are about a description."""
    told = [(picture.caption, picture.caption), *_questions(picture, rng)]
    return [
        recipes.turn(role, text)
        for pair in told
        for role, text in zip(("user", "assistant"), pair, strict=True)
    ]


def _questions(picture: shapes_demo.Picture, rng: random.Random) -> list[tuple[str, str]]:
    number = 1 + min(MOST_TURNS - 1, int(rng.lognormvariate(TURNS_LOG_MEAN, TURNS_LOG_SD)))
    known = {recipes.DESCRIBE: picture.caption} | {
        asked: getattr(picture, name) for name, asked in recipes.QUESTIONS.items()
    }
    return [(asked, known[asked]) for asked in rng.choices(list(known), k=number)]
