"""Evidence from a run's nodes and profiles in addition to its steps. PURE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slurm_jobs.common.timings import PROFILE_WRITE_SPAN
from slurm_jobs.report.inputs.records import StageInputs
from slurm_jobs.report.numbers.communication import exposed_communication
from slurm_jobs.report.numbers.load import cores_held, node_loads
from slurm_jobs.report.numbers.steps import AttemptSteps


def around_steps(stage: StageInputs, attempts: Sequence[AttemptSteps]) -> dict[str, Any]:
    """Return communication, and cores that others held, in the attempts of the speed.

    Other attempts had another config, or other neighbours.
    """
    numbers = {a.attempt for a in attempts}
    readings = [r for r in stage.readings if r.attempt in numbers]
    loads = node_loads(readings, attempts, stage.resources)
    shares = [
        held / load.num_cores_asked
        for load in loads
        if load.num_cores_asked and (held := cores_held(load)) is not None
    ]
    return {
        "exposed": exposed_communication([p for p in stage.profiles if p.attempt in numbers]),
        "share_held": max(shares, default=None),
    }


def profiler_note(attempts: Sequence[AttemptSteps]) -> str:
    """Return a note that memory on CPUs includes the profiler's; nothing without a profile."""
    ranks = [timing for attempt in attempts for timing in attempt.ranks]
    on_device = any(t.steps.metadata.get("device") == "cuda" for t in ranks if t.steps is not None)
    if on_device or all(s["name"] != PROFILE_WRITE_SPAN for t in ranks for s in t.spans):
        return ""
    return "steps were profiled: the memory has the profiler's records in it"


def cards(stage: StageInputs) -> dict[str, Any]:
    """Return names of the nodes' GPUs, and the memory of the smallest, from their readings."""
    gpus = [gpu for node in stage.readings for gpu in node.metadata.get("gpus") or ()]
    sizes = [float(gpu["memory_bytes"]) for gpu in gpus if gpu.get("memory_bytes")]
    noted = {gpu for node in stage.nodes for gpu in node.gpus}  # not read by a sampler
    return {
        "cards": tuple(sorted({str(gpu.get("name", "")) for gpu in gpus} or noted)),
        "memory_capacity_bytes": min(sizes, default=None),
    }
