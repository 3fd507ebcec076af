"""Judgements on nodes: files, Python, torch, network, and the drill. PURE."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from slurm_jobs.nodes.doctor_model import (
    Check,
    FolderLook,
    PythonLook,
    SpecFacts,
    Standing,
    bounds_of,
    meets,
    mismatches,
)
from slurm_jobs.nodes.judge_slurm import clock_checks
from slurm_jobs.shared import units
from slurm_jobs.shared.node_records import NodeFacts

# Result of the drill: a job is stopped, must save, be requeued and continue.


_NAME = "drill"


@dataclass(frozen=True, kw_only=True, slots=True)
class DrillFacts:
    """Records of a drill."""

    status: str
    """Status of its run: `completed`, `failed`, `waiting`..."""
    reason: str
    """Reason, if it failed or waits."""
    log: str
    """Log of the supervisor."""
    counters: Sequence[Mapping[str, Any]]
    """Counter of each rank; empty for one that never wrote it."""
    logs_command: str
    gave_up: str = ""
    """Reason why the command stopped waiting before the run ended."""


def drill_check(facts: DrillFacts) -> Check:
    """Return one sentence on the whole drill: how long each part took, or where it failed."""
    counters = [c for c in facts.counters if "started" in c]
    nodes = ", ".join(dict.fromkeys(str(c["started"]["node"]) for c in counters))
    if not counters:
        if facts.gave_up or facts.status in {"waiting", "running"}:
            finding = f"it did not start: {facts.gave_up or facts.reason or facts.status}"
            return Check.unknown(_NAME, finding, "wait longer: --wait MINUTES", where="no node")
        finding = f"the job {facts.status} before it counted: {facts.reason}"
        return _broken(facts, finding, "no node")
    if any("asked_unix_s" not in c for c in counters):
        return _not_told(facts, nodes)
    if any("saved_unix_s" not in c for c in counters):
        finding = f"asked to stop, and killed before a few bytes were saved ({facts.reason})"
        remedy = "a longer signal_lead_s; or runs_dir on a faster file system"
        return Check.problem(_NAME, finding, remedy, where=nodes)
    if any("returned" not in c for c in counters):
        return _not_back(facts, counters, nodes)
    if facts.status != "completed":
        return _broken(facts, f"it came back and then {facts.status}: {facts.reason}", nodes)
    first = max(counters, key=lambda c: c["returned"]["unix_s"])
    save_s = max(c["saved_unix_s"] - c["asked_unix_s"] for c in counters)
    told_s = first["asked_unix_s"] - first["started"]["unix_s"]
    away_s = first["returned"]["unix_s"] - first["saved_unix_s"]
    back = ", ".join(dict.fromkeys(str(c["returned"]["node"]) for c in counters))
    ranks = f" by each of {len(counters)} ranks" if len(counters) > 1 else ""
    finding = (
        f"requeue with checkpoint works: {first['by']} came {units.seconds(told_s)} after the "
        f"start, {first['count'] - 1} counts were saved{ranks} in {units.seconds(save_s)}, the job "
        f"started again {units.seconds(max(0.0, away_s))} later on {back}, and continued from them"
    )
    return Check.ok(_NAME, finding, where=nodes)


def _not_told(facts: DrillFacts, nodes: str) -> Check:
    finding = (
        "the job was not asked to stop before its time limit"
        f"{f' ({facts.reason})' if facts.reason else ''}: a training would lose what it did since "
        "its last checkpoint"
    )
    remedy = "checkpoint.every_min: 10 in the training's config, and `slurm-jobs resume` each time"
    return Check.problem(_NAME, finding, remedy, where=nodes)


def _not_back(facts: DrillFacts, counters: Sequence[Mapping[str, Any]], nodes: str) -> Check:
    """Return the check of a drill that saved, but was not requeued or never started again."""
    by_term = any(c.get("by") == "SIGTERM" for c in counters)
    refused = [line for line in facts.log.splitlines() if "not requeued" in line]
    if refused:
        why = refused[-1].partition("slurm-jobs: ")[2]
        finding = f"it was asked to stop, and saved; but {why}"
    elif by_term:
        finding = "only SIGTERM came, at the time limit itself: it saved, and is not requeued then"
    elif facts.gave_up:
        finding = f"it saved and was requeued, and had not started again when {facts.gave_up}"
        return Check.unknown(_NAME, finding, "wait longer: --wait MINUTES", where=nodes)
    else:
        finding = f"it was asked to stop, and saved; then the job {facts.status}: {facts.reason}"
    remedy = f"type `slurm-jobs resume` after each time limit; see `{facts.logs_command}`"
    return Check.problem(_NAME, finding, remedy, where=nodes)


def _broken(facts: DrillFacts, finding: str, nodes: str) -> Check:
    return Check.problem(_NAME, finding, facts.logs_command, where=nodes)


# Judgement of the login node's file systems for runs.


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
        yield Check.problem(
            name,
            f"{facts.path}: {look.late}",
            "its file server hangs or is gone: report it to the site's support",
        )
        return
    if facts.problem:
        yield Check.problem(
            name,
            f"nothing can be written to {facts.path}: {facts.problem}",
            "runs_dir: a folder of yours that all nodes see" if name == "runs_dir" else "",
        )
        return
    yield _room(look)
    if name == "runs_dir":
        yield from _records(look)


def _room(look: FolderLook) -> Check:
    facts, name = look.folder, f"{look.purpose}-room"
    if facts.free_bytes is None or not facts.total_bytes:
        return Check.unknown(name, f"{facts.path} does not report its size")
    free, share = facts.free_bytes, facts.free_bytes / facts.total_bytes
    finding = f"{size_text(free)} free of {size_text(facts.total_bytes)} in {facts.path}"
    if look.free_files is not None and look.free_files < _LITTLE_FILES:
        finding = f"{finding}, and room for {look.free_files:,} files"
        remedy = "remove old runs, or name another runs_dir: a run makes thousands of files"
        return Check.warning(name, finding, remedy)
    if free < _LITTLE_BYTES or (share < _LITTLE_SHARE and free < 10 * _LITTLE_BYTES):
        remedy = "make room, or name another runs_dir: data sets and checkpoints go there"
        if look.purpose != "runs_dir":
            remedy = "make room: many programs fail in odd ways with a full home"
        return Check.warning(name, finding, remedy)
    return Check.ok(name, finding)


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
        checks.append(Check.unknown("quota", finding, remedy))
    return checks


def _quota(look: FolderLook, used_kb: int, limit_kb: int) -> Check:
    name, path = f"{look.purpose}-quota", look.folder.path
    if limit_kb == 0:
        return Check.ok(name, f"no quota on {path}")
    finding = f"{size_text(used_kb * 1024)} of your {size_text(limit_kb * 1024)} used on {path}"
    if used_kb >= limit_kb:
        return Check.problem(name, finding, f"du -xh --max-depth=2 {path} | sort -h | tail")
    if used_kb >= _FULL_SHARE * limit_kb:
        return Check.warning(name, finding, f"du -xh --max-depth=2 {path} | sort -h | tail")
    return Check.ok(name, finding)


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


def _records(look: FolderLook) -> Iterator[Check]:
    """Check hard links, with which the ledger is made, and the time of a durable write."""
    path = look.folder.path
    if look.links is None:
        yield Check.unknown("hard-links", look.link_problem)
    elif not look.links:
        yield Check.problem(
            "hard-links",
            f"{path} makes no hard links ({look.link_problem}): a run's ledger needs them",
            "runs_dir: a folder on another file system that all nodes see",
        )
    else:
        yield Check.ok("hard-links", f"{path} makes hard links, once each")
    if look.write_s is None:
        yield Check.unknown("small-files", "no small file was timed")
        return
    finding = f"a small file is durable in {units.seconds(look.write_s)} on {path}"
    if look.write_s > _SLOW_WRITE_S:
        remedy = (
            "fewer, longer array tasks (`slices_per_task`); another file system if there is one"
        )
        yield Check.warning("small-files", finding, remedy)
    else:
        yield Check.ok("small-files", finding)


def shared_check(look: FolderLook, seen_by: Sequence[str]) -> Check:
    """Check whether nodes see a folder: by a job on them, otherwise by its kind of file system."""
    facts = look.folder
    if seen_by:
        finding = f"{facts.path} ({facts.kind}) is the same on {', '.join(seen_by)}"
        return Check.ok("runs_dir-shared", finding)
    finding = f"{facts.path} is on {facts.kind or 'an unknown file system'}"
    if facts.kind in SHARED_KINDS:
        return Check.ok("runs_dir-shared", f"{finding}, which nodes can share")
    if facts.kind in LOCAL_KINDS:
        finding += ", mostly of one machine, and no node has seen it"
    return Check.unknown("runs_dir-shared", finding)


def size_text(num_bytes: float) -> str:
    """Format bytes as `1.2 TB`, of 10^12."""
    for size, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB")):
        if num_bytes >= size:
            return f"{num_bytes / size:.3g} {name}"
    return f"{num_bytes / 1e3:.3g} kB"


# PyTorch compared with a node's GPUs and driver, and the environment variables of NCCL.


_LEAST_DRIVER = {11: 450, 12: 525, 13: 580}
"""Minimum driver by CUDA's major version (NVIDIA, "CUDA Compatibility", minor versions)."""
_SLOW_IMPORT_S = 60.0
_DEBUGGING = frozenset({"NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE"})
_SLOWING = {
    "NCCL_P2P_DISABLE": "GPUs of a node talk over the host's memory",
    "NCCL_SHM_DISABLE": "ranks of a node talk over the network",
    "NCCL_IB_DISABLE": "InfiniBand is not used",
}


def torch_checks(node: NodeFacts, spec: SpecFacts) -> Iterator[Check]:
    """Check the build, the GPUs, the driver and NCCL."""
    torch = node.torch
    if torch.problem:
        if spec.trains or spec.gpus_per_node:
            yield Check(
                name="torch",
                standing="problem" if spec.trains else "warning",
                told=torch.problem,
                remedy=f"{node.executable} -m pip install '.[train]' in slurm-jobs' checkout, or "
                "another `python:`",
            )
        return
    import_s = node.torch.import_s
    if import_s is not None and import_s > _SLOW_IMPORT_S:
        yield Check.warning(
            "torch-import",
            f"importing torch took {units.seconds(import_s)} on one node alone",
            "put the environment on a faster file system, or pack it into one image",
        )
    if spec.gpus_per_node:
        yield from _cards(node, spec)
        yield from _driver(node)
        yield from _nccl(node)
    else:
        yield Check.ok("torch", f"torch {torch.version}; no GPU is requested, so none was compared")


def _cards(node: NodeFacts, spec: SpecFacts) -> Iterator[Check]:
    torch = node.torch
    for problem in dict.fromkeys(card.problem for card in torch.cards if card.problem):
        yield Check.problem("torch", problem, "see above")
    if any(card.problem for card in torch.cards):
        return
    if not torch.cards:
        seen = f"nvidia-smi shows {', '.join(node.gpus)}" if node.gpus else node.gpus_reason
        finding = f"torch {torch.version} sees no GPU ({torch.cuda_problem or 'no reason'}); {seen}"
        remedy = "a build of torch for CUDA in the stage's Python (pytorch.org/get-started)"
        if torch.cuda:
            remedy = f"srun -N1 --gpus-per-node={spec.gpus_per_node} nvidia-smi"
        standing: Standing = "problem" if spec.trains else "warning"
        yield Check(name="torch", standing=standing, told=finding, remedy=remedy)
        return
    names = Counter(f"{c.name} (compute capability {c.capability})" for c in torch.cards)
    each = ", ".join(f"{number} x {name}" for name, number in names.items())
    if len(torch.cards) < spec.gpus_per_node:
        finding = (
            f"{len(torch.cards)} GPUs are visible, {spec.gpus_per_node} were requested: {each}"
        )
        yield Check.problem("torch", finding, "nvidia-smi -L")
        return
    yield Check.ok("torch", f"torch {torch.version} has code for {each}")


def _driver(node: NodeFacts) -> Iterator[Check]:
    cuda = node.torch.cuda
    if not cuda:
        return
    name, major = "cuda-driver", re.match(r"(\d+)", node.driver)
    least = _LEAST_DRIVER.get(int(cuda.partition(".")[0]))
    if major is None or least is None:
        finding = f"driver `{node.driver or 'unknown'}` with a build for CUDA {cuda}"
        yield Check.unknown(name, finding)
    elif int(major[1]) < least:
        yield Check.problem(
            name,
            f"driver {node.driver} is too old for a build for CUDA {cuda} ({least} or newer)",
            "a build for an older CUDA: pip install torch --index-url "
            "https://download.pytorch.org/whl/cu126",
        )
    else:
        yield Check.ok(name, f"driver {node.driver} is new enough for CUDA {cuda} ({least})")


def _nccl(node: NodeFacts) -> Iterator[Check]:
    version, name = node.torch.nccl, "nccl"
    if not version:
        if node.torch.cuda:
            finding = "this build of torch has no NCCL: several GPUs cannot work together"
            remedy = "install PyTorch's own build (pytorch.org/get-started)"
            yield Check.problem(name, finding, remedy)
        return
    own = {k: v for k, v in node.environment.items() if k.startswith("NCCL_")}
    finding = f"NCCL {version}; set: {_listed(own)}"
    slowing = [f"{k}: {_SLOWING[k]}" for k in own if k in _SLOWING and own[k] not in {"", "0"}]
    if slowing:
        remedy = "remove it from `environment:` and `setup:` unless the site recommends it"
        yield Check.warning(name, f"{finding} ({'; '.join(slowing)})", remedy)
        return
    yield Check.ok(name, finding)


def _listed(own: dict[str, str]) -> str:
    return ", ".join(f"{k}={v}" for k, v in own.items() if k not in _DEBUGGING) or "nothing"


# Judgement of nodes for a training. Equal results of several nodes are merged.


_FEW_FILES = 4096
"""Open files of a rank: shards, pipes to workers, sockets to every other rank."""
_LITTLE_LOCKED = 1 << 30
_LITTLE_SHM = 2 << 30
_LITTLE_LOCAL = 20e9
_SLOW_FILE_S = 5.0


def node_checks(
    nodes: Sequence[NodeFacts],
    spec: SpecFacts,
    requires: Sequence[str] | None,
    requires_python: str,
) -> list[Check]:
    """Return all checks of the nodes.

    Args:
        nodes: facts of each node.
        spec: facts of the spec.
        requires: requirements of our distribution; None if unknown.
        requires_python: required version of Python; None if unknown.
    """
    rules: tuple[Callable[[NodeFacts], Iterator[Check]], ...] = (
        lambda node: _python(node, spec, requires, requires_python),
        lambda node: torch_checks(node, spec),
        _local,
        _shared,
        lambda node: _programs(node, spec),
        _signal,
        _limits,
        _hub,
        lambda node: _all_reduce(node, spec),
        _numa,
        clock_checks,
    )
    found = [replace(c, where=node.node) for rule in rules for node in nodes for c in rule(node)]
    return merged(found)


def merged(checks: Sequence[Check]) -> list[Check]:
    """Merge equal checks of several machines."""
    where: dict[Check, list[str]] = {}
    for check in checks:
        where.setdefault(replace(check, where=""), []).append(check.where)
    return [replace(check, where=", ".join(dict.fromkeys(names))) for check, names in where.items()]


def _python(
    node: NodeFacts, spec: SpecFacts, requires: Sequence[str] | None, requires_python: str
) -> Iterator[Check]:
    name, python = "node-packages", f"Python {node.python} ({node.executable})"
    if requires_python and meets(node.python, requires_python) is False:
        yield Check.problem(
            "node-python",
            f"{python} is outside {requires_python}",
            "name another with the stage's `python:`",
        )
    if requires is None:
        finding = f"{python} starts; the bounds of its packages are not known"
        yield Check.unknown(name, finding, "pip install . (login node)")
        return
    bounds = bounds_of(requires, "train")
    wrong = mismatches(node.packages, bounds)
    if not wrong:
        finding = f"{python} starts, and all {len(bounds)} packages of a training are within bounds"
        yield Check.ok(name, finding)
        return
    if not spec.trains and len(wrong) == len(bounds):
        finding = (
            f"{python} starts; it has none of the packages of a training, and none is requested"
        )
        yield Check.ok(name, finding)
        return
    is_bad = spec.trains and any(one.fault == "missing" for one in wrong)
    yield Check(
        name=name,
        standing="problem" if is_bad else "warning",
        told=f"{python}: " + "; ".join(map(str, wrong)),
        remedy=f"{node.executable} -m pip install {' '.join(one.requirement for one in wrong)}",
    )


def _local(node: NodeFacts) -> Iterator[Check]:
    facts, name = node.local, "node-local"
    remedy = "node_local_dir: a folder on each node's own disk (in the profile, or the stage)"
    if facts.problem:
        finding = f"nothing can be written to {facts.path}: {facts.problem}"
        yield Check.problem(name, finding, remedy)
        return
    room = "" if facts.free_bytes is None else f", {size_text(facts.free_bytes)} free"
    finding = f"{_base(facts.path)} is writable on {facts.kind or 'an unknown file system'}{room}"
    if facts.kind in MEMORY_KINDS:
        finding += ": what is staged there takes the job's memory"
        yield Check.warning(name, finding, remedy)
    elif not facts.kind:
        yield Check.unknown(name, finding)
    elif facts.kind not in LOCAL_KINDS:
        finding += ": that is not the node's own, and staging to it gains nothing"
        yield Check.warning(name, finding, remedy)
    elif facts.free_bytes is not None and facts.free_bytes < _LITTLE_LOCAL:
        finding += ": little for a data set"
        yield Check.warning(name, finding, remedy)
    else:
        yield Check.ok(name, finding)


def _base(path: str) -> str:
    """Return the folder that the user named; ours in it has the user's and the node's names."""
    return path.partition("/slurm-jobs-")[0] or path


def _shared(node: NodeFacts) -> Iterator[Check]:
    facts = node.shared
    if facts.problem:
        finding = f"runs_dir cannot be written from the node: {facts.problem}"
        remedy = "runs_dir: a folder of yours that all nodes see, and may write"
        yield Check.problem("node-runs_dir", finding, remedy)
        return
    if node.login is None and node.login_file_s is None:
        finding = f"runs_dir is written; of the login node's answer there {node.login_reason}"
        remedy = "see `cat /proc/mounts` on both: NFS may show a folder's list a minute late"
        yield Check.unknown("node-runs_dir", finding, remedy)
        return
    took_s = node.login_file_s or 0.0
    finding = "runs_dir is writable, and the same as on the login node"
    late = f"files were seen both ways in {units.seconds(took_s)}"
    if took_s > _SLOW_FILE_S:
        remedy = "no action needed: slurm-jobs checks again for a minute; `status` lags as much"
        yield Check.warning("node-runs_dir", f"{finding}, but {late}", remedy)
    else:
        yield Check.ok("node-runs_dir", finding)


def _programs(node: NodeFacts, spec: SpecFacts) -> Iterator[Check]:
    if not spec.is_slurm:
        return
    lacks = {
        "scontrol": "a training near its time limit cannot have itself requeued",
        "srun": "ranks on several nodes, or several a node, cannot be started",
    }
    remedies = {
        "scontrol": "type `slurm-jobs resume` after each time limit, and ask the site for it",
        "srun": "add the site's line to `setup:` (such as `module load slurm`)",
    }
    for name, why in lacks.items():
        facts = node.programs.get(name)
        if facts is None:
            yield Check.unknown(name, "it was not checked on the node")
        elif not facts.path:
            yield Check.problem(name, f"{name} is not on the node's PATH: {why}", remedies[name])
        elif facts.problem:
            finding = f"{facts.path} does not answer on the node ({facts.problem}): {why}"
            yield Check.problem(name, finding, remedies[name])
        else:
            yield Check.ok(name, f"{name} answers on the node")


def _signal(node: NodeFacts) -> Iterator[Check]:
    name = "node-signal"
    if node.signalled:
        yield Check.ok(name, "SIGUSR2 to the job comes through to its ranks")
    elif node.signalled is None:
        yield Check.unknown(name, f"no signal: {node.signal_reason}")
    else:
        yield Check.problem(
            name,
            f"SIGUSR2: {node.signal_reason}",
            "something in `setup:` may ignore it (`trap '' USR2`); try `doctor --drill`",
        )


def _limits(node: NodeFacts) -> Iterator[Check]:
    """Check the limits of the process; None is no limit."""
    found: Mapping[str, int | None] = node.limits
    low = []
    files, locked, shm = found["open_files"], found["locked_bytes"], found["shm_bytes"]
    if files is not None and files < _FEW_FILES:
        low.append((f"{files} open files", "ulimit -S -n $(ulimit -H -n)"))
    if node.has_infiniband and locked is not None and locked < _LITTLE_LOCKED:
        low.append(
            (f"{size_text(locked)} of locked memory", "ulimit -S -l $(ulimit -H -l)")
        )  # pinned for the GPU
    if shm is not None and shm < _LITTLE_SHM:
        low.append((f"{size_text(shm)} in /dev/shm", ""))
    memory = found["memory_bytes"]
    groups = "no memory limit by control groups"
    if memory is not None:
        groups = f"{size_text(memory)} of memory by control groups"
    cores = "" if node.cores is None else f", {node.cores:g} of them by quota"
    finding = f"{groups}; {node.num_cores} cores{cores}"
    if low:
        lines = [line for _, line in low if line]
        remedy = f'setup: ["{"; ".join(lines)}"]' if lines else ""
        if not lines or len(lines) < len(low):
            remedy = f"{remedy}; ask the site for a larger /dev/shm".removeprefix("; ")
        few = ", ".join(text for text, _ in low)
        yield Check.warning("limits", f"only {few}", remedy)
    else:
        yield Check.ok("limits", f"open files, locked memory and /dev/shm suffice; {finding}")


def _hub(node: NodeFacts) -> Iterator[Check]:
    name = "model-hub"
    offline = node.environment.get("HF_HUB_OFFLINE", "0") not in {"", "0"}
    if node.hub_s is not None:
        finding = f"reached from the node in {units.seconds(node.hub_s)}"
        if offline:
            finding += "; HF_HUB_OFFLINE is set all the same"
        yield Check.ok(name, finding)
    elif offline:
        yield Check.ok(name, "not reached from the node, and HF_HUB_OFFLINE is set for libraries")
    else:
        yield Check.warning(
            name,
            f"not reached from the node ({node.hub_problem})",
            "download models on the login node first; in the spec "
            'environment: {HF_HUB_OFFLINE: "1"}',
        )


def _all_reduce(node: NodeFacts, spec: SpecFacts) -> Iterator[Check]:
    facts, name = node.all_reduce, "node-gloo"
    if facts is None or node.torch.problem:
        return
    where = f" over {facts.interface}" if facts.interface else ""
    if facts.seconds is not None:
        yield Check.ok(name, f"an all-reduce over gloo works between the nodes{where}")
        return
    yield Check(
        name=name,
        standing="problem" if spec.trains else "warning",
        told=f"an all-reduce over gloo failed between the nodes{where}: {facts.problem}",
        remedy="environment: {GLOO_SOCKET_IFNAME: NAME}, an interface with which every node "
        "reaches the others (`ip -br addr` on a node)",
    )


def _numa(node: NodeFacts) -> Iterator[Check]:
    """Check that ranks and GPUs fit the NUMA nodes.

    Rank n uses GPU n, and the first ranks get the cores of the first socket.
    """
    nodes = node.gpu_numa_nodes
    if len({*nodes}) < 2:
        return
    order = ", ".join(map(str, nodes))
    if -1 in nodes:
        yield Check.unknown("node-numa", f"not all GPUs say at which NUMA node they are: {order}")
        return
    if list(nodes) == sorted(nodes):
        text = f"the GPUs are at NUMA nodes {order}: ranks that fill the node run near theirs"
        yield Check.ok("node-numa", text)
        return
    yield Check.warning(
        "node-numa",
        f"the GPUs are at NUMA nodes {order}, not in ascending order: some ranks run far from "
        "theirs",
        "CUDA_VISIBLE_DEVICES in `setup:` with the GPUs in order of their NUMA nodes",
    )


# Python of the login node compared with our requirements.


_SLOW_OPEN_S = 0.002
_FILES_OF_TORCH = 3000
"""Approximate number of files that `import torch, transformers` opens."""


def python_checks(look: PythonLook) -> Iterator[Check]:
    """Check versions, and how fast modules are read."""
    yield from _own(look)
    if look.open_s is None:
        yield Check.unknown("imports", "no module's file could be timed")
        return
    finding = f"{units.seconds(look.open_s)} to open and read a module's file ({look.num_opened})"
    if look.open_s > _SLOW_OPEN_S:
        all_s = units.seconds(look.open_s * _FILES_OF_TORCH)
        yield Check.warning(
            "imports",
            f"{finding}: torch and transformers then take {all_s} at least to import",
            "put the environment on a faster file system, or pack it into one image "
            "(Apptainer, conda-pack unpacked to node-local storage in `setup:`)",
        )
        return
    yield Check.ok("imports", finding)


def _own(look: PythonLook) -> Iterator[Check]:
    python = f"Python {look.version}"
    if look.requires is None:
        yield Check.unknown(
            "packages",
            f"{python}; slurm-jobs is not installed as a package here, so its bounds are not known",
            "pip install . (in its checkout)",
        )
        return
    bounds = bounds_of(look.requires)
    if look.requires_python and meets(look.version, look.requires_python) is False:
        yield Check.problem(
            "python",
            f"{python} is outside {look.requires_python}",
            "create the environment again with a newer Python",
        )
    wrong = mismatches(look.packages, bounds)
    if wrong:
        missing = any(one.fault == "missing" for one in wrong)
        yield Check(
            name="packages",
            standing="problem" if missing else "warning",
            told="; ".join(map(str, wrong)),
            remedy=f"{look.executable} -m pip install {' '.join(o.requirement for o in wrong)}",
        )
        return
    finding = f"{python}, and all {len(bounds)} packages of the login node within bounds"
    yield Check.ok("packages", finding)


def stage_python_checks(look: PythonLook, started: Collection[str]) -> Iterator[Check]:
    """Check the Python interpreters that stages name.

    `started`: those that ran on a node, so that it does not matter if they are missing here.
    """
    for path, is_here in look.stage_pythons.items():
        if is_here or path in started:
            yield Check.ok("stage-python", f"{path} starts {'here' if is_here else 'on the nodes'}")
            continue
        yield Check.unknown(
            "stage-python",
            f"{path} is not on this machine; it may be on the nodes alone",
            "the job on nodes shows it; if it fails, correct the stage's `python:`",
        )
