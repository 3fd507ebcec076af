"""Rules on waiting for data: storage, decoding, threads, foreign load. PURE."""

from __future__ import annotations

import math

from slurm_jobs.report.node_load import MIN_READINGS, cores_held, cores_of_others, tells
from slurm_jobs.report.report_model import (
    Check,
    Finding,
    LoaderLoad,
    NodeLoad,
    RankNumbers,
    TrainingNumbers,
)
from slurm_jobs.report.rules.base import Cause, abstain, clear, rule, share_of
from slurm_jobs.shared import units

# Rule on other processes that hold the job's cores. `findings` describes rules.
#
# Busy cores are no evidence: a neighbour on other cores, or a job that computes little, is normal.
# Evidence is what the kernel counted as a wait: a thread of the job was ready, and had no core.


_HELD = 0.25
"""Share of the requested cores. Less may be the kernel's work for disks and networks."""
_WAITS, _WAITS_LONG = 0.05, 0.20
_LOADER_WAITS = 0.25
"""Share of the loader's work, as in the finding on data wait. All are own choices."""
KNOB = (
    "`top` on {node} shows whose they are: on a machine of your own end what else computes; on a "
    "cluster (`squeue -w {node}`) ask the site whether jobs are bound to their cores (cgroups), or "
    "take whole nodes (`resources: {{slurm: {{exclusive: true}}}}`)"
)


def is_held(load: NodeLoad) -> bool:
    """Check whether others keep so many of the job's cores busy that too few remain."""
    held = cores_held(load)
    return held is not None and load.num_cores > 0 and held >= _HELD * load.num_cores_asked


def held_text(load: NodeLoad) -> str:
    """Return how many cores others hold, and what the job has."""
    own = "" if load.job_cpu_cores is None else f", its own {load.job_cpu_cores.mean:.1f}"
    others = "" if load.other_cores is None else f"{max(0.0, load.other_cores.mean):.1f}"
    return (
        f"of the {load.num_cores} cores of {load.node} that the job may use, processes of others "
        f"keep {others} busy{own}: others hold {cores_held(load) or 0.0:.1f} of the "
        f"{load.num_cores_asked} that it asked for"
    )


@rule(
    "others keep 25 % of the cores asked for busy, and the thread that makes the steps waits for a "
    "core 5 % of its time (20 %: high), or the loader's threads 25 % of their work while steps "
    "wait for data"
)
def foreign_load(numbers: TrainingNumbers) -> Finding | Check:
    """Find others that hold a quarter of a node's cores while the job's threads wait for them."""
    rule_id = f"foreign-load:{numbers.stage}"
    if numbers.too_few:
        return abstain(rule_id, numbers.too_few)
    told = [load for load in numbers.loads if cores_held(load) is not None and load.num_cores]
    if not told:
        return abstain(
            rule_id,
            f"fewer than {MIN_READINGS} readings of a node show how busy its cores were, and what "
            "of that was the job's own",
        )
    held = [load for load in told if is_held(load)]
    if not held:
        return clear(rule_id, held_text(max(told, key=_share)))
    if not any(_waits(numbers, load) for load in held):
        reason = "neither the records nor the kernel show how long threads waited for a core"
        return abstain(rule_id, reason)
    worst = max(held, key=lambda load: (_suffers(numbers, load), _longest(numbers, load)))
    if not _suffers(numbers, worst):
        return clear(rule_id, f"{held_text(worst)}; its threads hardly wait for a core")
    return _finding(numbers, worst)


def _suffers(numbers: TrainingNumbers, load: NodeLoad) -> bool:
    return _longest(numbers, load) >= _WAITS or _loader_waits(numbers, load)


def _finding(numbers: TrainingNumbers, load: NodeLoad) -> Finding:
    return Finding(
        rule_id=f"foreign-load:{numbers.stage}",
        severity="high" if _longest(numbers, load) >= _WAITS_LONG else "medium",
        title=f"other processes hold the job's cores on {load.node} ({numbers.stage})",
        text="Processes that are not the job's compute on its cores, while its own threads are "
        "ready and wait for one.",
        evidence=(held_text(load), *_told(numbers, load)),
        next_knob=KNOB.format(node=load.node),
        ceiling="not known: who shares cores, caches and clock slows a thread down also while it "
        "has a core, and a part of the waits is for threads of the job itself",
        confidence="high that its threads wait: the kernel counts it; medium that others are "
        "why: what the host of a virtual machine takes, and short-lived processes of the job "
        "itself, look the same",
    )


def _told(numbers: TrainingNumbers, load: NodeLoad) -> tuple[str, ...]:
    found = []
    ranks = [rank for rank in numbers.ranks if rank.node == load.node]
    worst = max(ranks, key=lambda rank: _share_of_rank(rank) or 0.0, default=None)
    if worst is not None and (share := _share_of_rank(worst)) is not None:
        found.append(
            f"the thread that makes the steps of rank {worst.rank} waits for a core "
            f"{units.percent(share)} of its time"
        )
    if _loader_waits(numbers, load) and (loader := numbers.loader) is not None:
        share = (loader.core_wait_s or 0.0) / loader.work_s
        found.append(
            f"the loader's threads of rank {loader.rank} wait for a core {units.percent(share)} "
            "of their work"
        )
    return tuple(found)


def _waits(numbers: TrainingNumbers, load: NodeLoad) -> list[float]:
    """Return shares of the step in which ranks waited for a core, and of a loader's work."""
    ranks = [_share_of_rank(rank) for rank in numbers.ranks if rank.node == load.node]
    loader = numbers.loader
    is_there = loader is not None and loader.node == load.node and loader.work_s > 0
    of_loader = loader.core_wait_s if loader is not None and is_there else None
    return [share for share in (*ranks, of_loader) if share is not None]


def _longest(numbers: TrainingNumbers, load: NodeLoad) -> float:
    """Return the largest share of the step in which a rank there waited for a core."""
    ranks = (_share_of_rank(rank) for rank in numbers.ranks if rank.node == load.node)
    return max((share for share in ranks if share is not None), default=0.0)


def _share_of_rank(rank: RankNumbers) -> float | None:
    if rank.core_wait_mean_s is None or rank.step_mean_s <= 0:
        return None
    return rank.core_wait_mean_s / rank.step_mean_s


def _loader_waits(numbers: TrainingNumbers, load: NodeLoad) -> bool:
    """Check whether steps wait for data, and the loader for cores."""
    loader = numbers.loader
    if loader is None or loader.node != load.node or loader.core_wait_s is None:
        return False
    is_long = loader.work_s > 0 and loader.core_wait_s >= _LOADER_WAITS * loader.work_s
    return is_long and share_of(numbers, "data_wait")[0] >= _WAITS


def _share(load: NodeLoad) -> float:
    return (cores_held(load) or 0.0) / load.num_cores_asked


# Causes of waits for data, from the activity of the loader's threads. See `data_wait`.
#
# Each thread is on a core, ready for one, or blocked. So slow storage, decoding and too few
# threads are distinguishable on every node, even if the file system is a network's and no disk
# seems busy. All thresholds are own choices.


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
    idle = units.percent(1 - loader.busy_share)
    return Cause(
        kind="read-ahead",
        text="The loader's threads have nothing in hand for much of the time, and yet the ranks "
        "wait: too few batches are read ahead for all threads to work at once.",
        evidence=(*_threads_text(loader), f"its threads are idle {idle} of the time"),
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
            evidence=(*_threads_text(loader), held_text(load)),
            next_knob=KNOB.format(node=load.node),
            confidence="high that its threads wait for a core; medium that others are why: a part "
            "of the waits may be for threads of the job itself",
        )
    with_whom = "the model and the loader share them" if device == "cpu" else "others have them"
    return Cause(
        kind="cores",
        text=f"The loader's threads want to compute and find no free core: {with_whom}. The cores "
        "are all busy.",
        evidence=_threads_text(loader),
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
        evidence=_threads_text(loader),
        next_knob="large shards on the node's fastest disk (staging; node_local_dir of the "
        f"profile), or in memory where it has room; {_needed(loader)} keep more requests on "
        "their way",
        confidence=f"{certainty}: the threads are neither on a core nor waiting for one; a lock "
        "would look the same",
    )


def _one_reads(loader: LoaderLoad) -> Cause:
    share = units.percent((loader.read_blocked_s or 0.0) / loader.step_s)
    return Cause(
        kind="storage",
        text="The loader waits for storage: one thread reads for all others, and is blocked for "
        "most of the time.",
        evidence=(
            *_threads_text(loader),
            f"the thread that reads is blocked for {share} of the step",
        ),
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
        evidence=_threads_text(loader),
        next_knob="less Python for each sample: `stored images` of the size that the model takes, "
        "no augmentation in Python; more threads change nothing",
        confidence="medium: slow storage with much decoding would look the same",
    )


def _decoding(loader: LoaderLoad) -> Cause:
    return Cause(
        kind="decoding",
        text="The loader computes all the time, and no core is left for more threads: decoding and "
        "putting batches together takes them.",
        evidence=_threads_text(loader),
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
        evidence=_threads_text(loader),
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


def _threads_text(loader: LoaderLoad) -> tuple[str, ...]:
    def part(seconds: float) -> str:
        return units.percent(seconds / loader.work_s)

    threads = units.number_of("thread", loader.num_threads) if loader.num_threads else "the threads"
    queued = ""
    if loader.core_wait_s is not None:
        queued = f", waiting for a core {part(loader.core_wait_s)}"
    told = (
        f"{threads} of rank {loader.rank}'s loader work {units.seconds(loader.work_s)} on a step; "
        f"of that computing {part(loader.cpu_s)}{queued}, blocked {part(loader.blocked_s)}"
    )
    return (told,)


def _use(load: NodeLoad) -> float:
    """Return the share of the job's cores that its processes use; by all if unknown."""
    if tells(load.job_cpu_cores) and load.job_cpu_cores is not None and load.num_cores:
        return load.job_cpu_cores.mean / load.num_cores
    return load.cpu_busy.mean if tells(load.cpu_busy) and load.cpu_busy is not None else 0.0


# Causes of waits for data, from the load of the nodes. See `data_wait`.
#
# The step records show that a rank waits; the node's cores show what its loader does meanwhile.
# All busy: it decodes. Idle with an outstanding disk request: it waits for the node's disks. Idle
# without one: there are too few threads, or they wait for a network file system.


_ALL_BUSY = 0.85
_WAITS_FOR_DISKS = 0.10
_IDLE = 0.50
"""Share of the job's cores. All three are own choices."""
GENERAL_KNOB = (
    "more num_loader_threads, then num_prefetch_batches; check that shards were staged on "
    "node-local storage, and that cpus_per_task leaves cores for the loader"
)


def find_cause(numbers: TrainingNumbers) -> Cause:
    """Return the cause by the node of the longest wait: one starved rank holds up all."""
    load = _starved_node(numbers)
    if numbers.loader is not None:
        told = cause_by_threads(numbers.loader, load, numbers.device)
        if told is not None:
            return told
    if load is None:
        return Cause(
            kind="",
            text="",
            evidence=(),
            next_knob=GENERAL_KNOB,
            confidence="high that data is waited for; why is not known without readings of nodes",
        )
    if tells(load.cpu_iowait) and _iowait(load) >= _WAITS_FOR_DISKS:
        return _storage_share(load)
    if _busy(load) >= _ALL_BUSY and is_held(load):
        return _held_by_others(load)
    if _busy(load) >= _ALL_BUSY:
        return _shared_cores(load) if numbers.device == "cpu" else _decoding_share(load)
    if _busy(load) < _IDLE:
        return _idle(load, numbers.num_loader_threads)
    return Cause(
        kind="",
        text="The cores are neither all busy nor idle: several things share the time.",
        evidence=(_cores_text(load),),
        next_knob=GENERAL_KNOB,
        confidence="high that data is waited for, low in why",
    )


def _starved_node(numbers: TrainingNumbers) -> NodeLoad | None:
    loads = {load.node: load for load in numbers.loads if tells(load.cpu_busy)}
    waiting = sorted(numbers.ranks, key=lambda rank: -rank.phases_s["data_wait"])
    return next((loads[rank.node] for rank in waiting[:1] if rank.node in loads), None)


def _storage_share(load: NodeLoad) -> Cause:
    rate = load.disk_read.mean if load.disk_read is not None else 0.0
    return Cause(
        kind="storage",
        text="The loader waits for this node's disks.",
        evidence=(f"{_cores_text(load)}; {units.num_bytes(rate)} read a second",),
        next_knob="stage shards in on the node's fastest disk (node_local_dir of the profile), or "
        "leave them in memory where it has room; more num_loader_threads keep more requests on "
        "their way",
        confidence="high: cores are idle with a disk request outstanding",
    )


def _decoding_share(load: NodeLoad) -> Cause:
    return Cause(
        kind="decoding",
        text="The cores are all busy: decoding and putting batches together takes them.",
        evidence=(_cores_text(load),),
        next_knob="more cpus_per_task; or less to decode: smaller stored images (`preprocess`); "
        "augmentation costs, too",
        confidence="medium: the readings count all processes of the node",
    )


def _held_by_others(load: NodeLoad) -> Cause:
    return Cause(
        kind="cores",
        text="The cores are all busy, many of them with processes that are not the job's.",
        evidence=(held_text(load),),
        next_knob=KNOB.format(node=load.node),
        confidence="medium: cores are short, and whose processes have them is read; whether the "
        "loader waits for one is not",
    )


def _shared_cores(load: NodeLoad) -> Cause:
    return Cause(
        kind="cores",
        text="The cores are all busy: on CPUs the model and the loader share them.",
        evidence=(_cores_text(load),),
        next_knob="more cpus_per_task, or fewer ranks a node; with fewer num_loader_threads the "
        "model has more of them, and with more the loader",
        confidence="high that cores are short; how much of them each has is not known",
    )


def _idle(load: NodeLoad, num_threads: int | None) -> Cause:
    if num_threads is None:
        return Cause(
            kind="",
            text="Cores are idle while the ranks wait: the loader has too few threads or "
            "workers, or its storage answers late.",
            evidence=(_cores_text(load),),
            next_knob=GENERAL_KNOB,
            confidence="medium: idle cores rule out decoding; how many threads load is not known",
        )
    if num_threads * max(1, load.num_ranks) < load.num_cores:
        return Cause(
            kind="",
            text="Cores are idle while the ranks wait: the loader has too few threads, or each "
            "waits for a file system over the network.",
            evidence=(
                (
                    f"{_cores_text(load)}; num_loader_threads is {num_threads} on each of "
                    f"{units.number_of('rank', load.num_ranks)}"
                ),
            ),
            next_knob="more num_loader_threads; if that changes nothing, stage shards in on "
            "node-local storage (staging)",
            confidence="medium: idle cores rule out decoding, not a slow file system",
        )
    threads = f"; num_loader_threads is {num_threads} on each of {load.num_ranks} ranks"
    return Cause(
        kind="storage",
        text="Cores are idle while many loader threads wait: the storage answers late, as a file "
        "system over the network does with many small reads.",
        evidence=(f"{_cores_text(load)}{threads}",),
        next_knob="large shards on node-local storage: `consolidate`, and staging in `train`; more "
        "threads or workers only queue up",
        confidence="medium: idle cores rule out decoding; the rest is not timed separately",
    )


def _busy(load: NodeLoad) -> float:
    return load.cpu_busy.mean if load.cpu_busy is not None else 0.0


def _iowait(load: NodeLoad) -> float:
    return load.cpu_iowait.mean if load.cpu_iowait is not None else 0.0


def _cores_text(load: NodeLoad) -> str:
    waits = f", {units.percent(_iowait(load))} wait for disks" if load.cpu_iowait else ""
    return f"cores of {load.node}: {units.percent(_busy(load))} busy{waits}"
