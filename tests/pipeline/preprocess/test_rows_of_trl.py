"""Learned tokens of TRL's rows against TRL's own collator (1.16), where TRL is installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pipeline.preprocess.encode import SampleEncoder
from pipeline.preprocess.manifest import read_manifest
from tests.pipeline.kinds import make_processor, write_kind

sft_trainer = pytest.importorskip(
    "trl.trainer.sft_trainer",
    reason="TRL is not installed; `pip install trl`",
    exc_type=ImportError,
)


def user(content: object) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: str) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


SHOWN = user([{"type": "image"}, {"type": "text", "text": "What is this?"}])
ROWS = {
    "one question": ([user("What is this?")], [assistant("A red cup.")]),
    "a marked picture": ([SHOWN], [assistant("A red cup.")]),
    "an earlier answer": (
        [user("What is this?"), assistant("A red cup."), user("Sure?")],
        [assistant("Sure.")],
    ),
    "a system message": (
        [{"role": "system", "content": "What?"}, user("What is this?")],
        [assistant("A cup.")],
    ),
}


@pytest.mark.parametrize("kind", ["qwen2_5_vl", "qwen3_vl"])
@pytest.mark.parametrize(("prompt", "completion"), ROWS.values(), ids=ROWS)
def test_learned_tokens_are_those_of_trl(
    tmp_path: Path, kind: str, prompt: list[dict[str, Any]], completion: list[dict[str, Any]]
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (60, 90, 3), dtype=np.uint8)
    picture = Image.fromarray(pixels)
    picture.save(tmp_path / "a.png")
    row = {"prompt": prompt, "completion": completion, "images": ["a.png"]}
    (tmp_path / "m.jsonl").write_text(json.dumps(row) + "\n")
    encoder = SampleEncoder(
        write_kind(kind, tmp_path / "processor"), image_root=tmp_path, image_decoding="exact"
    )
    (ours,) = read_manifest(tmp_path / "m.jsonl")
    planned = encoder.images.plan(ours)
    sample = encoder.finish(encoder.expand(encoder.tokenise(ours), planned, ours), ours)

    collator = sft_trainer.DataCollatorForVisionLanguageModeling(
        make_processor(kind), completion_only_loss=True
    )
    batch = collator([{**row, "images": [picture]}])
    assert sample.input_ids.tolist() == batch["input_ids"][0].tolist()
    assert sample.labels.tolist() == batch["labels"][0].tolist()
