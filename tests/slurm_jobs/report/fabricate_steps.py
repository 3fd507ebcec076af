"""What a fabricated run is like, and the step records of its training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from slurm_jobs.shared.timings import DEVICE_FIELDS, LOADER_FIELDS, STEP_FIELDS

CREATED = 1_700_000_000.0
STEP_DTYPE = np.dtype([(name, "<" + code) for name, code in STEP_FIELDS])


@dataclass(frozen=True, kw_only=True)
class Scenario:
    name: str = "shapes"
    num_ranks: int = 2
    num_steps: int = 400
    stopped_at: int | None = 170
    """First attempt ends after this many steps; None: there is one attempt."""
    resumed_at: int = 150
    data_wait_s: float = 0.06
    slow_rank_extra_s: float = 0.0
    """Extra data wait of the last rank; the others wait for it in the backward pass."""
    slow_rank_forward_s: float = 0.0
    """Extra forward time of the last rank; the others wait for it before the update."""
    alternating_forward_s: float = 0.0
    """Extra forward time of one rank, another one in each step; the others wait for it."""
    meeting_s: float = 0.0
    """Of every rank in every step, for the exchange between the passes."""
    core_wait_s: float = 0.0
    """Of every step, how long the loop's thread waited for a core; NaN as the kernel tells none."""
    loader_s: tuple[float, float, float] = (math.nan,) * 3
    """Of the loader's threads a step: work, and of it computing and waiting for a core."""
    loader_read_blocked_s: float = math.nan
    """Of the one thread that reads for all others; NaN without one."""
    padding_share: float = 0.02
    task_times_s: tuple[float, ...] = (380.0, 400.0, 390.0, 410.0)
    rejects: Mapping[str, int] = field(
        default_factory=lambda: {"truncated_image": 7, "too_long": 4, "not_an_image": 2}
    )
    header: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """By rank, what the header of its step records says besides rank and node."""
    train_queue_s: float = 240.0
    cpu_share: float = 0.62
    used_mem_share: float = 0.80
    finished: bool = True


def resolved_spec(scenario: Scenario) -> dict[str, Any]:
    def resources(**more: Any) -> dict[str, Any]:
        return {"nodes": 1, "tasks_per_node": 1, "cpus_per_task": 4, "timeout_min": 60, **more}

    return {
        "name": scenario.name,
        "stages": {
            "preprocess": {
                "run": "preprocess",
                "after": {},
                "array": {
                    "num_slices": len(scenario.task_times_s),
                    "max_running": 4,
                },
                "resources": resources(mem_gb=8),
                "config": {"manifest": "/data/train.jsonl", "too_long": "drop"},
            },
            "consolidate": {
                "run": "consolidate",
                "after": {"preprocess": "afterok"},
                "array": None,
                "resources": resources(mem_gb=8),
                "config": {"seed": 0},
            },
            "train": {
                "run": "train",
                "after": {"consolidate": "afterok"},
                "array": None,
                "resources": resources(nodes=2, gpus_per_node=1, mem_gb=32, timeout_min=60),
                "config": {"learning_rate": 1.5e-3, "batch_size": 32},
            },
            "report": {
                "run": "report",
                "after": {"train": "afterany"},
                "array": None,
                "resources": resources(mem_gb=2),
                "config": {"title": None, "warmup_steps": 5},
            },
        },
    }


def fabricate_steps(
    scenario: Scenario, rank: int, first: int, last: int, start: float
) -> np.ndarray:
    """Records of steps `first` to `last` of one rank; all ranks take the same time a step."""
    count, number = last - first, np.arange(first, last)
    steps = np.zeros(count, STEP_DTYPE)
    shared, own = np.random.default_rng(first), np.random.default_rng([rank, first])
    slow = scenario.slow_rank_extra_s if rank == scenario.num_ranks - 1 else 0.0
    steps["step"] = number
    steps["data_wait_s"] = scenario.data_wait_s * own.gamma(4, 0.25, count) + slow
    steps["host_to_device_s"] = 0.004
    steps["forward_s"] = 0.11
    steps["optimizer_s"] = 0.018
    steps["checkpoint_s"] = np.where(number % 50 == 49, 0.9, 0)
    steps["evaluation_s"] = np.where(number % 200 == 199, 2.5, 0)
    steps["other_s"] = 0.003
    extra = np.zeros((scenario.num_ranks, count))
    extra[-1] += scenario.slow_rank_forward_s
    extra[number % scenario.num_ranks, np.arange(count)] += scenario.alternating_forward_s
    steps["forward_s"] += extra[rank]
    steps["rank_wait_s"] = extra.max(axis=0) - extra[rank] + scenario.meeting_s
    steps["rank_wait_data_s"] = scenario.meeting_s / 2
    steps["core_wait_s"] = scenario.core_wait_s
    spread = shared.gamma(2, 0.01, count) + np.where(number < first + 4, 0.8, 0)
    longest = 3.0 * scenario.data_wait_s + scenario.slow_rank_extra_s
    step_s = (
        0.46
        + scenario.meeting_s
        + extra.max(axis=0)
        + longest
        + spread
        + steps["checkpoint_s"]
        + steps["evaluation_s"]
    )
    named = sum(
        steps[name]
        for name in (
            "data_wait_s",
            "host_to_device_s",
            "forward_s",
            "optimizer_s",
            "checkpoint_s",
            "evaluation_s",
            "rank_wait_s",
            "other_s",
        )
    )
    steps["backward_s"] = step_s - named
    steps["step_s"] = step_s
    steps["start_unix_s"] = start + np.concatenate([[0.0], np.cumsum(step_s)[:-1]])
    steps["epoch"] = number // 312
    steps["num_microbatches"] = 1
    steps["num_samples"] = steps["num_images"] = 32
    steps["num_tokens"] = own.integers(1100, 1240, count)
    slots = steps["num_tokens"] / (1 - scenario.padding_share)
    steps["num_padding_tokens"] = slots - steps["num_tokens"]
    steps["num_supervised_tokens"] = steps["num_tokens"] // 6
    for name in (*DEVICE_FIELDS, "model_flops", "mfu"):
        steps[name] = math.nan
    loading = (*scenario.loader_s, scenario.loader_read_blocked_s)
    for name, seconds in zip(LOADER_FIELDS, loading, strict=True):
        steps[name] = seconds
    steps["loss"] = 0.21 + 3.9 * np.exp(-number / 70) + shared.normal(0, 0.03, count)
    steps["grad_norm"] = math.nan
    steps["learning_rate"] = 1.5e-3
    steps["memory_peak_bytes"] = 6.2e9
    return steps
