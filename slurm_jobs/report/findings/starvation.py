"""Causes of waits for data, from the load of the nodes. PURE. See `data_wait`.

The step records show that a rank waits; the node's cores show what its loader does meanwhile. All
busy: it decodes. Idle with an outstanding disk request: it waits for the node's disks. Idle without
one: there are too few threads, or they wait for a network file system.
"""

from __future__ import annotations

from slurm_jobs.report import words
from slurm_jobs.report.findings.base import Cause
from slurm_jobs.report.findings.foreign_load import KNOB, held_text, is_held
from slurm_jobs.report.findings.loader_threads import cause_by_threads
from slurm_jobs.report.model.load import NodeLoad
from slurm_jobs.report.model.training import TrainingNumbers
from slurm_jobs.report.numbers.load import tells

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
        return _storage(load)
    if _busy(load) >= _ALL_BUSY and is_held(load):
        return _held_by_others(load)
    if _busy(load) >= _ALL_BUSY:
        return _shared_cores(load) if numbers.device == "cpu" else _decoding(load)
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


def _storage(load: NodeLoad) -> Cause:
    rate = load.disk_read.mean if load.disk_read is not None else 0.0
    return Cause(
        kind="storage",
        text="The loader waits for this node's disks.",
        evidence=(f"{_cores_text(load)}; {words.num_bytes(rate)} read a second",),
        next_knob="stage shards in on the node's fastest disk (node_local_dir of the profile), or "
        "leave them in memory where it has room; more num_loader_threads keep more requests on "
        "their way",
        confidence="high: cores are idle with a disk request outstanding",
    )


def _decoding(load: NodeLoad) -> Cause:
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
                    f"{words.number_of('rank', load.num_ranks)}"
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
    waits = f", {words.percent(_iowait(load))} wait for disks" if load.cpu_iowait else ""
    return f"cores of {load.node}: {words.percent(_busy(load))} busy{waits}"
