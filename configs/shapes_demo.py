"""The demo's own data: pictures of one shape each, their captions, and a small processor.

`render` is the entry point of the demo's first stage. It writes pictures as a
camera roll has them (JPEG and PNG, many sizes, some turned by EXIF, a few
broken), two manifests of chat messages, and a processor folder whose tokenizer
is trained on the captions. Nothing is fetched from anywhere.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw

from slurm_jobs.base.files import write_json_atomic, write_text_atomic
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.records.progress_file import Progress
from slurm_jobs.formats.records.task_context import TaskContext

SIZES = {"small": (0.36, 0.44), "big": (0.66, 0.80)}
"""Width of the shape as a share of the picture's shorter side, so that resizing keeps the word."""
COLOURS = {
    "red": (215, 40, 40),
    "green": (40, 165, 60),
    "blue": (45, 75, 215),
    "yellow": (235, 215, 50),
    "purple": (150, 55, 190),
    "cyan": (60, 205, 220),
}
_ARM = 0.3
OUTLINES = {
    "square": ((-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8)),
    "bar": ((-1, -_ARM), (1, -_ARM), (1, _ARM), (-1, _ARM)),
    "cross": (
        *((-_ARM, -1), (_ARM, -1), (_ARM, -_ARM), (1, -_ARM), (1, _ARM), (_ARM, _ARM)),
        *((_ARM, 1), (-_ARM, 1), (-_ARM, _ARM), (-1, _ARM), (-1, -_ARM), (-_ARM, -_ARM)),
    ),
}
"""Corners around (0, 0), for a radius of 1."""
SHAPES = ("ring", *OUTLINES)
CAPTIONS = tuple(product(SIZES, COLOURS, SHAPES))
"""Every (size, colour, shape): 48 of them."""

QUESTION = "Describe"
IMAGE_SIZE, PATCH_SIZE = 64, 16
MAX_ASPECT = 1.25
MAX_SHIFT = 0.12
"""How far from the middle of the picture the shape may lie, as a share of the side."""
BREAKAGES = ("truncated", "empty", "text", "missing")
_EXIF_ORIENTATION = 0x0112
_TURN = Image.Transpose
_UNDO_TURN = {3: _TURN.ROTATE_180, 6: _TURN.ROTATE_90, 8: _TURN.ROTATE_270}
"""EXIF orientation -> the turn that a camera held that way has applied to the stored pixels."""

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{% if message['role'] == 'user' %}<|user|>"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}"
    "{% elif message['role'] == 'system' %}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{{ part['text'] }}{% endfor %}{% endif %}"
    "{% elif message['role'] == 'assistant' %}<|assistant|>{% generation %}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}{{ part['text'] }}{% endfor %}{% endif %}"
    "<|end|>{% endgeneration %}{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SPECIAL_TOKENS = ("<|pad|>", "<|end|>", "<|user|>", "<|assistant|>", "<image>")


@dataclass(frozen=True, kw_only=True, slots=True)
class RenderConfig:
    """What the `render` stage may be told."""

    num_train: int = 10_000
    num_heldout: int = 240
    num_broken: int = 12
    """How many of the training pictures are broken on purpose; each breakage in turn."""
    min_side_px: int = 48
    max_side_px: int = 400
    seed: int = 0
    num_threads: int = 2

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be rendered."""
        if not 0 <= self.num_broken <= self.num_train:
            message = f"num_broken is {self.num_broken}: give 0 to num_train ({self.num_train})"
            raise ValueError(message)
        if not 16 <= self.min_side_px <= self.max_side_px:
            message = f"sides of {self.min_side_px} to {self.max_side_px} px: give 16 or more"
            raise ValueError(message)


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """One picture to be rendered: everything about it but its pixels."""

    path: Path
    size: str
    colour: str
    shape: str
    seed: str
    breakage: str | None = None

    @property
    def caption(self) -> str:
        """The answer that the model is to give: `a small red ring`."""
        return f"a {self.size} {self.colour} {self.shape}"


def render(config: Mapping[str, Any], context: TaskContext) -> dict[str, Any]:
    """Write `train.jsonl`, `heldout.jsonl`, `images/` and `processor/` into the output folder.

    The same config gives the same bytes. A manifest appears only after all of
    its pictures are there.
    """
    settings = build_config(RenderConfig, config)
    out_dir = context.output_dir
    splits = {
        "train": plan_pictures(settings, out_dir, "train", settings.num_train, settings.num_broken),
        "heldout": plan_pictures(settings, out_dir, "heldout", settings.num_heldout, 0),
    }
    write_processor(out_dir / "processor")
    progress = Progress(context.task_dir, "pictures", sum(map(len, splits.values())))
    num_done = 0
    for split, pictures in splits.items():
        (out_dir / "images" / split).mkdir(parents=True, exist_ok=True)
        for _ in _render_all(pictures, settings):
            num_done += 1
            progress.update(num_done)
        rows = (json.dumps(manifest_row(picture, out_dir)) for picture in pictures)
        write_text_atomic(out_dir / f"{split}.jsonl", "".join(f"{row}\n" for row in rows))
    return {
        "num_train": settings.num_train,
        "num_heldout": settings.num_heldout,
        "num_broken": settings.num_broken,
        "num_captions": len(CAPTIONS),
    }


def plan_pictures(
    config: RenderConfig, out_dir: Path, split: str, num_pictures: int, num_broken: int
) -> list[Picture]:
    """The pictures of a split: captions equally often, broken ones spread evenly.

    The seed of a picture names its split, so that no held-out picture is a training picture.
    """
    broken = {
        (2 * i + 1) * num_pictures // (2 * num_broken): BREAKAGES[i % len(BREAKAGES)]
        for i in range(num_broken)
    }
    pictures = []
    for index in range(num_pictures):
        size, colour, shape = CAPTIONS[index % len(CAPTIONS)]
        breakage = broken.get(index)
        suffix = ".jpg" if index % 3 or breakage else ".png"
        pictures.append(
            Picture(
                path=out_dir / "images" / split / f"{index:06d}{suffix}",
                size=size,
                colour=colour,
                shape=shape,
                seed=f"{config.seed}/{split}/{index}",
                breakage=breakage,
            )
        )
    return pictures


def manifest_row(picture: Picture, out_dir: Path) -> dict[str, Any]:
    """One line of a manifest: an image and a conversation about it."""
    return {
        "id": f"{picture.path.parent.name}-{picture.path.stem}",
        "images": [str(picture.path.relative_to(out_dir))],
        "messages": [
            {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": QUESTION}]},
            {"role": "assistant", "content": [{"type": "text", "text": picture.caption}]},
        ],
    }


def draw(picture: Picture, config: RenderConfig) -> Image.Image:
    """The picture itself: one shape on a muted, slightly scratched background."""
    rng = random.Random(picture.seed)  # noqa: S311 - pictures, not secrets
    height = round(config.min_side_px * (config.max_side_px / config.min_side_px) ** rng.random())
    aspect = math.exp(rng.uniform(-1, 1) * math.log(MAX_ASPECT))
    width = max(config.min_side_px, min(config.max_side_px, round(height * aspect)))
    grey = rng.randint(25, 110)
    background = tuple(grey + rng.randint(-12, 12) for _ in range(3))
    image = Image.new("RGB", (width, height), background)
    canvas = ImageDraw.Draw(image)
    for _ in range(3):
        line = [rng.random() * side for side in (width, height, width, height)]
        canvas.line(line, fill=tuple(c + 18 for c in background), width=max(1, width // 64))
    radius = rng.uniform(*SIZES[picture.size]) * min(width, height) / 2
    centre = tuple(_place(side, radius, rng) for side in (width, height))
    fill = tuple(max(0, min(255, c + rng.randint(-18, 18))) for c in COLOURS[picture.colour])
    if picture.shape == "ring":
        canvas.circle(centre, radius, outline=fill, width=max(2, round(0.4 * radius)))
    else:
        corners = OUTLINES[picture.shape]
        canvas.polygon([(centre[0] + radius * x, centre[1] + radius * y) for x, y in corners], fill)
    return image


def _place(side: int, radius: float, rng: random.Random) -> float:
    """Where along a side of the picture the shape's middle lies: near the middle, never cut off."""
    room = min(side / 2 - radius, MAX_SHIFT * side)
    return side / 2 + rng.uniform(-room, room)


def _render_all(pictures: list[Picture], config: RenderConfig) -> Iterator[None]:
    with ThreadPoolExecutor(config.num_threads) as pool:
        yield from pool.map(lambda picture: _save(picture, config), pictures, chunksize=64)


def _save(picture: Picture, config: RenderConfig) -> None:
    """Write one picture; a broken one as its breakage says."""
    instead = {"empty": "", "text": "404 not found\n"}
    if picture.breakage in instead:
        picture.path.write_text(instead[picture.breakage])
    if picture.breakage in (*instead, "missing"):
        return
    image = draw(picture, config)
    if picture.path.suffix == ".png":
        image.save(picture.path, compress_level=1)
        return
    rng = random.Random(f"{picture.seed}/camera")  # noqa: S311 - pictures, not secrets
    orientation = rng.choice(tuple(_UNDO_TURN)) if rng.random() < 0.15 else 1
    exif = Image.Exif()
    if orientation != 1:
        image = image.transpose(_UNDO_TURN[orientation])
        exif[_EXIF_ORIENTATION] = orientation
    image.save(picture.path, quality=rng.randint(75, 95), exif=exif)
    if picture.breakage == "truncated":
        picture.path.write_bytes(picture.path.read_bytes()[: picture.path.stat().st_size // 2])


def write_processor(folder: Path, image_size: int = IMAGE_SIZE) -> None:
    """A processor folder: tokenizer, image preprocessing, and how an image becomes tokens.

    Images are resized to squares of `image_size` pixels, a multiple of `PATCH_SIZE`.
    """
    from transformers import PreTrainedTokenizerFast

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=train_tokenizer(),
        pad_token=SPECIAL_TOKENS[0],
        eos_token=SPECIAL_TOKENS[1],
        extra_special_tokens={"image_token": "<image>"},
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    write_json_atomic(
        folder / "preprocessor_config.json",
        {
            "image_processor_type": "SiglipImageProcessor",
            "size": {"height": image_size, "width": image_size},
            "resample": 3,
            "rescale_factor": 1 / 255,
            "image_mean": [0.5, 0.5, 0.5],
            "image_std": [0.5, 0.5, 0.5],
        },
    )
    write_json_atomic(
        folder / "processor_config.json",
        {"processor_class": "LlavaProcessor", "image_token": "<image>", "patch_size": PATCH_SIZE},
    )


def train_tokenizer() -> Any:
    """A byte-level BPE (`tokenizers.Tokenizer`) in which each word of a caption is one token."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        min_frequency=1,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    texts = [QUESTION, *(f"a {size} {colour} {shape}" for size, colour, shape in CAPTIONS)]
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer
