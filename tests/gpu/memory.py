"""Memory: what is predicted against what is used, and a clear end where it does not fit."""

from __future__ import annotations

import json
import math
import time
from typing import Any
from unittest import mock

import torch

from slurm_jobs.base.errors import SlurmJobsError
from tests.gpu.models import open_tiny, train, train_config
from tests.gpu.speed_data import keep_microbatches, prepare, speed_config, train_without_saving
from tests.gpu.work import Work

_TOLERANCE = 0.10


def predicted_and_measured(work: Work) -> None:
    """Search for microbatches, train with them, and compare the peak with the prediction."""
    data = prepare(work)
    config = speed_config(data, work, batching={"kind": "packed"}, num_microbatches="auto")
    found = train_without_saving(work.folder / "auto", {**config, "num_steps": 3})
    (choices,) = found.context.output_dir.rglob("microbatches.json")
    (choice,) = json.loads(choices.read_text()).values()
    keep_microbatches(work, config["batching"], choice["num_microbatches"])
    use = choice["use"]
    peak = float(found.steps["memory_peak_bytes"].max())
    work.note(
        num_microbatches=choice["num_microbatches"],
        predicted_gb=use["peak_bytes"] / 1e9,
        search_s=choice["search_s"],
    )
    allowed = use["capacity_bytes"] * config["memory_share"]
    work.check("the prediction is within what is allowed", use["peak_bytes"] <= allowed)
    if not work.has_gpu:
        work.not_possible("measured peak", "a CPU's peak counts the whole process")
        return
    reserved = torch.cuda.max_memory_reserved()
    work.note(measured_gb=peak / 1e9, reserved_gb=reserved / 1e9)
    work.close_to("peak of the steps", use["peak_bytes"], float(reserved), _TOLERANCE)


def looks(work: Work) -> None:
    """Look at held-out samples under fsdp2; the peak of a look against what preflight predicts."""
    from pipeline.train.held_out import HeldOut
    from pipeline.train.memory.measured_memory import forget_peaks

    data, device = prepare(work), work.torch_device
    peaks, look = [], HeldOut.evaluate

    def measured(self: HeldOut, step: int) -> Any:
        forget_peaks(device)
        found = look(self, step)
        if work.has_gpu:
            peaks.append(float(torch.cuda.max_memory_allocated(device)))
        return found

    evaluate = {
        "manifest": str(data.rows),
        "every_steps": 2,
        "num_loss_samples": 4,
        "num_answers": 1,
        "max_new_tokens": 4,
        "num_samples": 1,
    }
    config = speed_config(data, work, batching={"kind": "packed"}, strategy="fsdp2",
                          num_microbatches=4 if work.has_gpu else 1, evaluate=evaluate)  # fmt: skip
    with mock.patch.object(HeldOut, "evaluate", measured):
        found = train_without_saving(work.folder / "looks", {**config, "num_steps": 2})
    values = json.loads((found.context.output_dir / "preflight.json").read_text())["memory"]
    predicted = sum(
        values[f"{name}_bytes"] for name in ("weights", "optimizer", "buffers", "gathered")
    )
    work.note(predicted_gb=predicted / 1e9, gathered_gb=values["gathered_bytes"] / 1e9)
    work.check("gathered weights are counted", values["gathered_bytes"] > 0)
    work.check("held-out samples were looked at", found.result["held_out"]["num_looks"] == 1)
    if not work.has_gpu:
        work.not_possible("measured peak of a look", "a CPU's peak counts the whole process")
        return
    work.note(measured_gb=max(peaks) / 1e9)
    # What is predicted is a lower bound; activations of a few samples are small beside weights.
    work.check("the peak is no less than predicted", max(peaks) >= 0.99 * predicted, peaks)
    work.close_to("peak of a look", max(peaks), predicted, 2 * _TOLERANCE)


def forced_out_of_memory(work: Work) -> None:
    """Give a training too little memory: it must end soon, naming what takes less."""
    work.need_gpu("a CPU's memory cannot be made small for one process without killing it")
    data = prepare(work)
    torch.cuda.set_per_process_memory_fraction(0.02)
    began = time.monotonic()
    try:
        train(work.folder / "small", speed_config(data, work, batching={"kind": "shuffled"}))
        work.check("a training without memory fails", passed=False, detail="it ended well")
    except SlurmJobsError as error:
        seconds = time.monotonic() - began
        work.note(message=str(error)[:300], seconds=seconds)
        work.check("the message names the memory", "memory" in str(error), error)
        work.at_most("seconds to the end", seconds, 10.0)
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()
    work.need_package("bitsandbytes")
    kind = open_tiny("qwen2_5_vl", work.shared)
    paged = train(
        work.folder / "paged", train_config(kind, work, optimizer={"kind": "paged_adamw_8bit"})
    )
    work.check("paged AdamW trains", all(map(math.isfinite, paged.losses)), paged.losses)
