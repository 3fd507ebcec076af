"""Memory: what is predicted against what is used, and a clear end where it does not fit."""

from __future__ import annotations

import json
import math
import time

import torch

from slurm_jobs.common.errors import SlurmJobsError
from tests.gpu.models import open_tiny, train, train_config
from tests.gpu.speed_data import prepare, speed_config
from tests.gpu.work import Work

_TOLERANCE = 0.10


def predicted_and_measured(work: Work) -> None:
    """Search for microbatches, train with them, and compare the peak with the prediction."""
    data = prepare(work)
    config = speed_config(data, work, batching={"kind": "packed"}, num_microbatches="auto")
    found = train(work.folder / "auto", {**config, "num_steps": 3})
    (choices,) = found.context.output_dir.rglob("microbatches.json")
    (choice,) = json.loads(choices.read_text()).values()
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
