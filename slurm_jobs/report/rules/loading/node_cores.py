"""Causes of waits for data, from the load of the nodes. PURE.

The step records show that a rank waits; the node's cores show what its loader does meanwhile. All
busy: it decodes. Idle with an outstanding disk request: it waits for the node's disks. Idle without
one: there are too few threads, or they wait for a network file system.
"""

from __future__ import annotations

from slurm_jobs.base import units
from slurm_jobs.report.numbers.trainings.node_load import has_readings, mean_of
from slurm_jobs.report.rules.loading.foreign_load import (
    END_OTHERS_KNOB,
    are_cores_taken,
    taken_text,
)
from slurm_jobs.report.rules.loading.loader_threads import (
    ALL_BUSY,
    SHARED_CORES_KNOB,
    WAITS_FOR_DISKS,
    WaitCause,
    cause_by_threads,
)
from slurm_jobs.report.values.load_model import NodeLoad
from slurm_jobs.report.values.training_model import TrainingNumbers

_IDLE = 0.50
"""Share of busy cores below which they count as idle. Own choice."""
_GENERAL_KNOB = (
    "Raise num_loader_threads, then num_prefetch_batches. Check that shards were staged on "
    "node-local storage, and that cpus_per_task leaves cores for the loader."
)


def find_cause(numbers: TrainingNumbers) -> WaitCause:
    """Return the cause from the node with the longest wait: one starved rank delays all."""
    starved = max(numbers.ranks, key=lambda rank: rank.phases_s["data_wait"], default=None)
    loads = {load.node: load for load in numbers.loads if has_readings(load.cpu_busy)}
    load = loads.get(starved.node) if starved is not None else None
    if numbers.loader is not None:
        cause = cause_by_threads(numbers.loader, load, numbers.device)
        if cause is not None:
            return cause
    if load is None:
        return WaitCause(
            text="",
            evidence=(),
            next_knob=_GENERAL_KNOB,
            confidence="high that steps wait for data; without readings of nodes the cause is not "
            "known",
        )
    if has_readings(load.cpu_iowait) and mean_of(load.cpu_iowait) >= WAITS_FOR_DISKS:
        rate = units.num_bytes(mean_of(load.disk_read))
        return WaitCause(
            kind="storage",
            text="The loader waits for this node's disks.",
            evidence=(f"{_cores_text(load)} They read {rate} per second.",),
            next_knob="Stage shards on the node's fastest disk (node_local_dir of the profile), or "
            "in memory if there is room. More num_loader_threads keep more requests in flight.",
            confidence="high: cores are idle with a disk request outstanding",
        )
    if mean_of(load.cpu_busy) >= ALL_BUSY:
        return _busy_cores(load, numbers.device)
    if mean_of(load.cpu_busy) < _IDLE:
        return _idle_cores(load, numbers.num_loader_threads)
    return WaitCause(
        text="The cores are neither all busy nor idle, so several causes are possible.",
        evidence=(_cores_text(load),),
        next_knob=_GENERAL_KNOB,
        confidence="high that steps wait for data, low for the cause",
    )


def _busy_cores(load: NodeLoad, device: str) -> WaitCause:
    if are_cores_taken(load):
        return WaitCause(
            kind="cores",
            text="All cores are busy, many of them with processes outside of the job.",
            evidence=(taken_text(load),),
            next_knob=END_OTHERS_KNOB.format(node=load.node),
            confidence="medium: the readings show busy cores and whose processes run on them, not "
            "whether the loader waits for a core",
        )
    if device == "cpu":
        return WaitCause(
            kind="cores",
            text="All cores are busy: on CPUs the model and the loader share them.",
            evidence=(_cores_text(load),),
            next_knob=SHARED_CORES_KNOB,
            confidence="high that there are too few cores; the share of each is not known",
        )
    return WaitCause(
        kind="decoding",
        text="All cores are busy: decoding and collating use them.",
        evidence=(_cores_text(load),),
        next_knob="Request more cpus_per_task. Or decode less, with smaller stored images "
        "(`preprocess`). Augmentation costs time, too.",
        confidence="medium: the readings count all processes of the node",
    )


def _idle_cores(load: NodeLoad, num_threads: int | None) -> WaitCause:
    cores = _cores_text(load)
    if num_threads is None:
        return WaitCause(
            text="Cores are idle while the ranks wait: the loader has too few threads or "
            "workers, or its storage is slow.",
            evidence=(cores,),
            next_knob=_GENERAL_KNOB,
            confidence="medium: idle cores rule out decoding; the number of loader threads is not "
            "known",
        )
    threads = f"{cores} num_loader_threads is {num_threads} on each of"
    if num_threads * max(1, load.num_ranks) < load.num_cores:
        return WaitCause(
            text="Cores are idle while the ranks wait: the loader has too few threads, or each "
            "waits for a file system over the network.",
            evidence=(f"{threads} {units.number_of('rank', load.num_ranks)}.",),
            next_knob="Raise num_loader_threads. If that changes nothing, stage the shards on "
            "node-local storage (staging).",
            confidence="medium: idle cores rule out decoding, not a slow file system",
        )
    return WaitCause(
        kind="storage",
        text="Cores are idle while many loader threads wait: the storage is slow, as network file "
        "systems are with many small reads.",
        evidence=(f"{threads} {load.num_ranks} ranks.",),
        next_knob="Put large shards on node-local storage: `consolidate`, and staging in `train`. "
        "More threads or workers only queue up.",
        confidence="medium: idle cores rule out decoding; the rest is not timed separately",
    )


def _cores_text(load: NodeLoad) -> str:
    iowait = load.cpu_iowait
    waits = f", and {units.percent(iowait.mean)} wait for disks" if iowait is not None else ""
    return f"The cores of {load.node} are {units.percent(mean_of(load.cpu_busy))} busy{waits}."
