"""Tokens a second, MFU, idle share and peak memory of layers as those of Qwen2.5-VL-3B."""

from __future__ import annotations

import json
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from heapq import nlargest
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from slurm_jobs.formats.timings.profiler_files import trace_path
from slurm_jobs.formats.timings.step_records import DEVICE_PHASES
from slurm_jobs.report.profiles.occupancy import occupancy
from slurm_jobs.report.profiles.profile_trace import Trace, read_trace
from tests.gpu.models import Trained, open_tiny, train, train_config
from tests.gpu.speed_data import keep_microbatches, prepare, speed_config, train_without_saving
from tests.gpu.work import NotPossibleError, Work

_NUM_WARM = 3
_PROFILED = (7, 7)
MFU_GOAL = 0.5
IDLE_GOAL = 0.03
WAIT_GOAL = 0.01
"""Of a step, for data and for other ranks, by the device's own times."""
_ATTENTION = re.compile(r"flash|fmha|sdpa|attention", re.IGNORECASE)
_NUM_KERNELS = 40
_ADDED_UP = 1.02
"""Device phases may be rounded: marks have a resolution of half a microsecond."""


def shuffled(work: Work) -> None:
    """One sample a row, padded."""
    _measure(work, batching={"kind": "shuffled"})


def grouped(work: Work) -> None:
    """One sample a row, equal lengths together."""
    _measure(work, batching={"kind": "grouped"})


def packed(work: Work) -> None:
    """Several samples a row; the goals are for this one."""
    figures = _measure(work, batching={"kind": "packed"})
    if work.has_gpu and not work.is_short:
        work.at_least("MFU", figures["mfu"], MFU_GOAL)
        work.at_most("idle share of the device", figures["idle_share"], IDLE_GOAL)
        work.at_most("share that the device waits", figures["device_wait_share"], WAIT_GOAL)
    _result_of_packed(work).write_text(json.dumps(figures))


def packed_dense(work: Work) -> None:
    """Packed rows with a mask instead of varlen attention."""
    figures = _measure(work, batching={"kind": "packed"}, attention="dense")
    if work.has_gpu and _result_of_packed(work).exists():
        varlen = json.loads(_result_of_packed(work).read_text())
        times = varlen["tokens_per_s"] / figures["tokens_per_s"]
        work.at_least("tokens a second of varlen, times those of a mask", times, 1.0)
        work.at_most("peak GB of varlen, at most that of a mask",
                     varlen["peak_gb"], figures["peak_gb"])  # fmt: skip


def _result_of_packed(work: Work) -> Path:
    return work.shared / "packed.json"


def packed_compiled(work: Work) -> None:
    """Packed rows, all layers compiled; on a CPU those of the language model alone."""
    if not work.has_gpu:
        _measure(work, batching={"kind": "packed"}, compile={"backend": "eager"})
        return
    compiling = {"towers": ["vision", "language"]}
    figures = _measure(work, batching={"kind": "packed"}, compile=compiling)
    work.at_least("MFU", figures["mfu"], MFU_GOAL)
    work.at_most("idle share of the device", figures["idle_share"], IDLE_GOAL)


def device_times(work: Work) -> None:
    """Check that the device times of a step's phases do not exceed those of the step."""
    work.need_gpu("device times come from CUDA events")
    kind = open_tiny("qwen2_5_vl", work.shared)
    steps = train(work.folder, train_config(kind, work, num_steps=8, deterministic=False)).steps
    whole = steps["device_step_s"]
    parts = np.sum([steps[f"device_{name}"] for name in DEVICE_PHASES], axis=0)
    known = np.isfinite(whole)
    work.check("device times were read", bool(known[2:-1].all()), whole.tolist())
    work.check("phases add up to no more than the step",
               bool((parts[known] <= _ADDED_UP * whole[known]).all()))  # fmt: skip
    work.note(median_device_step_ms=1e3 * float(np.nanmedian(whole)),
              median_step_ms=1e3 * float(np.median(steps["step_s"])))  # fmt: skip


def _measure(work: Work, **changes: Any) -> dict[str, float]:
    """Train, and write down the figures of the steps after the first ones."""
    data = prepare(work)
    config = speed_config(data, work, **changes)
    if work.has_gpu:
        config["profile"] = {"steps": list(_PROFILED)}
    found = train_without_saving(work.folder / "run", _known(config))
    steps = found.steps[_NUM_WARM:] if work.has_gpu else found.steps[1:]
    plain = [step for step in steps if not _PROFILED[0] - 1 <= step["step"] <= _PROFILED[1]]
    figures = {
        "tokens_per_s": statistics.median(float(s["num_tokens"] / s["step_s"]) for s in plain),
        "step_s": statistics.median(float(s["step_s"]) for s in plain),
        "padding_share": _padding_share(steps),
        "peak_gb": float(found.steps["memory_peak_bytes"].max()) / 1e9,
        "data_wait_share": float(steps["data_wait_s"].sum() / steps["step_s"].sum()),
    }
    if work.has_gpu:
        for name in DEVICE_PHASES:
            seconds = [float(step[f"device_{name}"]) for step in plain]
            work.note(**{f"device_{name}": statistics.median(seconds)})
        figures["mfu"] = statistics.median(float(s["mfu"]) for s in plain)
        trace = read_trace(trace_path(found.context.timing_dir, 0))
        use = occupancy(trace)
        waits_s = _plain_sum(plain, "device_data_wait_s", "device_rank_wait_s")
        figures |= {
            "idle_share": use.idle_s / use.wall_s,
            "num_kernels_a_step": use.num_pieces / use.num_steps,
            "device_wait_share": waits_s / _plain_sum(plain, "device_step_s"),
        }
        _check_attention(work, found, trace)
        work.note(longest_kernels=_longest_kernels(trace))
    num_microbatches = int(steps["num_microbatches"].max())
    keep_microbatches(work, config["batching"], num_microbatches)
    work.note(attention=found.result["attention"], num_microbatches=num_microbatches, **figures)
    work.check("the losses are finite", bool(np.isfinite(found.steps["loss"]).all()))
    return figures


def _plain_sum(steps: Sequence[Any], *names: str) -> float:
    return float(np.nansum([step[name] for step in steps for name in names]))


def _check_attention(work: Work, found: Trained, trace: Trace) -> None:
    """Check that cuDNN, which plans anew for each length, computes no attention; name what does."""
    preflight = json.loads((found.context.output_dir / "preflight.json").read_text())
    is_on = preflight["cudnn_attention"]
    work.check("cuDNN attention is off where lengths vary", is_on is False, is_on)
    names = {name for name in trace.compute.names if _ATTENTION.search(name)}
    work.note(attention_kernels=sorted(name[:80] for name in names),
              attention_chosen=preflight["attention"])  # fmt: skip
    cudnn = sorted(name for name in names if "cudnn" in name.lower())
    work.check("no kernel of cuDNN's attention ran", not cudnn, cudnn)


def _longest_kernels(trace: Trace) -> list[str]:
    """Return the kernels that take most of the profiled steps, with their share and number."""
    pieces, seconds, numbers = trace.compute, defaultdict[str, float](float), Counter[str]()
    for name, length in zip(pieces.names, pieces.ends_s - pieces.starts_s, strict=True):
        seconds[name] += float(length)
        numbers[name] += 1
    all_s = sum(seconds.values())
    return [
        f"{length / all_s:.1%}, {numbers[name]} times: {name[:120]}"
        for name, length in nlargest(_NUM_KERNELS, seconds.items(), key=itemgetter(1))
    ]


def _known(config: dict[str, Any]) -> dict[str, Any]:
    """Return the config, unless it has a key that this version lacks."""
    from dataclasses import fields

    from slurm_jobs.formats.configs.train import TrainConfig

    unknown = set(config) - {field.name for field in fields(TrainConfig)}
    if unknown:
        message = f"there is no {', '.join(unknown)} in the config"
        raise NotPossibleError(message)
    return config


def _padding_share(steps: Any) -> float:
    padding, real = float(steps["num_padding_tokens"].sum()), float(steps["num_tokens"].sum())
    return padding / (padding + real)
