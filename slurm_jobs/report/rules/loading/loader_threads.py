"""Causes of waits for data, from the activity of the loader's threads. PURE.

Each thread is on a core, ready for one, or blocked. So slow storage, decoding and too few threads
are distinguishable on every node, even if the file system is on the network and no disk seems busy.
All thresholds are own choices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from slurm_jobs.base import units
from slurm_jobs.report.numbers.trainings.node_load import cores_of_others, has_readings, mean_of
from slurm_jobs.report.rules.loading.foreign_load import (
    END_OTHERS_KNOB,
    are_cores_taken,
    taken_text,
)
from slurm_jobs.report.values.load_model import LoaderLoad, NodeLoad

_IDLE_THREADS = 0.60
_NO_CORE = 0.25
_BLOCKED = 0.50
_ONE_CORE = 0.70
ALL_BUSY = 0.85
WAITS_FOR_DISKS = 0.10

CauseKind = Literal["storage", "decoding", "cores", "threads", "read-ahead", "lock", ""]

CAUSE_TITLES: dict[CauseKind, str] = {
    "storage": "storage is slow",
    "decoding": "decoding uses all cores",
    "cores": "the loader finds no free core",
    "threads": "too few loader threads",
    "read-ahead": "too few batches are read ahead",
    "lock": "the loader's threads block each other",
    "": "",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class WaitCause:
    """Cause of waits for data."""

    kind: CauseKind = ""
    """Empty if no evidence identifies it."""
    text: str
    evidence: tuple[str, ...]
    """Empty if there is none."""
    next_knob: str
    confidence: str


SHARED_CORES_KNOB = (
    "Request more cpus_per_task, or run fewer ranks per node. num_loader_threads divides the cores "
    "between loader and model."
)

_ONE_READS = WaitCause(
    kind="storage",
    text="The loader waits for storage: one thread reads for all others, and is blocked most of "
    "the time.",
    evidence=(),
    next_knob="If the shards are files, set `reader: index`: then all num_loader_threads read, "
    "while with this reader only one does. Or put the shards on faster storage (staging, "
    "node_local_dir of the profile).",
    confidence="medium: that thread is neither on a core nor waiting for one; a lock would "
    "look the same",
)
_LOCK = WaitCause(
    kind="lock",
    text="The loader's threads block each other: together they compute no more than one thread "
    "can, as Python code does that holds the interpreter's lock.",
    evidence=(),
    next_knob="Run less Python for each sample: use `stored images` of the size that the model "
    "takes, and no augmentation in Python. More threads change nothing.",
    confidence="medium: slow storage with much decoding would look the same",
)
_DECODING = WaitCause(
    kind="decoding",
    text="The loader computes all the time, and no core is free for more threads: decoding and "
    "collating use them all.",
    evidence=(),
    next_knob="Request more cpus_per_task and set as many num_loader_threads. Or decode less, with "
    "smaller or raw stored images (`preprocess`). Augmentation costs time, too.",
    confidence="high: its threads are on a core nearly all of their time",
)


def cause_by_threads(loader: LoaderLoad, load: NodeLoad | None, device: str) -> WaitCause | None:
    """Return what delayed the threads; None if they give no evidence.

    Args:
        loader: loader of the rank that waits longest.
        load: load of its node; None without readings.
        device: device of the model.
    """
    if loader.work_s <= 0:
        return None
    evidence = _threads_text(loader)
    if loader.busy_share is not None and loader.busy_share < _IDLE_THREADS:
        idle = units.percent(1 - loader.busy_share)
        return WaitCause(
            kind="read-ahead",
            text="The loader's threads are idle much of the time although the ranks wait: too few "
            "batches are read ahead to keep all threads busy.",
            evidence=(evidence, f"Its threads are idle {idle} of the time."),
            next_knob="Raise num_prefetch_batches to at least twice num_loader_threads over the "
            "microbatches of a step.",
            confidence="medium: the idle time of threads is timed",
        )
    if loader.core_wait_s is not None and loader.core_wait_s >= _NO_CORE * loader.work_s:
        return _no_core(loader, load, device)
    computes_on_one_core = loader.cpu_s >= _ONE_CORE * loader.step_s
    if loader.read_blocked_s is not None and loader.read_blocked_s >= _BLOCKED * loader.step_s:
        if computes_on_one_core:
            return replace(_LOCK, evidence=(evidence,))
        blocked = units.percent(loader.read_blocked_s / loader.step_s)
        reads = f"The thread that reads is blocked for {blocked} of the step."
        return replace(_ONE_READS, evidence=(evidence, reads))
    if loader.blocked_s < _BLOCKED * loader.work_s:
        # With streamed shards one thread reads and others decode: unknown which of them computes.
        return None if loader.num_threads is None else _computing(loader, load, device)
    if loader.core_wait_s is None:  # blocked, or ready for a core: see the node's readings
        return None
    if (loader.num_threads or 1) > 1 and computes_on_one_core:
        return replace(_LOCK, evidence=(evidence,))
    sees_disk = load is not None and mean_of(load.cpu_iowait) >= WAITS_FOR_DISKS
    where = "this node's disks" if sees_disk else "storage"
    return WaitCause(
        kind="storage",
        text=f"The loader waits for {where}: its threads are blocked most of the time.",
        evidence=(evidence,),
        next_knob="Put large shards on the node's fastest disk (staging, node_local_dir of the "
        f"profile), or in memory if there is room. {_threads_needed(loader)} to keep more requests "
        "in flight.",
        confidence=f"{'high' if sees_disk else 'medium'}: the threads are neither on a core nor "
        "waiting for one; a lock would look the same",
    )


def _computing(loader: LoaderLoad, load: NodeLoad | None, device: str) -> WaitCause:
    """Return the cause if threads compute all the time: too few threads only if cores are free.

    Cores of other processes are not free: more threads would wait for them.
    """
    free = "they rarely wait for a core"
    confidence = "medium: without readings of the node it is not known whether cores are free"
    if load is not None and (load.num_cores or _use(load) >= ALL_BUSY):
        num_threads = (loader.num_threads or 1) * max(1, load.num_ranks)
        is_full = _use(load) >= ALL_BUSY
        if is_full or num_threads >= load.num_cores - (cores_of_others(load) or 0.0):
            others_compute = device == "cpu" if is_full else are_cores_taken(load)
            if others_compute:
                return _no_core(loader, load, device)
            return replace(_DECODING, evidence=(_threads_text(loader),))
        free = f"some of the job's {load.num_cores} cores are free"
        confidence = "high: its threads are on a core nearly all of their time"
    return WaitCause(
        kind="threads",
        text=f"The loader has too few threads: they compute all the time, and {free}.",
        evidence=(_threads_text(loader),),
        next_knob=f"{_threads_needed(loader)}.",
        confidence=confidence,
    )


def _use(load: NodeLoad) -> float:
    """Return the share of the job's cores that its processes use; if unknown, that all use."""
    if has_readings(load.job_cpu_cores) and load.num_cores:
        return mean_of(load.job_cpu_cores) / load.num_cores
    return mean_of(load.cpu_busy) if has_readings(load.cpu_busy) else 0.0


def _no_core(loader: LoaderLoad, load: NodeLoad | None, device: str) -> WaitCause:
    if load is not None and are_cores_taken(load):
        return WaitCause(
            kind="cores",
            text="The loader's threads wait for a free core: processes outside of the job have "
            "them.",
            evidence=(_threads_text(loader), taken_text(load)),
            next_knob=END_OTHERS_KNOB.format(node=load.node),
            confidence="high that its threads wait for a core; medium for the cause: some waits "
            "may be for other threads of the job",
        )
    owners = "the model and the loader share them" if device == "cpu" else "other threads have them"
    return WaitCause(
        kind="cores",
        text=f"The loader's threads wait for a free core: {owners}. All cores are busy.",
        evidence=(_threads_text(loader),),
        next_knob=SHARED_CORES_KNOB,
        confidence="high: the kernel counts the waits of each thread for a core",
    )


def _threads_needed(loader: LoaderLoad) -> str:
    """Advise as many threads as load a step's batches in the time that the step computes."""
    rest_s = loader.step_s - loader.data_wait_s
    num = math.ceil(loader.work_s / rest_s) if rest_s > 0 else 0
    if not 0 < num <= 4 * (loader.num_threads or num):  # else threads are not the remedy
        return "Raise num_loader_threads"
    return f"Raise num_loader_threads ({num} would keep up with the steps)"


def _threads_text(loader: LoaderLoad) -> str:
    def part(seconds: float) -> str:
        return units.percent(seconds / loader.work_s)

    threads = units.number_of("thread", loader.num_threads) if loader.num_threads else "The threads"
    wait_s = loader.core_wait_s
    queued = "" if wait_s is None else f", wait for a core {part(wait_s)}"
    return (
        f"{threads} of rank {loader.rank}'s loader work {units.seconds(loader.work_s)} on a step. "
        f"They compute {part(loader.cpu_s)} of that{queued} and are blocked "
        f"{part(loader.blocked_s)}."
    )
