"""Training of every model family compared with transformers' Trainer, on a CPU.

    python -m benchmarks.families [--quick] [--json FILE]

Each family has a small model of random weights and its own processor, those of the tests. All
methods train on the same chats about images of many sizes, 32 per step and 8 at once, in fp32 on
all cores. A rate counts the real tokens of all steps but the first two, from the end of the second
step to the end of the last. The Trainer processes images and text while it trains, as its
documentation does for images; "ready" is the Trainer with batches that were processed before, of
samples of similar lengths. Ours trains on a data set that was made before, in `grouped` batches.
The methods take turns; the median of all rounds counts.

So small a model takes little time by itself: the rates show what surrounds it. They say whether a
family has a slow path here, and nothing about a model of billions of weights.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from benchmarks.table import Row, arguments, row, show
from benchmarks.training_data import MEDIAN_WORDS, MOST_WORDS, SIGMA, WORDS
from benchmarks.training_job import NUM_WARM, TrainingJob
from benchmarks.training_peers import arguments_of

BATCH_SIZE, AT_ONCE = 32, 8
NUM_ROWS = 128
SHORTEST_PX, LONGEST_PX = 40, 200
OURS = "ours"


def write_rows(folder: Path) -> None:
    """Write chats with one image each, and their images."""
    draw = random.Random(0)  # noqa: S311 - of lengths, words and sizes
    noise = np.random.default_rng(0)
    folder.mkdir(parents=True)
    lines = []
    for number in range(NUM_ROWS):
        size = (draw.randint(SHORTEST_PX, LONGEST_PX), draw.randint(SHORTEST_PX, LONGEST_PX))
        coarse = noise.integers(0, 256, (6, 6, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC)
        image.save(folder / f"{number}.jpg", quality=90)
        num_words = min(MOST_WORDS, round(math.exp(draw.gauss(math.log(MEDIAN_WORDS), SIGMA))))
        answer = " ".join(draw.choice(WORDS) for _ in range(max(1, num_words)))
        asked = [
            {"type": "image", "path": f"{number}.jpg"},
            {"type": "text", "text": "What is it?"},
        ]
        messages = [
            {"role": "user", "content": asked},
            {"role": "assistant", "content": [{"type": "text", "text": answer}]},
        ]
        lines.append(json.dumps({"messages": messages}) + "\n")
    (folder / "rows.jsonl").write_text("".join(lines))


def prepare(folder: Path, kind: str, num_steps: int) -> TrainingJob:
    """Write the model, its processor and the data set of a family."""
    from benchmarks.training_stage import make_dataset
    from tests.pipeline.kinds import write_kind
    from tests.pipeline.models.tiny import write_tiny

    write_rows(folder / "source")
    write_kind(kind, folder / "processor")
    write_tiny(kind, folder / "model")
    make_dataset(folder, max_tokens=4096)
    return TrainingJob(
        folder=folder,
        num_steps=num_steps,
        batch_size=BATCH_SIZE,
        at_once=AT_ONCE,
        row_tokens=0,
        device="cpu",
        precision="fp32",
    )


def train_ours(job: TrainingJob) -> float:
    """Train with our stage; return its real tokens per second."""
    from benchmarks.training_stage import run_train

    with tempfile.TemporaryDirectory(dir=job.folder) as root:
        steps = run_train(job, "grouped", Path(root))
    ends = [float(step["start_unix_s"] + step["step_s"]) for step in steps]
    num_tokens = sum(int(step["num_tokens"]) for step in steps[NUM_WARM:])
    return num_tokens / (ends[-1] - ends[NUM_WARM - 1])


def encode(job: TrainingJob, kind: str, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Encode rows as a batch of the family's processor, padded on the right."""
    from transformers import ProcessorMixin

    from tests.pipeline.kinds import make_processor

    chats = []
    for each in rows:
        chat = []
        for message in each["messages"]:
            content = [_opened(job, item) for item in message["content"]]
            chat.append({"role": message["role"], "content": content})
        chats.append(chat)
    # SmolVLM's own class asks its video processor first, then calls this.
    batch = ProcessorMixin.apply_chat_template(
        make_processor(kind),
        chats,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        processor_kwargs={"padding": True, "padding_side": "right"},
    )
    labels = batch["input_ids"].clone()
    labels[batch["attention_mask"] == 0] = -100
    return {**batch, "labels": labels}


def _opened(job: TrainingJob, item: Mapping[str, str]) -> Mapping[str, Any]:
    if item["type"] != "image":
        return item
    with Image.open(job.folder / "source" / item["path"]) as image:
        return {"type": "image", "image": image.convert("RGB")}


def train_trainer(job: TrainingJob, kind: str, *, ready: bool) -> float:
    """Train with transformers' Trainer; return its real tokens per second."""
    import torch
    from transformers import (
        AutoModelForImageTextToText,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    num_tokens: list[int] = []
    ends: list[float] = []

    class Clock(TrainerCallback):
        def on_step_end(self, *_args: Any, **_options: Any) -> None:
            ends.append(time.time())

    def keep(_model: Any, _args: Any, batch: Mapping[str, Any]) -> None:
        num_tokens.append(int(batch["attention_mask"].sum()))

    model = AutoModelForImageTextToText.from_pretrained(job.folder / "model", dtype=torch.float32)
    model.register_forward_pre_hook(keep, with_kwargs=True)
    options = arguments_of(job)
    data: Any = job.rows
    collate: Callable[[Any], Any] = lambda rows: encode(job, kind, rows)  # noqa: E731
    if ready:
        in_order = sorted(job.rows, key=lambda each: len(json.dumps(each)))
        data = [
            encode(job, kind, in_order[place : place + AT_ONCE])
            for place in range(0, len(in_order), AT_ONCE)
        ]
        collate = lambda batches: batches[0]  # noqa: E731
        options["per_device_train_batch_size"] = 1
    Trainer(
        model=model,
        args=TrainingArguments(**options),
        train_dataset=data,
        data_collator=collate,
        callbacks=[Clock()],
    ).train()
    warm = NUM_WARM * BATCH_SIZE // AT_ONCE
    return sum(num_tokens[warm:]) / (ends[-1] - ends[NUM_WARM - 1])


def measure(kind: str, num_steps: int, num_rounds: int) -> list[Row]:
    """Measure a family."""
    rates: dict[str, list[float]] = {OURS: [], "Trainer": [], "Trainer, ready": []}
    with tempfile.TemporaryDirectory() as folder:
        job = prepare(Path(folder) / kind, kind, num_steps)
        for _ in range(num_rounds):
            rates[OURS].append(train_ours(job))
            for peer in ("Trainer", "Trainer, ready"):
                rates[peer].append(train_trainer(job, kind, ready=peer != "Trainer"))
    medians = {way: statistics.median(values) for way, values in rates.items()}
    return [
        row(kind, "real tokens/s", medians[OURS], peer=peer, peer_value=medians[peer])
        for peer in ("Trainer", "Trainer, ready")
    ]


def main() -> None:
    """Run the benchmark."""
    from tests.pipeline.kinds import KINDS

    options = arguments(__doc__)
    num_steps, num_rounds = (NUM_WARM + 2, 1) if options.quick else (NUM_WARM + 6, 3)
    rows = []
    for kind in KINDS:
        rows += measure(kind, num_steps, num_rounds)
    show(rows, options, ["slurm-jobs", "torch", "transformers", "accelerate"])


if __name__ == "__main__":
    main()
