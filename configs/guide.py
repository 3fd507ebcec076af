"""The training loop that people come with, for the recipe `guide`: plain PyTorch over small files.

A torch DataLoader opens, decodes, resizes and tokenises while the training waits. Time is taken
twice: as the guide's timer does, and by step records, which the report reads.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.records.task_context import TaskContext

LEARNING_RATE = 1e-3


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopConfig:
    """What the loop's owner has set."""

    source: str
    """Folder that `start` wrote."""
    device: Literal["cuda", "cpu"] = "cuda"
    batch_size: int = 16
    activation_checkpointing: bool = True
    save_every_steps: int = 30
    num_workers: int = 16
    num_compute_threads: int | None = None
    """Of one operation on a CPU; PyTorch's own choice without it."""
    num_epochs: int = 1
    seed: int = 0


@dataclass(kw_only=True, slots=True)
class GuideTimer:
    """The guide's timer: it starts when the loader has yielded, and waits for the device."""

    is_gpu: bool
    moved_s: list[float] = field(default_factory=list)
    """Seconds of each step until the batch is on the device."""
    computed_s: list[float] = field(default_factory=list)
    """Seconds of each step for forward and backward pass."""
    _since_s: float = 0.0

    def begin(self) -> None:
        """The loader has yielded."""
        self._since_s = self._now_s()

    def lap(self, laps: list[float]) -> None:
        """Note the seconds since the last call."""
        now_s = self._now_s()
        laps.append(now_s - self._since_s)
        self._since_s = now_s

    def _now_s(self) -> float:
        import torch

        if self.is_gpu:
            torch.cuda.synchronize()
        return time.perf_counter()


def loop(config: Mapping[str, Any], context: TaskContext) -> dict[str, Any]:
    """Train for some epochs; what the guide's timer says is printed, and is in the result."""
    import torch

    from pipeline.models.computation.recompute import recompute_layers
    from pipeline.models.small_vlm import SmallVLM
    from pipeline.timing.recorder import StepRecorder
    from pipeline.timing.sampler import sample_system
    from pipeline.train.device.device_memory import read_device_memory
    from slurm_jobs.formats.configs.training_parts import SamplerConfig

    settings = build_config(LoopConfig, config)
    torch.manual_seed(settings.seed)
    if settings.num_compute_threads is not None:
        torch.set_num_threads(settings.num_compute_threads)
    device = torch.device(settings.device)
    model = SmallVLM.from_pretrained(Path(settings.source) / "model").train().to(device)
    if settings.activation_checkpointing:
        recompute_layers(model)
    with (
        sample_system(SamplerConfig(), context),
        StepRecorder(
            context.timing_dir,
            0,
            _about(settings, context),
            read_memory=lambda: read_device_memory(device),
        ) as recorder,
    ):
        timer = _train(settings, model, recorder, context.output_dir)
    moved_s, computed_s = sum(timer.moved_s), sum(timer.computed_s)
    return {
        "num_steps": len(timer.moved_s),
        "guide_move_s": moved_s,
        "guide_compute_s": computed_s,
        "guide_data_share": moved_s / (moved_s + computed_s),
    }


def _about(settings: LoopConfig, context: TaskContext) -> dict[str, Any]:
    """What step records say of the rank that writes them."""
    return {
        "num_ranks": 1,
        "node_name": context.node_name,
        "device": settings.device,
        "strategy": "single",
        "precision": "fp32",
        "global_batch_size": settings.batch_size,
    }


def _train(settings: LoopConfig, model: Any, recorder: Any, out_dir: Path) -> GuideTimer:
    """The loop as one finds it, with two clocks."""
    import torch

    from pipeline.timing.recorder import StepCounts, StepOutcome

    device = torch.device(settings.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    timer = GuideTimer(is_gpu=device.type == "cuda")
    loader = make_loader(settings)
    num_steps = settings.num_epochs * len(loader)
    recorder.start_step(0)
    for step, (epoch, loaded) in enumerate(_batches(loader, settings.num_epochs)):
        recorder.lap("data_wait_s")
        timer.begin()
        batch = {name: t.to(device, non_blocking=True) for name, t in loaded.items()}
        timer.lap(timer.moved_s)
        recorder.lap("host_to_device_s")
        loss = loss_of(model, batch)
        recorder.lap("forward_s")
        loss.backward()
        timer.lap(timer.computed_s)
        recorder.lap("backward_s")
        optimizer.step()
        optimizer.zero_grad()
        told = loss.item()
        recorder.lap("optimizer_s")
        print(
            f"Step {step}: Data Move Time = {timer.moved_s[-1]:.4f}s | "
            f"Model Compute Time = {timer.computed_s[-1]:.4f}s"
        )
        if (step + 1) % settings.save_every_steps == 0 or step + 1 == num_steps:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, out_dir / "checkpoint.pt")
            recorder.lap("checkpoint_s")
        counts = StepCounts(epoch=epoch, **_counts(batch, model.config.image_token_id))
        recorder.end_step(counts, StepOutcome(loss=told, learning_rate=LEARNING_RATE))
        recorder.start_step(step + 1)
    return timer


def loss_of(model: Any, batch: Mapping[str, Any]) -> Any:
    """Mean cross entropy over the assistant's tokens, each told by the token before it."""
    labels = batch["labels"][:, 1:]
    rows, columns = (labels != -100).nonzero(as_tuple=True)
    learned = model(
        input_ids=batch["input_ids"],
        supervised=rows * batch["input_ids"].shape[1] + columns,
        targets=labels[rows, columns],
        vision={"pixel_values": batch["pixel_values"]},
    )
    return learned.sum() / len(rows)


def _counts(batch: Mapping[str, Any], image_token_id: int) -> dict[str, int]:
    num_tokens = int(batch["attention_mask"].sum())
    return {
        "num_microbatches": 1,
        "num_samples": len(batch["input_ids"]),
        "num_tokens": num_tokens,
        "num_padding_tokens": batch["input_ids"].numel() - num_tokens,
        "num_supervised_tokens": int((batch["labels"] != -100).sum()),
        "num_images": len(batch["pixel_values"]),
        "num_image_tokens": int((batch["input_ids"] == image_token_id).sum()),
    }


def make_loader(settings: LoopConfig) -> Any:
    """The guide's: workers that stay, and pinned memory."""
    import torch
    from transformers import AutoProcessor

    source = Path(settings.source)
    lines = (source / "train.jsonl").read_text(encoding="utf-8").splitlines()
    processor = AutoProcessor.from_pretrained(source / "processor", local_files_only=True)
    return torch.utils.data.DataLoader(
        [json.loads(line) for line in lines],  # type: ignore[arg-type]
        batch_size=settings.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=settings.num_workers,
        persistent_workers=settings.num_workers > 0,
        pin_memory=settings.device == "cuda",
        collate_fn=Collator(source=source, processor=processor),
    )


def _batches(loader: Any, num_epochs: int) -> Iterator[tuple[int, dict[str, Any]]]:
    for epoch in range(num_epochs):
        for batch in loader:
            yield epoch, batch


@dataclass(frozen=True, kw_only=True, slots=True)
class Collator:
    """Opens, decodes, resizes and tokenises in the loader's processes, by the model's processor."""

    source: Path
    processor: Any

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """A batch, padded on the right; the assistant's tokens have labels."""
        import torch

        batch = self.processor.apply_chat_template(
            [self._chat(row) for row in rows],
            tokenize=True,
            return_dict=True,
            return_tensors="pt",
            return_assistant_tokens_mask=True,
            processor_kwargs={"padding": True, "padding_side": "right"},
        )
        masks = torch.as_tensor(batch.pop("assistant_masks"))
        return {**batch, "labels": batch["input_ids"].masked_fill(masks == 0, -100)}

    def _chat(self, row: Mapping[str, Any]) -> list[dict[str, Any]]:
        from PIL import Image

        paths = iter(row["images"])
        return [
            {
                "role": message["role"],
                "content": [
                    {"type": "image", "image": Image.open(self.source / next(paths)).convert("RGB")}
                    if part["type"] == "image"
                    else part
                    for part in message["content"]
                ],
            }
            for message in row["messages"]
        ]
