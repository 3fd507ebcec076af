"""Parsers for the output of scontrol, sinfo and sacctmgr. PURE."""

from __future__ import annotations

import re
from collections.abc import Mapping

from slurm_jobs.cluster.limits import Association, NodeKind, Partition, Qos
from slurm_jobs.spec.durations import parse_minutes

SINFO_FORMAT = "%R|%D|%c|%m|%G|%f"
"""Partition, number of nodes, CPUs, memory in MB, gres and features of each kind of node."""
ASSOCIATION_FIELDS = (
    *("Account", "Partition", "QOS", "DefaultQOS"),
    *("MaxWall", "MaxSubmitJobs", "GrpSubmitJobs"),
)
QOS_FIELDS = ("Name", "MaxWall", "MaxSubmitJobsPU", "MaxSubmitJobsPA", "MaxTRES")

_SETTING = re.compile(r"^(\w+)[ \t]*=[ \t]*(.*?)[ \t]*$", re.MULTILINE)
_GPU = re.compile(r"gpu(?::([^:,()]+))?:(\d+)(?:\(.*)?")


def parse_config(text: str) -> dict[str, str]:
    """Parse the settings that `scontrol show config` prints, by name."""
    return dict(_SETTING.findall(text))


def parse_partitions(text: str, kinds: Mapping[str, tuple[NodeKind, ...]]) -> dict[str, Partition]:
    """Parse the partitions that `scontrol show partition -o` prints, each with its node kinds."""
    partitions = {}
    for line in text.splitlines():
        values = dict(word.partition("=")[::2] for word in line.split())
        name = values.get("PartitionName", "")
        if not name:
            continue
        partitions[name] = Partition(
            name=name,
            is_default=values.get("Default") == "YES",
            max_time_min=parse_minutes(values.get("MaxTime", "")),
            max_nodes=_count(values.get("MaxNodes", "")),
            qos=_known(values.get("QoS", "")),
            kinds=kinds.get(name, ()),
            is_up=values.get("State", "UP") == "UP" and values.get("RootOnly") != "YES",
            allow_groups=_list(values.get("AllowGroups", "")),
            allow_accounts=_list(values.get("AllowAccounts", "")),
        )
    return partitions


def parse_kinds(text: str) -> dict[str, tuple[NodeKind, ...]]:
    """Parse node kinds by partition, from sinfo with `SINFO_FORMAT`."""
    kinds: dict[str, tuple[NodeKind, ...]] = {}
    for line in text.splitlines():
        fields = line.strip().split("|")
        if len(fields) != 6:
            continue
        name, num_nodes, cpus, mem_mb, gres, features = fields
        kind = NodeKind(
            num_nodes=_count(num_nodes) or 0,
            cpus=_count(cpus) or 0,
            mem_mb=_count(mem_mb) or 0,
            gpus=parse_gpus(gres),
            features=frozenset(_list(features) or ()),
        )
        kinds[name] = (*kinds.get(name, ()), kind)
    return kinds


def parse_gpus(gres: str) -> dict[str, int]:
    """Parse GPU counts by type, such as `gpu:a100:4(S:0-1),gpu:2,nvme:1`."""
    gpus: dict[str, int] = {}
    for word in re.findall(r"(?:[^,(]|\([^)]*\)?)+", gres):
        match = _GPU.fullmatch(word)
        if match is not None:
            gpus[match[1] or ""] = gpus.get(match[1] or "", 0) + int(match[2])
    return gpus


def parse_qos(text: str) -> dict[str, Qos]:
    """Parse QOS by name, from `sacctmgr -nP show qos` with `QOS_FIELDS`."""
    by_name = {}
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) != len(QOS_FIELDS):
            continue
        name, wall, per_user, per_account, tres = fields
        limits = dict(part.partition("=")[::2] for part in tres.split(",") if part)
        by_name[name] = Qos(
            name=name,
            max_wall_min=parse_minutes(wall),
            max_submit=_least(_count(per_user), _count(per_account)),
            max_nodes=_count(limits.get("node", "")),
            max_gpus=_count(limits.get("gres/gpu", "")),
        )
    return by_name


def parse_associations(text: str) -> tuple[Association, ...]:
    """Parse the rows of `sacctmgr -nP show assoc` with `ASSOCIATION_FIELDS`."""
    associations = []
    for line in text.splitlines():
        fields = line.split("|")
        if len(fields) != len(ASSOCIATION_FIELDS):
            continue
        account, partition, qos, default_qos, wall, submit, group_submit = fields
        associations.append(
            Association(
                account=account,
                partition=partition or None,
                qos=tuple(name for name in qos.split(",") if name),
                default_qos=default_qos or None,
                max_wall_min=parse_minutes(wall),
                max_submit=_least(_count(submit), _count(group_submit)),
            )
        )
    return tuple(associations)


def _count(text: str) -> int | None:
    """Parse a number; sinfo appends + to the smallest of several values."""
    digits = text.rstrip("+")
    return int(digits) if digits.isdecimal() else None


def _known(text: str) -> str | None:
    return None if text in {"", "N/A", "(null)"} else text


def _list(text: str) -> tuple[str, ...] | None:
    """Parse names separated by commas; None for all."""
    return None if text in {"", "ALL", "(null)"} else tuple(text.split(","))


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)
