"""One way of training, in a process of its own: ours, transformers' Trainer, TRL's SFTTrainer.

    python -m benchmarks.training_ways WAY JOB_JSON OUT_JSON

Each is used as its documentation has it for pictures and text: both peers process samples in their
collator; "ready" is the Trainer with samples that were processed before and batches of like
lengths, which its documentation offers for text.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

MICROBATCH = 8
"""Samples that a peer takes at once."""
LEARNING_RATE = 1e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingJob:
    """What is trained."""

    folder: Path
    """With `model/`, `processor/`, `source/rows.jsonl` and what `consolidate` made of these."""
    num_steps: int
    batch_size: int
    """Samples of a step."""
    row_tokens: int
    """Tokens of a packed row."""
    device: str
    precision: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Of the manifest."""
        lines = (self.folder / "source/rows.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepEnd:
    """When a step ended, and what was in it."""

    unix_s: float
    num_tokens: int
    """Real ones."""
    loss: float | None


def train_ours(job: TrainingJob, kind: str) -> list[StepEnd]:
    """The `train` stage; its own records say when."""
    from benchmarks.training_stage import run_train

    steps = run_train(job, kind)
    return [
        StepEnd(
            unix_s=float(step["start_unix_s"] + step["step_s"]),
            num_tokens=int(step["num_tokens"]),
            loss=float(step["loss"]),
        )
        for step in steps
    ]


class Ends:
    """Told by a peer's collator and callback."""

    def __init__(self, num_microbatches: int) -> None:
        self._num_microbatches = num_microbatches
        self._tokens: list[int] = []
        self.losses: dict[int, float] = {}
        self.unix_s: list[float] = []

    def collating(self, collate: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """The same collator, whose real tokens are counted; in the order of the batches."""

        def counted(examples: Any) -> Any:
            batch = collate(examples)
            self._tokens.append(int(batch["attention_mask"].sum()))
            return batch

        return counted

    def steps(self) -> list[StepEnd]:
        """What is known at the end."""
        size = self._num_microbatches
        return [
            StepEnd(
                unix_s=unix_s,
                num_tokens=sum(self._tokens[number * size : (number + 1) * size]),
                loss=self.losses.get(number + 1),
            )
            for number, unix_s in enumerate(self.unix_s)
        ]

    def callback(self) -> Any:
        """For a Trainer."""
        from transformers import TrainerCallback

        ends = self

        class Told(TrainerCallback):
            def on_step_end(self, _args: Any, _state: Any, _control: Any, **_: Any) -> None:
                if torch.cuda.is_available():
                    torch.cuda.synchronize()
                ends.unix_s.append(time.time())

            def on_log(
                self, _args: Any, state: Any, _control: Any, logs: Any = None, **_: Any
            ) -> None:
                if logs and "loss" in logs:
                    ends.losses[state.global_step] = logs["loss"]

        return Told()


def arguments_of(job: TrainingJob) -> dict[str, Any]:
    """What both trainers take."""
    is_gpu = job.device == "cuda"
    return {
        "output_dir": str(job.folder / "peer"),
        "per_device_train_batch_size": MICROBATCH,
        "gradient_accumulation_steps": job.batch_size // MICROBATCH,
        "max_steps": job.num_steps,
        "learning_rate": LEARNING_RATE,
        "lr_scheduler_type": "constant",
        "optim": "adamw_torch_fused",
        "weight_decay": 0.0,
        "max_grad_norm": 1.0,
        "use_cpu": not is_gpu,
        "bf16": job.precision == "bf16",
        "fp16": job.precision == "fp16",
        "logging_steps": job.num_steps,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "dataloader_num_workers": 8 if is_gpu else 0,
        "seed": 0,
    }


def load_model(job: TrainingJob) -> Any:
    """The model of the peers."""
    from transformers import LlavaForConditionalGeneration

    return LlavaForConditionalGeneration.from_pretrained(job.folder / "model", dtype=torch.float32)


def open_images(job: TrainingJob, row: Mapping[str, Any]) -> list[Any]:
    """Of a row, in their order."""
    from PIL import Image

    paths = [item["path"] for m in row["messages"] for item in m["content"] if "path" in item]
    return [Image.open(job.folder / "source" / path).convert("RGB") for path in paths]


class Collator:
    """The collator of the documentation of image-text-to-text fine-tuning: the processor's."""

    def __init__(self, job: TrainingJob, processor: Any) -> None:
        self._job, self._processor = job, processor

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Pictures opened, processed and padded; the assistant's tokens are learned."""
        return encode(self._job, self._processor, rows)


def encode(
    job: TrainingJob, processor: Any, rows: Sequence[Mapping[str, Any]]
) -> dict[str, torch.Tensor]:
    """Rows to a batch, padded on the right."""
    chats = []
    for row in rows:
        images = iter(open_images(job, row))
        chats.append(
            [
                {
                    "role": message["role"],
                    "content": [
                        {"type": "image", "image": next(images)} if "path" in item else item
                        for item in message["content"]
                    ],
                }
                for message in row["messages"]
            ]
        )
    batch = processor.apply_chat_template(
        chats,
        tokenize=True,
        return_dict=True,
        return_tensors="pt",
        return_assistant_tokens_mask=True,
        processor_kwargs={"padding": True, "padding_side": "right", "add_special_tokens": False},
    )
    masks = torch.as_tensor(batch.pop("assistant_masks"))
    labels = batch["input_ids"].clone()
    labels[masks == 0] = -100
    return {**batch, "labels": labels}


def train_trainer(job: TrainingJob, *, ready: bool) -> list[StepEnd]:
    """Transformers' Trainer."""
    from transformers import AutoProcessor, Trainer, TrainingArguments

    processor = AutoProcessor.from_pretrained(job.folder / "processor")
    ends = Ends(job.batch_size // MICROBATCH)
    more: dict[str, Any] = {}
    collate: Callable[[Any], Any] = Collator(job, processor)
    data: Any = job.rows
    if ready:
        data = [ready_sample(encode(job, processor, [row])) for row in job.rows]
        collate = PadReady(processor.tokenizer.pad_token_id)
        more = {"train_sampling_strategy": "group_by_length"}
    Trainer(
        model=load_model(job),
        args=TrainingArguments(**arguments_of(job), **more),
        train_dataset=data,
        data_collator=ends.collating(collate),
        callbacks=[ends.callback()],
    ).train()
    return ends.steps()


def ready_sample(batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """One sample of a batch of one."""
    rest = {name: value[0] for name, value in batch.items() if name != "pixel_values"}
    return {**rest, **{n: v for n, v in batch.items() if n == "pixel_values"}}


class PadReady:
    """Pads samples that were processed before."""

    def __init__(self, pad_id: int) -> None:
        self._fills = {"input_ids": pad_id, "labels": -100, "attention_mask": 0}

    def __call__(self, samples: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """As the processor would pad them."""
        batch = {
            name: torch.nn.utils.rnn.pad_sequence(
                [sample[name] for sample in samples], batch_first=True, padding_value=fill
            )
            for name, fill in self._fills.items()
        }
        pixels = [sample["pixel_values"] for sample in samples if "pixel_values" in sample]
        return {**batch, **({"pixel_values": torch.cat(pixels)} if pixels else {})}


def train_trl(job: TrainingJob) -> list[StepEnd]:
    """TRL's SFTTrainer, with its own collator for pictures."""
    from datasets import Dataset
    from transformers import AutoProcessor
    from trl import SFTConfig, SFTTrainer
    from trl.trainer.sft_trainer import DataCollatorForVisionLanguageModeling

    processor = AutoProcessor.from_pretrained(job.folder / "processor")
    ends = Ends(job.batch_size // MICROBATCH)
    collate = DataCollatorForVisionLanguageModeling(processor, assistant_only_loss=True)

    def opened(examples: Iterable[Mapping[str, Any]]) -> Any:
        return collate([trl_example(job, example) for example in examples])

    trainer = SFTTrainer(
        model=load_model(job),
        args=SFTConfig(
            **arguments_of(job),
            max_length=None,
            assistant_only_loss=True,
            gradient_checkpointing=False,
        ),
        train_dataset=Dataset.from_list([trl_row(row) for row in job.rows]),
        processing_class=processor,
        data_collator=ends.collating(opened),
        callbacks=[ends.callback()],
    )
    trainer.train()
    return ends.steps()


def trl_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as TRL's data sets have it: paths of images beside messages of text."""
    return {
        "images": [i["path"] for m in row["messages"] for i in m["content"] if "path" in i],
        "messages": [
            {
                "role": message["role"],
                "content": next(item["text"] for item in message["content"] if "text" in item),
            }
            for message in row["messages"]
        ],
    }


def trl_example(job: TrainingJob, row: Mapping[str, Any]) -> dict[str, Any]:
    """With its pictures opened."""
    from PIL import Image

    images = [Image.open(job.folder / "source" / path).convert("RGB") for path in row["images"]]
    return {"images": images, "messages": [dict(message) for message in row["messages"]]}


WAYS: Mapping[str, Callable[[TrainingJob], list[StepEnd]]] = {
    "ours": lambda job: train_ours(job, "packed"),
    "ours unpacked": lambda job: train_ours(job, "shuffled"),
    "Trainer": lambda job: train_trainer(job, ready=False),
    "Trainer, ready": lambda job: train_trainer(job, ready=True),
    "SFTTrainer": train_trl,
}


def main() -> None:
    """Train, and write when each step ended."""
    way, job_file, out_file = sys.argv[1:]
    values = json.loads(Path(job_file).read_text())
    job = TrainingJob(**{**values, "folder": Path(values["folder"])})
    steps = WAYS[way](job)
    memory = torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None
    found = {
        "steps": [[s.unix_s, s.num_tokens, s.loss] for s in steps],
        "memory_peak_bytes": memory,
    }
    Path(out_file).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
