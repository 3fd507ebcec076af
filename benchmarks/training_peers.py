"""Training with the peers: transformers' Trainer and TRL's SFTTrainer.

Each is used as its documentation says for images and text: both process samples in their collator.
"ready" is the Trainer with samples processed before and batches of similar lengths, which its
documentation offers for text.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from benchmarks.training_job import (
    BETAS,
    EPSILON,
    LEARNING_RATE,
    MAX_NORM,
    NUM_WARM,
    StepEnd,
    TrainingJob,
)
from benchmarks.training_stage import PeerWork, read_peer_work


class Ends:
    """Step ends, collected from a peer's model and callback."""

    def __init__(self, job: TrainingJob) -> None:
        self._job = job
        self._batches: list[Mapping[str, Any]] = []
        self._logged: dict[int, Mapping[str, float]] = {}
        self._unix_s: list[float] = []

    def load_model(self) -> Any:
        """Load the peers' model, which records its inputs except pixels.

        The collator cannot record them: with workers it runs in other processes.
        """
        from transformers import LlavaForConditionalGeneration

        folder = self._job.folder / "model"
        model = LlavaForConditionalGeneration.from_pretrained(folder, dtype=torch.float32)
        model.register_forward_pre_hook(self._keep, with_kwargs=True)
        return model

    def _keep(self, _model: Any, _args: Any, batch: Mapping[str, Any]) -> None:
        pixels = batch.get("pixel_values")
        num_images = 0 if pixels is None else len(pixels)
        names = ("input_ids", "attention_mask", "labels")
        self._batches.append({**{name: batch[name] for name in names}, "num_images": num_images})

    def steps(self) -> list[StepEnd]:
        """Return the records of all steps, after training."""
        work, size = read_peer_work(self._job), self._job.batch_size // self._job.at_once
        return [
            self._step(number, unix_s, self._batches[number * size : (number + 1) * size], work)
            for number, unix_s in enumerate(self._unix_s)
        ]

    def _step(
        self, number: int, unix_s: float, batches: Sequence[Mapping[str, Any]], work: PeerWork
    ) -> StepEnd:
        logged = self._logged.get(number + 1, {})
        return StepEnd(
            unix_s=unix_s,
            num_tokens=sum(int(batch["attention_mask"].sum()) for batch in batches),
            model_flops=sum(work.flops(batch) for batch in batches),
            loss=logged.get("loss"),
            grad_norm=logged.get("grad_norm"),
        )

    def callback(self) -> Any:
        """Return a Trainer callback; it waits for the GPU only at both ends of the timed steps."""
        from transformers import TrainerCallback

        ends = self

        class Told(TrainerCallback):
            def on_step_end(self, _args: Any, state: Any, _control: Any, **_: Any) -> None:
                is_end = state.global_step in (NUM_WARM, state.max_steps)
                if torch.cuda.is_available() and is_end:
                    torch.cuda.synchronize()
                ends._unix_s.append(time.time())

            def on_log(
                self, _args: Any, state: Any, _control: Any, logs: Any = None, **_: Any
            ) -> None:
                if logs and "loss" in logs:
                    ends._logged[state.global_step] = dict(logs)

        return Told()


def arguments_of(job: TrainingJob) -> dict[str, Any]:
    """Return the arguments that both trainers take."""
    is_gpu = job.device == "cuda"
    return {
        "output_dir": str(job.folder / "peer"),
        "per_device_train_batch_size": job.at_once,
        "gradient_accumulation_steps": job.batch_size // job.at_once,
        "max_steps": job.num_steps,
        "learning_rate": LEARNING_RATE,
        "lr_scheduler_type": "constant",
        "optim": "adamw_torch_fused",
        "adam_beta1": BETAS[0],
        "adam_beta2": BETAS[1],
        "adam_epsilon": EPSILON,
        "weight_decay": 0.0,
        "max_grad_norm": MAX_NORM,
        "use_cpu": not is_gpu,
        "bf16": job.precision == "bf16",
        "fp16": job.precision == "fp16",
        "logging_steps": 1 if job.logs_steps else job.num_steps,
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "remove_unused_columns": False,
        "dataloader_num_workers": 8 if is_gpu else 0,
        "seed": 0,
    }


def open_images(job: TrainingJob, row: Mapping[str, Any]) -> list[Any]:
    """Open the images of a row, in order."""
    from PIL import Image

    paths = [item["path"] for m in row["messages"] for item in m["content"] if "path" in item]
    return [Image.open(job.folder / "source" / path).convert("RGB") for path in paths]


class Collator:
    """The processor collator of the documentation of image-text-to-text fine-tuning."""

    def __init__(self, job: TrainingJob, processor: Any) -> None:
        self._job, self._processor = job, processor

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        """Open, process and pad images; labels are the assistant's tokens."""
        return encode(self._job, self._processor, rows)


def encode(
    job: TrainingJob, processor: Any, rows: Sequence[Mapping[str, Any]]
) -> dict[str, torch.Tensor]:
    """Encode rows as a batch, padded on the right."""
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
    """Train with transformers' Trainer."""
    from transformers import AutoProcessor, Trainer, TrainingArguments

    processor = AutoProcessor.from_pretrained(job.folder / "processor")
    ends = Ends(job)
    more: dict[str, Any] = {}
    collate: Callable[[Any], Any] = Collator(job, processor)
    data: Any = job.rows
    if ready:
        data = [ready_sample(encode(job, processor, [row])) for row in job.rows]
        collate = PadReady(processor.tokenizer.pad_token_id)
        more = {"train_sampling_strategy": "group_by_length"}
    Trainer(
        model=ends.load_model(),
        args=TrainingArguments(**arguments_of(job), **more),
        train_dataset=data,
        data_collator=collate,
        callbacks=[ends.callback()],
    ).train()
    return ends.steps()


def ready_sample(batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Remove the batch dimension."""
    rest = {name: value[0] for name, value in batch.items() if name != "pixel_values"}
    return {**rest, **{n: v for n, v in batch.items() if n == "pixel_values"}}


class PadReady:
    """Collator of samples that were processed before."""

    def __init__(self, pad_id: int) -> None:
        self._fills = {"input_ids": pad_id, "labels": -100, "attention_mask": 0}

    def __call__(self, samples: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
        """Pad as the processor would."""
        batch = {
            name: torch.nn.utils.rnn.pad_sequence(
                [sample[name] for sample in samples], batch_first=True, padding_value=fill
            )
            for name, fill in self._fills.items()
        }
        pixels = [sample["pixel_values"] for sample in samples if "pixel_values" in sample]
        return {**batch, **({"pixel_values": torch.cat(pixels)} if pixels else {})}


def train_trl(job: TrainingJob) -> list[StepEnd]:
    """Train with TRL's SFTTrainer and its own collator for images."""
    from datasets import Dataset
    from transformers import AutoProcessor
    from trl import SFTConfig, SFTTrainer
    from trl.trainer.sft_trainer import DataCollatorForVisionLanguageModeling

    processor = AutoProcessor.from_pretrained(job.folder / "processor")
    ends = Ends(job)
    collate = DataCollatorForVisionLanguageModeling(processor, assistant_only_loss=True)

    def opened(examples: Iterable[Mapping[str, Any]]) -> Any:
        return collate([trl_example(job, example) for example in examples])

    trainer = SFTTrainer(
        model=ends.load_model(),
        args=SFTConfig(
            **arguments_of(job),
            max_length=None,
            assistant_only_loss=True,
            gradient_checkpointing=False,
        ),
        train_dataset=Dataset.from_list([trl_row(row) for row in job.rows]),
        processing_class=processor,
        data_collator=opened,
        callbacks=[ends.callback()],
    )
    trainer.train()
    return ends.steps()


def trl_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row in TRL's format: image paths next to text messages."""
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
    """Return a TRL row with its images opened."""
    from PIL import Image

    images = [Image.open(job.folder / "source" / path).convert("RGB") for path in row["images"]]
    return {"images": images, "messages": [dict(message) for message in row["messages"]]}
