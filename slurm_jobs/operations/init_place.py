"""Place of the jobs of a first spec: the cluster of this login node, or this machine."""

from __future__ import annotations

import grp
import os
import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from slurm_jobs.cluster.profile import ClusterProfile
from slurm_jobs.common.errors import InputError, SchedulerError
from slurm_jobs.operations.limits import limits_of
from slurm_jobs.starter.choices import choose_place
from slurm_jobs.starter.model import Place, Room

LOCAL = "local"
_GPUS_DIR = Path("/proc/driver/nvidia/gpus")
"""Folder in which NVIDIA's driver lists its GPUs."""


def look_at_cluster(
    *, account: str | None = None, partition: str | None = None, is_local: bool = False
) -> Place:
    """Return the cluster of this login node, or this machine.

    Raises:
        SchedulerError: Slurm is installed, but does not answer.
        InputError: the user has no such account, or there is no such partition with GPUs.
    """
    if is_local or shutil.which("sbatch") is None:
        if account or partition:
            why = "--local is this machine alone" if is_local else "there is no sbatch here"
            message = f"--account and --partition are for Slurm, and {why}"
            raise InputError(message)
        return _this_machine()
    limits = limits_of(ClusterProfile())
    unknown = limits.unreachable
    if not any(partition.kinds for partition in limits.partitions.values()):
        unknown = unknown or "; ".join(limits.problems) or "sinfo lists no partition with nodes"
    if unknown:
        message = (
            f"Slurm does not say what there is, and nothing was written: {unknown}; type the "
            "same again once `sinfo` answers here, or add --local to run the jobs on this machine"
        )
        raise SchedulerError(message)
    groups = [grp.getgrgid(number).gr_name for number in os.getgroups() if _has_name(number)]
    place = choose_place(
        limits,
        groups=groups,
        node_local_dir=limits.tmp_dir or "/tmp",  # noqa: S108 - as the profile's default
        account=account,
        partition=partition,
    )
    _refuse_unknown("--account", account, place.accounts)
    _refuse_unknown("--partition", partition, [room.partition or "" for room in place.gpu_rooms])
    return place


def _has_name(number: int) -> bool:
    try:
        grp.getgrgid(number)
    except KeyError:
        return False
    return True


def _refuse_unknown(option: str, given: str | None, known: Iterable[str]) -> None:
    """Raise if the user's value is not among the known ones; without known ones Slurm decides."""
    names = sorted(set(known))
    if given is not None and names and given not in names:
        message = f"{option} {given}: not here, or not yours (you have: {', '.join(names)})"
        raise InputError(message)


def _this_machine() -> Place:
    """Return this machine as one node, all of whose cores the run may use."""
    cores = len(os.sched_getaffinity(0))
    mem_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cpu = Room(partition=None, num_nodes=1, cpus=cores, mem_gb=mem_gb)
    cards = len(list(_GPUS_DIR.iterdir())) if _GPUS_DIR.is_dir() else 0
    gpu = replace(cpu, gpus=cards) if cards else None
    return Place(name=LOCAL, is_slurm=False, cpu=cpu, gpu=gpu)
