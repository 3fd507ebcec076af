"""Rules on waiting for data: storage, decoding, threads, foreign load. PURE."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from slurm_jobs.report.node_load import (
    MIN_READINGS,
    cores_of_others,
    cores_taken,
    has_readings,
    mean_of,
)
from slurm_jobs.report.report_model import Check, Finding, LoaderLoad, NodeLoad, TrainingNumbers
from slurm_jobs.report.rules.base import abstain, clear, rule, share_of
from slurm_jobs.shared import units

# Other processes that hold the job's cores. Busy cores are no evidence: a neighbour on other cores,
# or a job that computes little, is normal. Evidence is what the kernel counted as a wait: a thread
# of the job was ready, and had no core.


_TAKEN = 0.25
"""Share of the requested cores. Less may be the kernel's work for disks and networks."""
_WAITS, _WAITS_LONG = 0.05, 0.20
_LOADER_WAITS = 0.25
"""Share of the loader's work, as in the finding on data wait. All are own choices."""
_END_OTHERS = (
    "`top` on {node} shows them. On your own machine stop them; on a cluster (`squeue -w {node}`) "
    "ask the site whether jobs are bound to their cores (cgroups), or request whole nodes "
    "(`resources: {{slurm: {{exclusive: true}}}}`)"
)


def _are_cores_taken(load: NodeLoad) -> bool:
    """Check whether others keep so many of the job's cores busy that too few remain."""
    num_cores = cores_taken(load)
    return (
        num_cores is not None and load.num_cores > 0 and num_cores >= _TAKEN * load.num_cores_asked
    )


def _taken_text(load: NodeLoad) -> str:
    job = "" if load.job_cpu_cores is None else f", its own {load.job_cpu_cores.mean:.1f}"
    others = "" if load.other_cores is None else f"{max(0.0, load.other_cores.mean):.1f}"
    return (
        f"of the {load.num_cores} cores of {load.node} that the job may use, other processes keep "
        f"{others} busy{job}: {cores_taken(load) or 0.0:.1f} of the {load.num_cores_asked} "
        "requested cores are taken"
    )


@rule(
    "foreign-load",
    "other processes keep 25 % of the requested cores busy, and the main thread waits for a core "
    "5 % of its time (20 %: high), or the loader's threads 25 % of their work while steps wait "
    "for data",
    needs_steps=True,
)
def foreign_load(numbers: TrainingNumbers) -> Finding | Check:
    """Find other processes on a quarter of the requested cores, while the job waits for cores."""
    known = [load for load in numbers.loads if cores_taken(load) is not None and load.num_cores]
    if not known:
        return abstain(
            f"fewer than {MIN_READINGS} readings of a node show how busy its cores were, and with "
            "whose processes"
        )
    crowded = [load for load in known if _are_cores_taken(load)]
    if not crowded:
        fullest = max(known, key=lambda load: (cores_taken(load) or 0.0) / load.num_cores_asked)
        return clear(_taken_text(fullest))
    waits = [_core_waits(numbers, load.node) for load in crowded]
    if all(wait.step_share is None and wait.loader_share is None for wait in waits):
        return abstain("neither the records nor the kernel show how long threads waited for a core")
    # Means of the same threads decide for all nodes, so the first of equal ones counts.
    worst, load = max(
        zip(waits, crowded, strict=True),
        key=lambda pair: (pair[0].is_long, pair[0].step_share or 0.0),
    )
    if not worst.is_long:
        return clear(f"{_taken_text(load)}; its threads rarely wait for a core")
    evidence = [_taken_text(load)]
    if worst.step_share is not None:
        evidence.append(
            f"the main thread of rank {worst.rank} waits for a core "
            f"{units.percent(worst.step_share)} of its time"
        )
    if worst.loader_is_long and numbers.loader is not None:
        evidence.append(
            f"the loader's threads of rank {numbers.loader.rank} wait for a core "
            f"{units.percent(worst.loader_share or 0.0)} of their work"
        )
    return Finding(
        severity="high" if (worst.step_share or 0.0) >= _WAITS_LONG else "medium",
        title=f"other processes use the job's cores on {load.node}",
        text="Processes outside of the job run on these cores while its own threads wait.",
        evidence=tuple(evidence),
        next_knob=_END_OTHERS.format(node=load.node),
        ceiling="not known: shared caches and a lower clock also slow down threads that have a "
        "core, and some waits are for other threads of the job",
        confidence="high that its threads wait: the kernel counts it; medium for the cause: time "
        "that the host of a virtual machine takes, and short-lived processes of the job, look the "
        "same",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _CoreWaits:
    """Waits for cores of one node."""

    rank: int
    """Rank with the largest `step_share`."""
    step_share: float | None
    """Share of its step; None if no rank's is known."""
    loader_share: float | None
    """Share of the loader's work; None if unknown, or if the loader is on another node."""
    loader_is_long: bool
    """The loader waits for cores while steps wait for data."""

    @property
    def is_long(self) -> bool:
        return (self.step_share or 0.0) >= _WAITS or self.loader_is_long


def _core_waits(numbers: TrainingNumbers, node: str) -> _CoreWaits:
    shares: dict[int, float] = {}
    for rank in numbers.ranks:
        if rank.node == node and rank.core_wait_mean_s is not None and rank.step_mean_s > 0:
            shares.setdefault(rank.rank, rank.core_wait_mean_s / rank.step_mean_s)
    worst = max(shares, key=lambda rank: shares[rank], default=-1)
    loader, loader_share = numbers.loader, None
    if loader is not None and loader.node == node and loader.work_s > 0:
        wait_s = loader.core_wait_s
        loader_share = None if wait_s is None else wait_s / loader.work_s
    is_long = loader_share is not None and loader_share >= _LOADER_WAITS
    return _CoreWaits(
        rank=worst,
        step_share=shares.get(worst),
        loader_share=loader_share,
        loader_is_long=is_long and share_of(numbers, "data_wait")[0] >= _WAITS,
    )


# Causes of waits for data, from the activity of the loader's threads. Each thread is on a core,
# ready for one, or blocked. So slow storage, decoding and too few threads are distinguishable on
# every node, even if the file system is on the network and no disk seems busy. All thresholds are
# own choices.


_IDLE_THREADS = 0.60
_NO_CORE = 0.25
_BLOCKED = 0.50
_ONE_CORE = 0.70
_ALL_BUSY = 0.85
_WAITS_FOR_DISKS = 0.10
_IDLE = 0.50

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
class Cause:
    """Cause of waits for data."""

    kind: CauseKind = ""
    """Empty if no evidence identifies it."""
    text: str
    evidence: tuple[str, ...]
    """Empty if there is none."""
    next_knob: str
    confidence: str


_SHARED_CORES_KNOB = (
    "more cpus_per_task, or fewer ranks per node; num_loader_threads divides the cores between "
    "loader and model"
)

_ONE_READS = Cause(
    kind="storage",
    text="The loader waits for storage: one thread reads for all others, and is blocked most of "
    "the time.",
    evidence=(),
    next_knob="`reader: index`, if the shards are files: then all num_loader_threads read (with "
    "this reader only one does); or shards on faster storage (staging; node_local_dir of the "
    "profile)",
    confidence="medium: that thread is neither on a core nor waiting for one; a lock would "
    "look the same",
)
_LOCK = Cause(
    kind="lock",
    text="The loader's threads block each other: together they compute no more than one thread "
    "can, as Python code does that holds the interpreter's lock.",
    evidence=(),
    next_knob="less Python for each sample: `stored images` of the size that the model takes, "
    "no augmentation in Python; more threads change nothing",
    confidence="medium: slow storage with much decoding would look the same",
)
_DECODING = Cause(
    kind="decoding",
    text="The loader computes all the time, and no core is free for more threads: decoding and "
    "collating use them all.",
    evidence=(),
    next_knob="more cpus_per_task with as many num_loader_threads; or less to decode: smaller "
    "or raw stored images (`preprocess`); augmentation costs, too",
    confidence="high: its threads are on a core nearly all of their time",
)


def cause_by_threads(loader: LoaderLoad, load: NodeLoad | None, device: str) -> Cause | None:
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
        return Cause(
            kind="read-ahead",
            text="The loader's threads are idle much of the time although the ranks wait: too few "
            "batches are read ahead to keep all threads busy.",
            evidence=(evidence, f"its threads are idle {idle} of the time"),
            next_knob="more num_prefetch_batches: at least twice num_loader_threads over the "
            "microbatches of a step",
            confidence="medium: the idle time of threads is timed",
        )
    if loader.core_wait_s is not None and loader.core_wait_s >= _NO_CORE * loader.work_s:
        return _no_core(loader, load, device)
    computes_on_one_core = loader.cpu_s >= _ONE_CORE * loader.step_s
    if loader.read_blocked_s is not None and loader.read_blocked_s >= _BLOCKED * loader.step_s:
        if computes_on_one_core:
            return replace(_LOCK, evidence=(evidence,))
        blocked = units.percent(loader.read_blocked_s / loader.step_s)
        reads = f"the thread that reads is blocked for {blocked} of the step"
        return replace(_ONE_READS, evidence=(evidence, reads))
    if loader.blocked_s < _BLOCKED * loader.work_s:
        # With streamed shards one thread reads and others decode: unknown which of them computes.
        return None if loader.num_threads is None else _computing(loader, load, device)
    if loader.core_wait_s is None:  # blocked, or ready for a core: see the node's readings
        return None
    if (loader.num_threads or 1) > 1 and computes_on_one_core:
        return replace(_LOCK, evidence=(evidence,))
    sees_disk = load is not None and mean_of(load.cpu_iowait) >= _WAITS_FOR_DISKS
    where = "this node's disks" if sees_disk else "storage"
    return Cause(
        kind="storage",
        text=f"The loader waits for {where}: its threads are blocked most of the time.",
        evidence=(evidence,),
        next_knob="large shards on the node's fastest disk (staging; node_local_dir of the "
        f"profile), or in memory if there is room; {_threads_needed(loader)} keep more requests in "
        "flight",
        confidence=f"{'high' if sees_disk else 'medium'}: the threads are neither on a core nor "
        "waiting for one; a lock would look the same",
    )


def _computing(loader: LoaderLoad, load: NodeLoad | None, device: str) -> Cause:
    """Return the cause if threads compute all the time: too few threads only if cores are free.

    Cores of other processes are not free: more threads would wait for them.
    """
    free = "they rarely wait for a core"
    confidence = "medium: without readings of the node it is not known whether cores are free"
    if load is not None and (load.num_cores or _use(load) >= _ALL_BUSY):
        num_threads = (loader.num_threads or 1) * max(1, load.num_ranks)
        is_full = _use(load) >= _ALL_BUSY
        if is_full or num_threads >= load.num_cores - (cores_of_others(load) or 0.0):
            others_compute = device == "cpu" if is_full else _are_cores_taken(load)
            if others_compute:
                return _no_core(loader, load, device)
            return replace(_DECODING, evidence=(_threads_text(loader),))
        free = f"some of the job's {load.num_cores} cores are free"
        confidence = "high: its threads are on a core nearly all of their time"
    return Cause(
        kind="threads",
        text=f"The loader has too few threads: they compute all the time, and {free}.",
        evidence=(_threads_text(loader),),
        next_knob=_threads_needed(loader),
        confidence=confidence,
    )


def _use(load: NodeLoad) -> float:
    """Return the share of the job's cores that its processes use; if unknown, that all use."""
    if has_readings(load.job_cpu_cores) and load.num_cores:
        return mean_of(load.job_cpu_cores) / load.num_cores
    return mean_of(load.cpu_busy) if has_readings(load.cpu_busy) else 0.0


def _no_core(loader: LoaderLoad, load: NodeLoad | None, device: str) -> Cause:
    if load is not None and _are_cores_taken(load):
        return Cause(
            kind="cores",
            text="The loader's threads wait for a free core: processes outside of the job have "
            "them.",
            evidence=(_threads_text(loader), _taken_text(load)),
            next_knob=_END_OTHERS.format(node=load.node),
            confidence="high that its threads wait for a core; medium for the cause: some waits "
            "may be for other threads of the job",
        )
    owners = "the model and the loader share them" if device == "cpu" else "other threads have them"
    return Cause(
        kind="cores",
        text=f"The loader's threads wait for a free core: {owners}. All cores are busy.",
        evidence=(_threads_text(loader),),
        next_knob=_SHARED_CORES_KNOB,
        confidence="high: the kernel counts the waits of each thread for a core",
    )


def _threads_needed(loader: LoaderLoad) -> str:
    """Return how many threads would load a step's batches as fast as the step computes."""
    rest_s = loader.step_s - loader.data_wait_s
    num = math.ceil(loader.work_s / rest_s) if rest_s > 0 else 0
    if not 0 < num <= 4 * (loader.num_threads or num):  # else threads are not the remedy
        return "more num_loader_threads"
    return f"more num_loader_threads ({num} would keep up with the steps)"


def _threads_text(loader: LoaderLoad) -> str:
    def part(seconds: float) -> str:
        return units.percent(seconds / loader.work_s)

    threads = units.number_of("thread", loader.num_threads) if loader.num_threads else "the threads"
    wait_s = loader.core_wait_s
    queued = "" if wait_s is None else f", waiting for a core {part(wait_s)}"
    return (
        f"{threads} of rank {loader.rank}'s loader work {units.seconds(loader.work_s)} on a step; "
        f"of that computing {part(loader.cpu_s)}{queued}, blocked {part(loader.blocked_s)}"
    )


# Causes of waits for data, from the load of the nodes. The step records show that a rank waits;
# the node's cores show what its loader does meanwhile. All busy: it decodes. Idle with an
# outstanding disk request: it waits for the node's disks. Idle without one: there are too few
# threads, or they wait for a network file system.


_GENERAL_KNOB = (
    "more num_loader_threads, then num_prefetch_batches; check that shards were staged on "
    "node-local storage, and that cpus_per_task leaves cores for the loader"
)


def find_cause(numbers: TrainingNumbers) -> Cause:
    """Return the cause from the node with the longest wait: one starved rank delays all."""
    starved = max(numbers.ranks, key=lambda rank: rank.phases_s["data_wait"], default=None)
    loads = {load.node: load for load in numbers.loads if has_readings(load.cpu_busy)}
    load = loads.get(starved.node) if starved is not None else None
    if numbers.loader is not None:
        cause = cause_by_threads(numbers.loader, load, numbers.device)
        if cause is not None:
            return cause
    if load is None:
        return Cause(
            text="",
            evidence=(),
            next_knob=_GENERAL_KNOB,
            confidence="high that steps wait for data; without readings of nodes the cause is not "
            "known",
        )
    if has_readings(load.cpu_iowait) and mean_of(load.cpu_iowait) >= _WAITS_FOR_DISKS:
        rate = units.num_bytes(mean_of(load.disk_read))
        return Cause(
            kind="storage",
            text="The loader waits for this node's disks.",
            evidence=(f"{_cores_text(load)}; {rate} read a second",),
            next_knob="stage shards on the node's fastest disk (node_local_dir of the profile), or "
            "in memory if there is room; more num_loader_threads keep more requests in flight",
            confidence="high: cores are idle with a disk request outstanding",
        )
    if mean_of(load.cpu_busy) >= _ALL_BUSY:
        return _busy_cores(load, numbers.device)
    if mean_of(load.cpu_busy) < _IDLE:
        return _idle_cores(load, numbers.num_loader_threads)
    return Cause(
        text="The cores are neither all busy nor idle, so several causes are possible.",
        evidence=(_cores_text(load),),
        next_knob=_GENERAL_KNOB,
        confidence="high that steps wait for data, low for the cause",
    )


def _busy_cores(load: NodeLoad, device: str) -> Cause:
    if _are_cores_taken(load):
        return Cause(
            kind="cores",
            text="All cores are busy, many of them with processes outside of the job.",
            evidence=(_taken_text(load),),
            next_knob=_END_OTHERS.format(node=load.node),
            confidence="medium: the readings show busy cores and whose processes run on them, not "
            "whether the loader waits for a core",
        )
    if device == "cpu":
        return Cause(
            kind="cores",
            text="All cores are busy: on CPUs the model and the loader share them.",
            evidence=(_cores_text(load),),
            next_knob=_SHARED_CORES_KNOB,
            confidence="high that there are too few cores; the share of each is not known",
        )
    return Cause(
        kind="decoding",
        text="All cores are busy: decoding and collating use them.",
        evidence=(_cores_text(load),),
        next_knob="more cpus_per_task; or less to decode: smaller stored images (`preprocess`); "
        "augmentation costs, too",
        confidence="medium: the readings count all processes of the node",
    )


def _idle_cores(load: NodeLoad, num_threads: int | None) -> Cause:
    cores = _cores_text(load)
    if num_threads is None:
        return Cause(
            text="Cores are idle while the ranks wait: the loader has too few threads or "
            "workers, or its storage is slow.",
            evidence=(cores,),
            next_knob=_GENERAL_KNOB,
            confidence="medium: idle cores rule out decoding; the number of loader threads is not "
            "known",
        )
    threads = f"{cores}; num_loader_threads is {num_threads} on each of"
    if num_threads * max(1, load.num_ranks) < load.num_cores:
        return Cause(
            text="Cores are idle while the ranks wait: the loader has too few threads, or each "
            "waits for a file system over the network.",
            evidence=(f"{threads} {units.number_of('rank', load.num_ranks)}",),
            next_knob="more num_loader_threads; if that changes nothing, stage the shards on "
            "node-local storage (staging)",
            confidence="medium: idle cores rule out decoding, not a slow file system",
        )
    return Cause(
        kind="storage",
        text="Cores are idle while many loader threads wait: the storage is slow, as network file "
        "systems are with many small reads.",
        evidence=(f"{threads} {load.num_ranks} ranks",),
        next_knob="large shards on node-local storage: `consolidate`, and staging in `train`; more "
        "threads or workers only queue up",
        confidence="medium: idle cores rule out decoding; the rest is not timed separately",
    )


def _cores_text(load: NodeLoad) -> str:
    iowait = load.cpu_iowait
    waits = f", {units.percent(iowait.mean)} wait for disks" if iowait is not None else ""
    return f"cores of {load.node}: {units.percent(mean_of(load.cpu_busy))} busy{waits}"
