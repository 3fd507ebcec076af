"""A model with the layers of Qwen2.5-VL-3B, random weights, and samples of unequal lengths."""

from __future__ import annotations

import dataclasses
import json
import math
import random
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from PIL import Image

from pipeline.train import stage
from pipeline.train.checkpoints import saver
from tests.gpu.models import Trained, train
from tests.gpu.work import Work

PICTURES = ((640, 480), (480, 640), (448, 448), (1024, 768), (320, 240))
"""Width and height: 391, 391, 256, 999 and 99 tokens."""
_MEDIAN_LETTERS, _SIGMA = 300, 0.9
_ROW_TOKENS = 4096
LANGUAGE_LAYERS, VISION_LAYERS = 8, 8
"""Of 36 and 32: a layer costs what it costs in the whole model, and the state fits with room."""
_TEXT = {
    "hidden_size": 2048,
    "intermediate_size": 11_008,
    "num_hidden_layers": LANGUAGE_LAYERS,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "vocab_size": 151_936,
    "max_position_embeddings": 32_768,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
}
VISION = {
    "depth": VISION_LAYERS,
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "num_heads": 16,
    "out_hidden_size": 2048,
    "window_size": 112,
    "fullatt_block_indexes": [3, 7],
    "patch_size": 14,
    "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}
"""Of Qwen2.5-VL-3B-Instruct's config.json."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpeedData:
    """Folders of a model and a data set."""

    dataset_dir: Path
    model_dir: Path
    rows: Path
    """Manifest that the data set was made of."""


def prepare(work: Work) -> SpeedData:
    """Make model and data set, once for all cases of a run."""
    root = work.shared / "speed"
    data = SpeedData(
        dataset_dir=root / "set/output", model_dir=root / "model", rows=root / "source/rows.jsonl"
    )
    if not (root / "made").exists():
        num_rows = 96 if work.has_gpu and not work.is_short else 16
        _write_dataset(root, num_rows, is_small=not work.has_gpu)
        _write_model(data.model_dir, work)
        (root / "made").touch()
    return data


def speed_config(data: SpeedData, work: Work, **changes: Any) -> dict[str, Any]:
    """Return the config of a timed training: full fine-tuning, plain AdamW, no checkpoints."""
    batching = changes.pop("batching", {"kind": "shuffled"})
    if batching["kind"] == "packed":
        batching = {"max_tokens": _ROW_TOKENS if work.has_gpu else 512, **batching}
    return {
        "device": work.device,
        "strategy": "single",
        "dataset": str(data.dataset_dir),
        "model": {"type": "hugging_face", "path": str(data.model_dir)},
        "num_steps": 9 if work.has_gpu else 4,
        "global_batch_size": 32 if work.has_gpu else 8,
        "num_lanes": 1,
        "num_microbatches": _found_microbatches(work, batching) if work.has_gpu else 1,
        "memory_share": 0.85,
        "batching": batching,
        "schedule": {"kind": "constant", "warmup_share": 0.0},
        "checkpoint": {"every_min": None},
        "num_loader_threads": 8 if work.has_gpu else 1,
        **changes,
    }


def keep_microbatches(work: Work, batching: dict[str, Any], number: int) -> None:
    """Keep what `auto` found: searching for it again in each case would take 10 s each."""
    _microbatches_file(work, batching).write_text(str(number))


def _found_microbatches(work: Work, batching: dict[str, Any]) -> int | str:
    file = _microbatches_file(work, batching)
    return int(file.read_text()) if file.exists() else "auto"


def _microbatches_file(work: Work, batching: dict[str, Any]) -> Path:
    return work.shared / ("microbatches-packed" if batching["kind"] == "packed" else "microbatches")


def train_without_saving(folder: Path, config: dict[str, Any]) -> Trained:
    """Train, and neither save nor evaluate 18 GB: other cases do that with smaller models."""
    with (
        mock.patch.object(saver.Saver, "save"),
        mock.patch.object(stage, "_evaluate", return_value={}),
        mock.patch.object(stage, "_export", lambda trainer, *_: trainer.job.context.output_dir),
    ):
        return train(folder, config)


def _write_dataset(root: Path, num_rows: int, *, is_small: bool) -> None:
    from tests.pipeline.build import run_consolidate, run_preprocess
    from tests.pipeline.kinds import write_kind

    draw, noise = random.Random(0), np.random.default_rng(0)
    source = root / "source"
    source.mkdir(parents=True)
    shrink = 8 if is_small else 1
    for number, (width, height) in enumerate(PICTURES):
        size = width // shrink, height // shrink
        coarse = noise.integers(0, 256, (9, 9, 3), dtype=np.uint8)
        Image.fromarray(coarse).resize(size).save(source / f"{number}.jpg", quality=90)
    lines = []
    median = _MEDIAN_LETTERS // shrink
    for number in range(num_rows):
        letters = round(math.exp(draw.gauss(math.log(median), _SIGMA)))
        answer = "".join(draw.choice("abcdefgh ") for _ in range(max(8, min(2400, letters))))
        image = {"type": "image", "path": f"{number % len(PICTURES)}.jpg"}
        messages = [
            {"role": "user", "content": [image, {"type": "text", "text": "What is it?"}]},
            {"role": "assistant", "content": [{"type": "text", "text": answer}]},
        ]
        lines.append(json.dumps({"messages": messages}) + "\n")
    (source / "rows.jsonl").write_text("".join(lines))
    processor = write_kind("qwen2_5_vl", root / "processor")
    _allow_large_pictures(processor)
    config = {
        "manifest": str(source / "rows.jsonl"),
        "processor": str(processor),
        "max_tokens": 512 if is_small else _ROW_TOKENS,
        "image_decoding": "exact",
    }
    (result,), parts_dir = run_preprocess(root / "prep", config)
    assert result["num_rejected"] == 0, result
    run_consolidate(root / "set", parts_dir)


def _allow_large_pictures(processor: Path) -> None:
    """Let pictures keep their size; the tests' processor shrinks them."""
    for name in ("processor_config.json", "preprocessor_config.json"):
        path = processor / name
        if path.exists():
            values = json.loads(path.read_text())
            images = values.get("image_processor", values)
            images["size"] = {"shortest_edge": 56 * 56, "longest_edge": 28 * 28 * 1280}
            path.write_text(json.dumps(values))


def _write_model(folder: Path, work: Work) -> None:
    import transformers as hf

    from tests.pipeline.kinds import make_processor
    from tests.pipeline.models.tiny import tiny_config

    config = tiny_config("qwen2_5_vl", tied=True)
    if work.has_gpu and not work.is_short:
        tokenizer = make_processor("qwen2_5_vl").tokenizer
        text = {**config.text_config.to_dict(), **_TEXT, "pad_token_id": tokenizer.pad_token_id}
        text.pop("layer_types", None)  # of as many layers as the tiny model has
        values = {**config.to_dict(), "text_config": text, "vision_config": VISION}
        config = hf.Qwen2_5_VLConfig(**values)
    torch.manual_seed(0)
    with torch.device(work.device):
        model = hf.Qwen2_5_VLForConditionalGeneration(config)
    model.bfloat16().save_pretrained(folder)
