"""Causes of waits for data, from the activity of the loader's threads. PURE. See `data_wait`.

Each thread is on a core, ready for one, or blocked. So slow storage, decoding and too few threads
are distinguishable on every node, even if the file system is a network's and no disk seems busy.
All thresholds are own choices.
"""

from __future__ import annotations

import math

from slurm_jobs.report import words
from slurm_jobs.report.findings.base import Cause
from slurm_jobs.report.findings.foreign_load import KNOB, held_text, is_held
from slurm_jobs.report.model.load import LoaderLoad, NodeLoad
from slurm_jobs.report.numbers.load import cores_of_others, tells

_IDLE_THREADS = 0.60
_NO_CORE = 0.25
_BLOCKED = 0.50
_ONE_CORE = 0.70
_CORES_BUSY = 0.85


def cause_by_threads(loader: LoaderLoad, load: NodeLoad | None, device: str) -> Cause | None:
    """Return what held the threads up; None if they give no evidence.

    Args:
        loader: loader of the rank that waits longest.
        load: load of its node; None without readings.
        device: device of the model.
    """
    if loader.work_s <= 0:
        return None
    if loader.busy_share is not None and loader.busy_share < _IDLE_THREADS:
        return _read_ahead(loader)
    if loader.core_wait_s is not None and loader.core_wait_s >= _NO_CORE * loader.work_s:
        return _no_core(loader, load, device)
    if loader.read_blocked_s is not None and loader.read_blocked_s >= _BLOCKED * loader.step_s:
        return _lock(loader) if loader.cpu_s >= _ONE_CORE * loader.step_s else _one_reads(loader)
    is_blocked = loader.blocked_s >= _BLOCKED * loader.work_s
    if is_blocked and loader.core_wait_s is None:  # or for a core: see the node's readings
        return None
    if not is_blocked and loader.num_threads is None:  # one reads, others decode: which?
        return None
    if is_blocked:
        several = (loader.num_threads or 1) > 1
        held_up = several and loader.cpu_s >= _ONE_CORE * loader.step_s
        return _lock(loader) if held_up else _storage(loader, load)
    return _computing(loader, load, device)


def _computing(loader: LoaderLoad, load: NodeLoad | None, device: str) -> Cause:
    """Return the cause if threads compute all the time: whether there are more cores.

    Other processes make these threads wait for a core, at the latest if there are more threads. So
    their cores are not free, and full cores are the job's only as far as it uses them.
    """
    if load is not None and _use(load) >= _CORES_BUSY:
        return _no_core(loader, load, device) if device == "cpu" else _decoding(loader)
    if load is not None and load.num_cores:
        used = (loader.num_threads or 1) * max(1, load.num_ranks)
        if used < load.num_cores - (cores_of_others(load) or 0.0):
            return _threads(loader, load.num_cores)
        return _no_core(loader, load, device) if is_held(load) else _decoding(loader)
    return _threads(loader, None)


def _read_ahead(loader: LoaderLoad) -> Cause:
    assert loader.busy_share is not None
    idle = words.percent(1 - loader.busy_share)
    return Cause(
        kind="read-ahead",
        text="The loader's threads have nothing in hand for much of the time, and yet the ranks "
        "wait: too few batches are read ahead for all threads to work at once.",
        evidence=(*_told(loader), f"its threads are idle {idle} of the time"),
        next_knob="more num_prefetch_batches: at least twice num_loader_threads over the "
        "microbatches of a step",
        confidence="medium: the idle time of threads is timed",
    )


def _no_core(loader: LoaderLoad, load: NodeLoad | None, device: str) -> Cause:
    if load is not None and is_held(load):
        return Cause(
            kind="cores",
            text="The loader's threads want to compute and find no free core: processes that are "
            "not the job's hold them.",
            evidence=(*_told(loader), held_text(load)),
            next_knob=KNOB.format(node=load.node),
            confidence="high that its threads wait for a core; medium that others are why: a part "
            "of the waits may be for threads of the job itself",
        )
    with_whom = "the model and the loader share them" if device == "cpu" else "others have them"
    return Cause(
        kind="cores",
        text=f"The loader's threads want to compute and find no free core: {with_whom}. The cores "
        "are all busy.",
        evidence=_told(loader),
        next_knob="more cpus_per_task, or fewer ranks a node; with fewer num_loader_threads the "
        "model has more of them, and with more the loader",
        confidence="high: the kernel counts the waits of each thread for a core",
    )


def _storage(loader: LoaderLoad, load: NodeLoad | None) -> Cause:
    sees_disk = load is not None and load.cpu_iowait is not None and load.cpu_iowait.mean >= 0.1
    where = "this node's disks" if sees_disk else "storage"
    certainty = "high" if sees_disk else "medium"
    return Cause(
        kind="storage",
        text=f"The loader waits for {where}: its threads are blocked, and compute little.",
        evidence=_told(loader),
        next_knob="large shards on the node's fastest disk (staging; node_local_dir of the "
        f"profile), or in memory where it has room; {_needed(loader)} keep more requests on "
        "their way",
        confidence=f"{certainty}: the threads are neither on a core nor waiting for one; a lock "
        "would look the same",
    )


def _one_reads(loader: LoaderLoad) -> Cause:
    share = words.percent((loader.read_blocked_s or 0.0) / loader.step_s)
    return Cause(
        kind="storage",
        text="The loader waits for storage: one thread reads for all others, and is blocked for "
        "most of the time.",
        evidence=(*_told(loader), f"the thread that reads is blocked for {share} of the step"),
        next_knob="`reader: index`, where shards are files: all num_loader_threads read, where "
        "here more of them change nothing; or shards on faster storage (staging; node_local_dir "
        "of the profile)",
        confidence="medium: that thread is neither on a core nor waiting for one; a lock would "
        "look the same",
    )


def _lock(loader: LoaderLoad) -> Cause:
    return Cause(
        kind="lock",
        text="The loader's threads hold one another up: together they compute no more than one "
        "thread can, as code that holds the interpreter's lock does.",
        evidence=_told(loader),
        next_knob="less Python for each sample: `stored images` of the size that the model takes, "
        "no augmentation in Python; more threads change nothing",
        confidence="medium: slow storage with much decoding would look the same",
    )


def _decoding(loader: LoaderLoad) -> Cause:
    return Cause(
        kind="decoding",
        text="The loader computes all the time, and no core is left for more threads: decoding and "
        "putting batches together takes them.",
        evidence=_told(loader),
        next_knob="more cpus_per_task with as many num_loader_threads; or less to decode: smaller "
        "or raw stored images (`preprocess`); augmentation costs, too",
        confidence="high: its threads are on a core nearly all of their time",
    )


def _threads(loader: LoaderLoad, num_cores: int | None) -> Cause:
    free = "they hardly wait for a core"
    if num_cores is not None:
        free = f"some of the job's {num_cores} cores are free"
    return Cause(
        kind="threads",
        text=f"The loader has too few threads: those it has compute all the time, and {free}.",
        evidence=_told(loader),
        next_knob=_needed(loader),
        confidence="high: its threads are on a core nearly all of their time"
        if num_cores is not None
        else "medium: whether cores are free is not known without readings of the node",
    )


def _needed(loader: LoaderLoad) -> str:
    """Return how many threads would load a step's batches within the step without its wait."""
    rest_s = loader.step_s - loader.data_wait_s
    num = math.ceil(loader.work_s / rest_s) if rest_s > 0 else 0
    if not 0 < num <= 4 * (loader.num_threads or num):  # otherwise the remedy is another
        return "more num_loader_threads"
    return f"more num_loader_threads ({num} would keep up with the steps)"


def _told(loader: LoaderLoad) -> tuple[str, ...]:
    def part(seconds: float) -> str:
        return words.percent(seconds / loader.work_s)

    threads = words.number_of("thread", loader.num_threads) if loader.num_threads else "the threads"
    queued = ""
    if loader.core_wait_s is not None:
        queued = f", waiting for a core {part(loader.core_wait_s)}"
    told = (
        f"{threads} of rank {loader.rank}'s loader work {words.seconds(loader.work_s)} on a step; "
        f"of that computing {part(loader.cpu_s)}{queued}, blocked {part(loader.blocked_s)}"
    )
    return (told,)


def _use(load: NodeLoad) -> float:
    """Return the share of the job's cores that its processes use; by all if unknown."""
    if tells(load.job_cpu_cores) and load.job_cpu_cores is not None and load.num_cores:
        return load.job_cpu_cores.mean / load.num_cores
    return load.cpu_busy.mean if tells(load.cpu_busy) and load.cpu_busy is not None else 0.0
