"""Judgement of the login node's file systems for runs. PURE."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from slurm_jobs.base import units
from slurm_jobs.nodes.doctor.doctor_check import Check
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


def folder_checks(measured: MeasuredFolder) -> Iterator[Check]:
    """Check free space and inodes, and whether the folder supports what a run's records need."""
    name, facts, path = measured.purpose, measured.folder, measured.folder.path
    if measured.late:
        remedy = "its file server hangs or is gone: report it to the site's support"
        yield Check.problem(name, f"{path}: {measured.late}", remedy)
        return
    if facts.problem:
        remedy = "runs_dir: a folder of yours that all nodes see" if name == "runs_dir" else ""
        yield Check.problem(name, f"nothing can be written to {path}: {facts.problem}", remedy)
        return
    room, free, total = f"{name}-room", facts.free_bytes, facts.total_bytes
    if free is None or not total:
        yield Check.unknown(room, f"{path} does not report its size")
    else:
        finding = f"{size_text(free)} free of {size_text(total)} in {path}"
        if measured.free_files is not None and measured.free_files < _LITTLE_FILES:
            finding = f"{finding}, and room for {measured.free_files:,} files"
            remedy = "remove old runs, or name another runs_dir: a run makes thousands of files"
            yield Check.warning(room, finding, remedy)
        elif free < _LITTLE_BYTES or (free < _LITTLE_SHARE * total and free < 10 * _LITTLE_BYTES):
            remedy = "make room, or name another runs_dir: data sets and checkpoints go there"
            if name != "runs_dir":
                remedy = "make room: many programs fail in odd ways with a full home"
            yield Check.warning(room, finding, remedy)
        else:
            yield Check.ok(room, finding)
    if name == "runs_dir":
        yield from _record_checks(measured)


def _record_checks(measured: MeasuredFolder) -> Iterator[Check]:
    """Check hard links, with which the ledger is made, and the time of a durable write."""
    path = measured.folder.path
    if measured.links is None:
        yield Check.unknown("hard-links", measured.link_problem)
    elif measured.links:
        yield Check.ok("hard-links", f"{path} makes hard links, and refuses a name that exists")
    else:
        finding = f"{path} makes no hard links ({measured.link_problem}): a run's ledger needs them"
        remedy = "runs_dir: a folder on another file system that all nodes see"
        yield Check.problem("hard-links", finding, remedy)
    if measured.write_s is None:
        yield Check.unknown("small-files", "no small file was timed")
        return
    finding = f"a small file is durable in {units.seconds(measured.write_s)} on {path}"
    if measured.write_s <= _SLOW_WRITE_S:
        yield Check.ok("small-files", finding)
        return
    remedy = "fewer, longer array tasks (`slices_per_task`); another file system if there is one"
    yield Check.warning("small-files", finding, remedy)


def quota_checks(folders: Sequence[MeasuredFolder]) -> list[Check]:
    """Return the quota of folders that answered; equal reasons for unknown ones are merged."""
    checks, unknown = [], dict[str, list[str]]()
    for measured in folders:
        if measured.late or measured.folder.problem:
            continue
        name, path = f"{measured.purpose}-quota", measured.folder.path
        row = quota_row(measured.quota.text, measured.folder.source)
        if row is None:
            unknown.setdefault(measured.quota.problem or "none is reported", []).append(
                measured.purpose
            )
            continue
        used_kb, limit_kb = row
        finding = f"{size_text(used_kb * 1024)} of your {size_text(limit_kb * 1024)} used on {path}"
        if limit_kb == 0:
            checks.append(Check.ok(name, f"no quota on {path}"))
        elif used_kb < _FULL_SHARE * limit_kb:
            checks.append(Check.ok(name, finding))
        else:
            grade = Check.problem if used_kb >= limit_kb else Check.warning
            checks.append(grade(name, finding, f"du -xh --max-depth=2 {path} | sort -h | tail"))
    for reason, purposes in unknown.items():
        finding = f"unknown for {' and '.join(purposes)}: {reason}"
        remedy = "the site's own command may show it (mmlsquota, beegfs-ctl, myquota)"
        checks.append(Check.unknown("quota", finding, remedy))
    return checks


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
    if seen_by:
        finding = f"{facts.path} ({facts.kind}) is the same on {', '.join(seen_by)}"
        return Check.ok("runs_dir-shared", finding)
    finding = f"{facts.path} is on {facts.kind or 'an unknown file system'}"
    if facts.kind in SHARED_KINDS:
        return Check.ok("runs_dir-shared", f"{finding}, which nodes can share")
    if facts.kind in LOCAL_KINDS:
        finding += ", usually local to one machine, and no node has seen it"
    return Check.unknown("runs_dir-shared", finding)


def size_text(num_bytes: float) -> str:
    """Format bytes as `1.2 TB`, of 10^12."""
    for size, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if num_bytes >= size:
            return f"{num_bytes / size:.3g} {name}"
    return f"{num_bytes / 1e3:.3g} kB"
