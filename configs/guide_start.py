"""What every phase of the recipe `guide` begins with: photographs, chats, a processor, a model.

The photographs are large JPEGs with the noise of a camera, the chats those of `recipes`, and the
model a small vision-language model with random weights. Nothing is fetched from anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import recipes
import shapes_demo

from slurm_jobs.base.files import write_text_atomic
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.model_parts import LanguageConfig, VisionConfig
from slurm_jobs.formats.records.progress_file import Progress
from slurm_jobs.formats.records.task_context import TaskContext

SIDES_PX = (880, 1130)
"""Of a photograph: about one megapixel."""
NOISE_SD, JPEG_QUALITY = 5.0, 70
"""So that a photograph takes about 100 kB."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StartConfig:
    """How many photographs, and how large a model."""

    num_train: int = 20_000
    image_size: int = 224
    """What photographs are resized to, in pixels; a multiple of 16."""
    vision: VisionConfig = field(default_factory=VisionConfig)
    language: LanguageConfig = field(default_factory=LanguageConfig)
    seed: int = 0
    num_threads: int = 2

    def __post_init__(self) -> None:
        """Refuse what nothing can be trained on."""
        if self.num_train < 1:
            message = f"num_train is {self.num_train}: give 1 or more"
            raise ValueError(message)
        recipes.check_image_size(self.image_size)


def start(config: Mapping[str, Any], context: TaskContext) -> dict[str, Any]:
    """Write `train.jsonl`, `images/`, `processor/` and `model/` into the output folder."""
    settings, out_dir = build_config(StartConfig, config), context.output_dir
    shapes_demo.write_processor(out_dir / "processor", settings.image_size)
    num_parameters = _write_model(settings, out_dir)
    drawn = shapes_demo.RenderConfig(
        min_side_px=SIDES_PX[0], max_side_px=SIDES_PX[1], num_broken=0, seed=settings.seed
    )
    planned = shapes_demo.plan_pictures(drawn, out_dir, "train", settings.num_train, 0)
    pictures = [replace(p, path=p.path.with_suffix(".jpg")) for p in planned]
    (out_dir / "images" / "train").mkdir(parents=True, exist_ok=True)
    progress = Progress(context.task_dir, "photographs", len(pictures))
    with ThreadPoolExecutor(settings.num_threads) as pool:
        sizes = []
        for size in pool.map(lambda picture: _save(picture, drawn), pictures):
            sizes.append(size)
            progress.update(len(sizes))
    tasks = list(recipes.TASKS)
    rows = [
        json.dumps(recipes.conversation(picture, tasks[number % len(tasks)], out_dir))
        for number, picture in enumerate(pictures)
    ]
    write_text_atomic(out_dir / "train.jsonl", "".join(f"{row}\n" for row in rows))
    return {
        "num_train": len(pictures),
        "mean_photograph_bytes": sum(sizes) / len(sizes),
        "num_parameters": num_parameters,
    }


def photograph(picture: shapes_demo.Picture, drawn: shapes_demo.RenderConfig) -> Any:
    """The demo's picture in a camera's size and with its noise, mode RGB."""
    import numpy as np
    from PIL import Image

    image = shapes_demo.draw(picture, drawn)
    rng = np.random.default_rng(list(picture.seed.encode()))
    noise = rng.normal(0, NOISE_SD, (image.height // 2 + 1, image.width // 2 + 1, 1))
    grain = noise.repeat(2, axis=0).repeat(2, axis=1)[: image.height, : image.width]
    return Image.fromarray(np.clip(np.asarray(image) + grain, 0, 255).astype(np.uint8))


def _save(picture: shapes_demo.Picture, drawn: shapes_demo.RenderConfig) -> int:
    """Bytes of the file."""
    photograph(picture, drawn).save(picture.path, quality=JPEG_QUALITY)
    return picture.path.stat().st_size


def _write_model(settings: StartConfig, out_dir: Path) -> int:
    """The model that every phase begins with; the number of its parameters."""
    import torch

    from pipeline.models.data_facts import load_tokenizer
    from pipeline.models.small_vlm import SmallVLM, SmallVLMConfig

    tokenizer = load_tokenizer(out_dir / "processor")
    vision, language = settings.vision.sizes(), settings.language.sizes()
    ids = {"pad_token_id": tokenizer.pad_token_id, "eos_token_id": tokenizer.eos_token_id}
    config = SmallVLMConfig(
        vision={
            **_tower(vision),
            "image_size": settings.image_size,
            "patch_size": shapes_demo.PATCH_SIZE,
        },
        language={
            **_tower(language),
            "vocab_size": len(tokenizer),
            "num_key_value_heads": language["num_kv_heads"],
            "max_position_embeddings": language["max_positions"],
            **ids,
        },
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        pad_token_id=tokenizer.pad_token_id,
        image_mean=(0.5, 0.5, 0.5),
        image_std=(0.5, 0.5, 0.5),
    )
    torch.manual_seed(settings.seed)
    model = SmallVLM(config)
    (out_dir / "model").mkdir(exist_ok=True)
    model.save_pretrained(out_dir / "model")
    return sum(parameter.numel() for parameter in model.parameters())


def _tower(sizes: Mapping[str, int]) -> dict[str, int]:
    """As transformers calls the sizes that both towers have."""
    return {
        "hidden_size": sizes["hidden_size"],
        "intermediate_size": sizes["mlp_ratio"] * sizes["hidden_size"],
        "num_hidden_layers": sizes["num_layers"],
        "num_attention_heads": sizes["num_heads"],
    }
