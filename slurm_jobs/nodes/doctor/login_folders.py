"""Judgement of the login node's file systems for runs. PURE."""

from __future__ import annotations

import re
from collections.abc import Sequence

from slurm_jobs.base import units
from slurm_jobs.nodes.doctor.doctor_check import Check, Judgement, Standing, judged
from slurm_jobs.nodes.doctor.site_facts import MeasuredFolder

LOCAL_KINDS = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "overlay", "tmpfs", "ramfs", "bcachefs"}
)
"""Kinds that belong to one machine; an administrator may still have exported one."""
SHARED_KINDS = frozenset(
    {"nfs", "nfs3", "nfs4", "lustre", "gpfs", "beegfs", "ceph", "cifs", "smb3", "afs", "panfs"}
    | {"fuse.glusterfs", "fuse.cvmfs", "fuse.sshfs", "9p", "virtiofs", "wekafs", "pvfs2"}
)
MEMORY_KINDS = frozenset({"tmpfs", "ramfs"})
_LITTLE_BYTES, _LITTLE_SHARE = 20e9, 0.03
_LITTLE_FILES = 100_000
_SLOW_WRITE_S = 0.1
"""A run writes about ten small files per array task, each with fsync."""
_FULL_SHARE = 0.9
_NUMBER = re.compile(r"(\d+)\*?")


def folder_checks(measured: MeasuredFolder) -> list[Check]:
    """Check free space and inodes, and whether the folder supports what a run's records need."""
    name, facts, path = measured.purpose, measured.folder, measured.folder.path
    if measured.late:
        remedy = "its file server hangs or is gone: report it to the site's support"
        return [Judgement("problem", f"{path}: {measured.late}", remedy).named(name)]
    if facts.problem:
        finding = f"nothing can be written to {path}: {facts.problem}"
        remedy = "runs_dir: a folder of yours that all nodes see" if name == "runs_dir" else ""
        return [Judgement("problem", finding, remedy).named(name)]
    checks = [_room(measured).named(f"{name}-room")]
    return checks + judged(RECORD_CHECKS, measured) if name == "runs_dir" else checks


def _room(measured: MeasuredFolder) -> Judgement:
    path = measured.folder.path
    free, total = measured.folder.free_bytes, measured.folder.total_bytes
    if free is None or not total:
        return Judgement("unknown", f"{path} does not report its size")
    finding = f"{size_text(free)} free of {size_text(total)} in {path}"
    if measured.free_files is not None and measured.free_files < _LITTLE_FILES:
        finding = f"{finding}, and room for {measured.free_files:,} files"
        remedy = "remove old runs, or name another runs_dir: a run makes thousands of files"
        return Judgement("warning", finding, remedy)
    if free >= _LITTLE_BYTES and (free >= _LITTLE_SHARE * total or free >= 10 * _LITTLE_BYTES):
        return Judgement("ok", finding)
    remedy = "make room, or name another runs_dir: data sets and checkpoints go there"
    if measured.purpose != "runs_dir":
        remedy = "make room: many programs fail in odd ways with a full home"
    return Judgement("warning", finding, remedy)


def _hard_links(measured: MeasuredFolder) -> Judgement:
    path, problem = measured.folder.path, measured.link_problem
    if not problem:
        return Judgement("ok", f"{path} makes hard links, and refuses a name that exists")
    finding = f"{path} makes no hard links ({problem}): a run's ledger needs them"
    remedy = "runs_dir: a folder on another file system that all nodes see"
    return Judgement("problem", finding, remedy)


def _small_files(measured: MeasuredFolder) -> Judgement:
    if measured.write_s is None:
        return Judgement("unknown", "no small file was timed")
    finding = (
        f"a small file is durable in {units.seconds(measured.write_s)} on {measured.folder.path}"
    )
    if measured.write_s <= _SLOW_WRITE_S:
        return Judgement("ok", finding)
    remedy = "fewer, longer array tasks (`slices_per_task`); another file system if there is one"
    return Judgement("warning", finding, remedy)


RECORD_CHECKS = (("hard-links", _hard_links), ("small-files", _small_files))
"""Checks of the folder in which a run's records are written."""


def quota_checks(folders: Sequence[MeasuredFolder]) -> list[Check]:
    """Return the quota of folders that answered; equal reasons for unknown ones are merged."""
    checks, unknown = [], dict[str, list[str]]()
    for measured in folders:
        if measured.late or measured.folder.problem:
            continue
        row = quota_row(measured.quota.text, measured.folder.source)
        if row is not None:
            judgement = _quota(measured.folder.path, *row)
            checks.append(judgement.named(f"{measured.purpose}-quota"))
        else:
            reason = measured.quota.problem or "none is reported"
            unknown.setdefault(reason, []).append(measured.purpose)
    for reason, purposes in unknown.items():
        finding = f"unknown for {' and '.join(purposes)}: {reason}"
        remedy = "the site's own command may show it (mmlsquota, beegfs-ctl, myquota)"
        checks.append(Judgement("unknown", finding, remedy).named("quota"))
    return checks


def _quota(path: str, used_kb: int, limit_kb: int) -> Judgement:
    if limit_kb == 0:
        return Judgement("ok", f"no quota on {path}")
    finding = f"{size_text(used_kb * 1024)} of your {size_text(limit_kb * 1024)} used on {path}"
    if used_kb < _FULL_SHARE * limit_kb:
        return Judgement("ok", finding)
    standing: Standing = "problem" if used_kb >= limit_kb else "warning"
    return Judgement(standing, finding, f"du -xh --max-depth=2 {path} | sort -h | tail")


def quota_row(text: str, source: str) -> tuple[int, int] | None:
    """Return used and allowed KiB (0: no limit) from the output of `quota -w` or `lfs quota`.

    Both print the file system, then used, soft and hard limit; `*` marks exceeded limits.
    """
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 4 or (
            source
            and fields[0] != source
            and not ("@" in source and ":/" in source and line.lstrip().startswith("/"))
        ):
            continue
        numbers = [_NUMBER.fullmatch(field) for field in fields[1:4]]
        if all(numbers):
            used, soft, hard = (int(match[1]) for match in numbers if match)
            return used, min((n for n in (soft, hard) if n), default=0)
    return None


def shared_check(measured: MeasuredFolder, seen_by: Sequence[str]) -> Check:
    """Check whether nodes see a folder: by a job on them, otherwise by its kind of file system."""
    facts = measured.folder
    judgement = Judgement("unknown", f"{facts.path} is on {facts.kind or 'an unknown file system'}")
    if seen_by:
        finding = f"{facts.path} ({facts.kind}) is the same on {', '.join(seen_by)}"
        judgement = Judgement("ok", finding)
    elif facts.kind in SHARED_KINDS:
        judgement = Judgement("ok", f"{judgement.told}, which nodes can share")
    elif facts.kind in LOCAL_KINDS:
        finding = f"{judgement.told}, usually local to one machine, and no node has seen it"
        judgement = Judgement("unknown", finding)
    return judgement.named("runs_dir-shared")


def size_text(num_bytes: float) -> str:
    """Format bytes as `1.2 TB`, of 10^12."""
    for size, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if num_bytes >= size:
            return f"{num_bytes / size:.3g} {name}"
    return f"{num_bytes / 1e3:.3g} kB"
