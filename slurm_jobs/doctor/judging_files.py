"""Judgement of the login node's file systems for runs. PURE."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from slurm_jobs.doctor.model import Check, FolderLook
from slurm_jobs.report import words

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


def folder_checks(look: FolderLook) -> Iterator[Check]:
    """Check free space and inodes, and whether the folder supports what a run's records need."""
    name, facts = look.purpose, look.folder
    if look.late:
        yield Check(
            name=name,
            standing="problem",
            told=f"{facts.path}: {look.late}",
            remedy="its file server hangs or is gone: report it to the site's support",
        )
        return
    if facts.problem:
        yield Check(
            name=name,
            standing="problem",
            told=f"nothing can be written to {facts.path}: {facts.problem}",
            remedy="runs_dir: a folder of yours that all nodes see" if name == "runs_dir" else "",
        )
        return
    yield _room(look)
    if name == "runs_dir":
        yield from _records(look)


def _room(look: FolderLook) -> Check:
    facts, name = look.folder, f"{look.purpose}-room"
    if facts.free_bytes is None or not facts.total_bytes:
        return Check(name=name, standing="unknown", told=f"{facts.path} does not report its size")
    free, share = facts.free_bytes, facts.free_bytes / facts.total_bytes
    finding = f"{size_text(free)} free of {size_text(facts.total_bytes)} in {facts.path}"
    if look.free_files is not None and look.free_files < _LITTLE_FILES:
        finding = f"{finding}, and room for {look.free_files:,} files"
        remedy = "remove old runs, or name another runs_dir: a run makes thousands of files"
        return Check(name=name, standing="warning", told=finding, remedy=remedy)
    if free < _LITTLE_BYTES or (share < _LITTLE_SHARE and free < 10 * _LITTLE_BYTES):
        remedy = "make room, or name another runs_dir: data sets and checkpoints go there"
        if look.purpose != "runs_dir":
            remedy = "make room: many programs fail in odd ways with a full home"
        return Check(name=name, standing="warning", told=finding, remedy=remedy)
    return Check(name=name, standing="ok", told=finding)


def quota_checks(looks: Sequence[FolderLook]) -> list[Check]:
    """Return the quota of folders that answered; equal reasons for unknown ones are merged."""
    checks, untold = [], dict[str, list[str]]()
    for look in looks:
        if look.late or look.folder.problem:
            continue
        row = quota_row(look.quota.text, look.folder.source)
        if row is not None:
            checks.append(_quota(look, *row))
        else:
            why = look.quota.problem or "none is reported"
            untold.setdefault(why, []).append(look.purpose)
    for why, purposes in untold.items():
        finding = f"unknown for {' and '.join(purposes)}: {why}"
        remedy = "the site's own command may show it (mmlsquota, beegfs-ctl, myquota)"
        checks.append(Check(name="quota", standing="unknown", told=finding, remedy=remedy))
    return checks


def _quota(look: FolderLook, used_kb: int, limit_kb: int) -> Check:
    name, path = f"{look.purpose}-quota", look.folder.path
    if limit_kb == 0:
        return Check(name=name, standing="ok", told=f"no quota on {path}")
    finding = f"{size_text(used_kb * 1024)} of your {size_text(limit_kb * 1024)} used on {path}"
    if used_kb >= limit_kb:
        remedy = f"du -xh --max-depth=2 {path} | sort -h | tail"
        return Check(name=name, standing="problem", told=finding, remedy=remedy)
    if used_kb >= _FULL_SHARE * limit_kb:
        remedy = f"du -xh --max-depth=2 {path} | sort -h | tail"
        return Check(name=name, standing="warning", told=finding, remedy=remedy)
    return Check(name=name, standing="ok", told=finding)


def quota_row(text: str, source: str) -> tuple[int, int] | None:
    """Return used and allowed KiB (0: no limit) from the output of `quota -w` or `lfs quota`.

    Both print the file system, then used, soft and hard limit; `*` marks exceeded limits.
    """
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 4 or (source and fields[0] != source and not _is_lustre(line, source)):
            continue
        numbers = [_NUMBER.fullmatch(field) for field in fields[1:4]]
        if all(numbers):
            used, soft, hard = (int(match[1]) for match in numbers if match)
            return used, min((n for n in (soft, hard) if n), default=0)
    return None


def _is_lustre(line: str, source: str) -> bool:
    """Check for the line of `lfs quota`, which names the mount point.

    Its source has a colon and a slash (`mgs@tcp:/fs`).
    """
    return "@" in source and ":/" in source and line.lstrip().startswith("/")


def _records(look: FolderLook) -> Iterator[Check]:
    """Check hard links, with which the ledger is made, and the time of a durable write."""
    path = look.folder.path
    if look.links is None:
        yield Check(name="hard-links", standing="unknown", told=look.link_problem)
    elif not look.links:
        yield Check(
            name="hard-links",
            standing="problem",
            told=f"{path} makes no hard links ({look.link_problem}): a run's ledger needs them",
            remedy="runs_dir: a folder on another file system that all nodes see",
        )
    else:
        yield Check(name="hard-links", standing="ok", told=f"{path} makes hard links, once each")
    if look.write_s is None:
        yield Check(name="small-files", standing="unknown", told="no small file was timed")
        return
    finding = f"a small file is durable in {words.seconds(look.write_s)} on {path}"
    if look.write_s > _SLOW_WRITE_S:
        remedy = (
            "fewer, longer array tasks (`slices_per_task`); another file system if there is one"
        )
        yield Check(name="small-files", standing="warning", told=finding, remedy=remedy)
    else:
        yield Check(name="small-files", standing="ok", told=finding)


def shared_check(look: FolderLook, seen_by: Sequence[str]) -> Check:
    """Check whether nodes see a folder: by a job on them, otherwise by its kind of file system."""
    facts = look.folder
    if seen_by:
        finding = f"{facts.path} ({facts.kind}) is the same on {', '.join(seen_by)}"
        return Check(name="runs_dir-shared", standing="ok", told=finding)
    finding = f"{facts.path} is on {facts.kind or 'an unknown file system'}"
    if facts.kind in SHARED_KINDS:
        return Check(
            name="runs_dir-shared", standing="ok", told=f"{finding}, which nodes can share"
        )
    if facts.kind in LOCAL_KINDS:
        finding += ", mostly of one machine, and no node has seen it"
    return Check(name="runs_dir-shared", standing="unknown", told=finding)


def size_text(num_bytes: float) -> str:
    """Format bytes as `1.2 TB`, of 10^12."""
    for size, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if num_bytes >= size:
            return f"{num_bytes / size:.3g} {name}"
    return f"{num_bytes / 1e3:.3g} kB"
