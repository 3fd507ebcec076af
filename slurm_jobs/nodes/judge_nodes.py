"""Judgements on nodes: files, Python, torch, network, and the drill. PURE."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from slurm_jobs.nodes.doctor_model import (
    Check,
    MeasuredFolder,
    MeasuredPython,
    Mismatch,
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
    nodes = ", ".join(dict.fromkeys(str(c["started"]["node"]) for c in counters)) or "no node"
    standing: Standing = "problem"
    remedy = facts.logs_command
    if not counters and (facts.gave_up or facts.status in {"waiting", "running"}):
        standing, remedy = "unknown", "wait longer: --wait MINUTES"
        finding = f"it did not start: {facts.gave_up or facts.reason or facts.status}"
    elif not counters:
        finding = f"the job {facts.status} before it counted: {facts.reason}"
    elif any("asked_unix_s" not in c for c in counters):
        reason = f" ({facts.reason})" if facts.reason else ""
        finding = (
            f"the job was not asked to stop before its time limit{reason}: a training would lose "
            "what it did since its last checkpoint"
        )
        remedy = (
            "checkpoint.every_min: 10 in the training's config, and `slurm-jobs resume` each time"
        )
    elif any("saved_unix_s" not in c for c in counters):
        finding = f"asked to stop, and killed before a few bytes were saved ({facts.reason})"
        remedy = "a longer signal_lead_s; or runs_dir on a faster file system"
    elif any("returned" not in c for c in counters):
        remedy = f"type `slurm-jobs resume` after each time limit; see `{facts.logs_command}`"
        refusals = [line for line in facts.log.splitlines() if "not requeued" in line]
        if refusals:
            reason = refusals[-1].partition("slurm-jobs: ")[2]
            finding = f"it was asked to stop, and saved; but {reason}"
        elif any(c.get("by") == "SIGTERM" for c in counters):
            finding = (
                "only SIGTERM came, at the time limit itself: it saved, but is then not requeued"
            )
        elif facts.gave_up:
            standing, remedy = "unknown", "wait longer: --wait MINUTES"
            finding = f"it saved and was requeued, and had not started again when {facts.gave_up}"
        else:
            finding = (
                f"it was asked to stop, and saved; then the job {facts.status}: {facts.reason}"
            )
    elif facts.status != "completed":
        finding = f"it came back and then {facts.status}: {facts.reason}"
    else:
        standing, remedy = "ok", ""
        last = max(counters, key=lambda c: c["returned"]["unix_s"])
        save_s = max(c["saved_unix_s"] - c["asked_unix_s"] for c in counters)
        signal_s = last["asked_unix_s"] - last["started"]["unix_s"]
        away_s = max(0.0, last["returned"]["unix_s"] - last["saved_unix_s"])
        back = ", ".join(dict.fromkeys(str(c["returned"]["node"]) for c in counters))
        ranks = f" by each of {len(counters)} ranks" if len(counters) > 1 else ""
        finding = (
            f"requeue with checkpoint works: {last['by']} came {units.seconds(signal_s)} after the "
            f"start, {last['count'] - 1} counts were saved{ranks} in {units.seconds(save_s)}, the "
            f"job started again {units.seconds(away_s)} later on {back}, and continued from them"
        )
    return Check(name="drill", standing=standing, told=finding, remedy=remedy, where=nodes)


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


def _torch(node: NodeFacts, spec: SpecFacts) -> Iterator[Check]:
    torch = node.torch
    grade = Check.problem if spec.trains else Check.warning
    if torch.problem:
        if spec.trains or spec.gpus_per_node:
            remedy = (
                f"{node.executable} -m pip install '.[train]' in slurm-jobs' checkout, or another "
                "`python:`"
            )
            yield grade("torch", torch.problem, remedy)
        return
    if torch.import_s is not None and torch.import_s > _SLOW_IMPORT_S:
        finding = f"importing torch took {units.seconds(torch.import_s)} on one node alone"
        remedy = "put the environment on a faster file system, or pack it into one image"
        yield Check.warning("torch-import", finding, remedy)
    if not spec.gpus_per_node:
        yield Check.ok("torch", f"torch {torch.version}; no GPU is requested, so none was compared")
        return
    names = Counter(f"{c.name} (compute capability {c.capability})" for c in torch.cards)
    cards = ", ".join(f"{number} x {name}" for name, number in names.items())
    problems = dict.fromkeys(card.problem for card in torch.cards if card.problem)
    if problems:
        for problem in problems:
            yield Check.problem("torch", problem, "see above")
    elif not torch.cards:
        smi = f"nvidia-smi shows {', '.join(node.gpus)}" if node.gpus else node.gpus_reason
        reason = torch.cuda_problem or "no reason"
        remedy = "a build of torch for CUDA in the stage's Python (pytorch.org/get-started)"
        if torch.cuda:
            remedy = f"srun -N1 --gpus-per-node={spec.gpus_per_node} nvidia-smi"
        yield grade("torch", f"torch {torch.version} sees no GPU ({reason}); {smi}", remedy)
    elif len(torch.cards) < spec.gpus_per_node:
        counts = f"{len(torch.cards)} GPUs are visible, {spec.gpus_per_node} were requested"
        yield Check.problem("torch", f"{counts}: {cards}", "nvidia-smi -L")
    else:
        yield Check.ok("torch", f"torch {torch.version} has code for {cards}")
    yield from _driver_and_nccl(node)


def _driver_and_nccl(node: NodeFacts) -> Iterator[Check]:
    cuda, nccl = node.torch.cuda, node.torch.nccl
    if cuda:
        name, major = "cuda-driver", re.match(r"(\d+)", node.driver)
        least = _LEAST_DRIVER.get(int(cuda.partition(".")[0]))
        if major is None or least is None:
            finding = f"driver `{node.driver or 'unknown'}` with a build for CUDA {cuda}"
            yield Check.unknown(name, finding)
        elif int(major[1]) < least:
            finding = (
                f"driver {node.driver} is too old for a build for CUDA {cuda} ({least} or newer)"
            )
            remedy = (
                "a build for an older CUDA: pip install torch --index-url "
                "https://download.pytorch.org/whl/cu126"
            )
            yield Check.problem(name, finding, remedy)
        else:
            yield Check.ok(name, f"driver {node.driver} is new enough for CUDA {cuda} ({least})")
        if not nccl:
            finding = "this build of torch has no NCCL: several GPUs cannot work together"
            remedy = "install PyTorch's own build (pytorch.org/get-started)"
            yield Check.problem("nccl", finding, remedy)
    if nccl:
        variables = {k: v for k, v in node.environment.items() if k.startswith("NCCL_")}
        pairs = [f"{k}={v}" for k, v in variables.items() if k not in _DEBUGGING]
        finding = f"NCCL {nccl}; set: {', '.join(pairs) or 'nothing'}"
        slowing = [
            f"{k}: {_SLOWING[k]}"
            for k, v in variables.items()
            if k in _SLOWING and v not in {"", "0"}
        ]
        if slowing:
            remedy = "remove it from `environment:` and `setup:` unless the site recommends it"
            yield Check.warning("nccl", f"{finding} ({'; '.join(slowing)})", remedy)
        else:
            yield Check.ok("nccl", finding)


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
        lambda node: _torch(node, spec),
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
    checks = [replace(c, where=node.node) for rule in rules for node in nodes for c in rule(node)]
    return merged(checks)


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
        finding = f"{python} is outside {requires_python}"
        yield Check.problem("node-python", finding, "name another with the stage's `python:`")
    if requires is None:
        finding = f"{python} starts; the bounds of its packages are not known"
        yield Check.unknown(name, finding, "pip install . (login node)")
        return
    bounds = bounds_of(requires, "train")
    wrong = mismatches(node.packages, bounds)
    if not wrong:
        finding = f"{python} starts, and all {len(bounds)} packages of a training are within bounds"
        yield Check.ok(name, finding)
    elif not spec.trains and len(wrong) == len(bounds):
        finding = "it has none of the packages of a training, and none is requested"
        yield Check.ok(name, f"{python} starts; {finding}")
    else:
        yield _mismatch_check(name, f"{python}: ", wrong, node.executable, is_needed=spec.trains)


def _mismatch_check(
    name: str, prefix: str, wrong: Sequence[Mismatch], executable: str, *, is_needed: bool
) -> Check:
    is_missing = any(mismatch.fault == "missing" for mismatch in wrong)
    grade = Check.problem if is_needed and is_missing else Check.warning
    requirements = " ".join(mismatch.requirement for mismatch in wrong)
    remedy = f"{executable} -m pip install {requirements}"
    return grade(name, prefix + "; ".join(map(str, wrong)), remedy)


def _local(node: NodeFacts) -> Iterator[Check]:
    facts, name = node.local, "node-local"
    remedy = "node_local_dir: a folder on each node's own disk (in the profile, or the stage)"
    if facts.problem:
        finding = f"nothing can be written to {facts.path}: {facts.problem}"
        yield Check.problem(name, finding, remedy)
        return
    room = "" if facts.free_bytes is None else f", {size_text(facts.free_bytes)} free"
    # The folder that the user named; ours in it has the user's and the node's names.
    folder = facts.path.partition("/slurm-jobs-")[0] or facts.path
    finding = f"{folder} is writable on {facts.kind or 'an unknown file system'}{room}"
    reason = ""
    if facts.kind in MEMORY_KINDS:
        reason = "what is staged there takes the job's memory"
    elif facts.kind and facts.kind not in LOCAL_KINDS:
        reason = "that is not the node's own, and staging to it gains nothing"
    elif facts.kind and facts.free_bytes is not None and facts.free_bytes < _LITTLE_LOCAL:
        reason = "little for a data set"
    if reason:
        yield Check.warning(name, f"{finding}: {reason}", remedy)
    else:
        yield (Check.ok if facts.kind else Check.unknown)(name, finding)


def _shared(node: NodeFacts) -> Iterator[Check]:
    name, took_s = "node-runs_dir", node.login_file_s or 0.0
    finding = "runs_dir is writable, and the same as on the login node"
    if node.shared.problem:
        finding = f"runs_dir cannot be written from the node: {node.shared.problem}"
        remedy = "runs_dir: a folder of yours that all nodes see, and may write"
        yield Check.problem(name, finding, remedy)
    elif node.login is None and node.login_file_s is None:
        finding = f"runs_dir is writable, but not compared with the login node: {node.login_reason}"
        remedy = "see `cat /proc/mounts` on both: NFS may show a folder's list a minute late"
        yield Check.unknown(name, finding, remedy)
    elif took_s > _SLOW_FILE_S:
        finding = f"{finding}, but files took {units.seconds(took_s)} there and back"
        remedy = "no action needed: slurm-jobs checks again for a minute; `status` lags as much"
        yield Check.warning(name, finding, remedy)
    else:
        yield Check.ok(name, finding)


def _programs(node: NodeFacts, spec: SpecFacts) -> Iterator[Check]:
    if not spec.is_slurm:
        return
    for name, effect, remedy in (
        (
            "scontrol",
            "a training near its time limit cannot have itself requeued",
            "type `slurm-jobs resume` after each time limit, and ask the site for it",
        ),
        (
            "srun",
            "ranks on several nodes, or several a node, cannot be started",
            "add the site's line to `setup:` (such as `module load slurm`)",
        ),
    ):
        facts = node.programs.get(name)
        if facts is None:
            yield Check.unknown(name, "it was not checked on the node")
        elif not facts.path:
            yield Check.problem(name, f"{name} is not on the node's PATH: {effect}", remedy)
        elif facts.problem:
            finding = f"{facts.path} does not answer on the node ({facts.problem}): {effect}"
            yield Check.problem(name, finding, remedy)
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
    limits: Mapping[str, int | None] = node.limits
    files, locked, shm = limits["open_files"], limits["locked_bytes"], limits["shm_bytes"]
    low, lines = [], []
    if files is not None and files < _FEW_FILES:
        low.append(f"{files} open files")
        lines.append("ulimit -S -n $(ulimit -H -n)")
    # Locked memory is pinned for the GPU.
    if node.has_infiniband and locked is not None and locked < _LITTLE_LOCKED:
        low.append(f"{size_text(locked)} of locked memory")
        lines.append("ulimit -S -l $(ulimit -H -l)")
    remedies = [f'setup: ["{"; ".join(lines)}"]'] if lines else []
    if shm is not None and shm < _LITTLE_SHM:
        low.append(f"{size_text(shm)} in /dev/shm")
        remedies.append("ask the site for a larger /dev/shm")
    if low:
        yield Check.warning("limits", f"only {', '.join(low)}", "; ".join(remedies))
        return
    memory = limits["memory_bytes"]
    amount = "no memory limit" if memory is None else f"{size_text(memory)} of memory"
    quota = "" if node.cores is None else f", {node.cores:g} of them by quota"
    yield Check.ok(
        "limits",
        "open files, locked memory and /dev/shm suffice; "
        f"{amount} by control groups; {node.num_cores} cores{quota}",
    )


def _hub(node: NodeFacts) -> Iterator[Check]:
    name = "model-hub"
    is_offline = node.environment.get("HF_HUB_OFFLINE", "0") not in {"", "0"}
    if node.hub_s is not None:
        note = ", although HF_HUB_OFFLINE is set" if is_offline else ""
        yield Check.ok(name, f"reached from the node in {units.seconds(node.hub_s)}{note}")
    elif is_offline:
        yield Check.ok(name, "not reached from the node, and HF_HUB_OFFLINE is set for libraries")
    else:
        remedy = (
            "download models on the login node first; in the spec "
            'environment: {HF_HUB_OFFLINE: "1"}'
        )
        yield Check.warning(name, f"not reached from the node ({node.hub_problem})", remedy)


def _all_reduce(node: NodeFacts, spec: SpecFacts) -> Iterator[Check]:
    facts, name = node.all_reduce, "node-gloo"
    if facts is None or node.torch.problem:
        return
    where = f" over {facts.interface}" if facts.interface else ""
    if facts.seconds is not None:
        yield Check.ok(name, f"an all-reduce over gloo works between the nodes{where}")
        return
    grade = Check.problem if spec.trains else Check.warning
    yield grade(
        name,
        f"an all-reduce over gloo failed between the nodes{where}: {facts.problem}",
        "environment: {GLOO_SOCKET_IFNAME: NAME}, an interface with which every node "
        "reaches the others (`ip -br addr` on a node)",
    )


def _numa(node: NodeFacts) -> Iterator[Check]:
    """Check that ranks and GPUs fit the NUMA nodes.

    Rank n uses GPU n, and the first ranks get the cores of the first socket.
    """
    name, numa_nodes = "node-numa", list(node.gpu_numa_nodes)
    if len({*numa_nodes}) < 2:
        return
    order = ", ".join(map(str, numa_nodes))
    finding = f"the GPUs are at NUMA nodes {order}"
    if -1 in numa_nodes:
        yield Check.unknown(name, f"not all GPUs say at which NUMA node they are: {order}")
    elif numa_nodes == sorted(numa_nodes):
        yield Check.ok(name, f"{finding}: ranks that fill the node run near theirs")
    else:
        finding += ", not in ascending order: some ranks run far from theirs"
        remedy = "CUDA_VISIBLE_DEVICES in `setup:` with the GPUs in order of their NUMA nodes"
        yield Check.warning(name, finding, remedy)


# Python of the login node compared with our requirements.


_SLOW_OPEN_S = 0.002
_FILES_OF_TORCH = 3000
"""Approximate number of files that `import torch, transformers` opens."""


def python_checks(measured: MeasuredPython) -> Iterator[Check]:
    """Check versions, and how fast modules are read."""
    python = f"Python {measured.version}"
    if measured.requires is None:
        finding = "slurm-jobs is not installed as a package here, so its bounds are not known"
        yield Check.unknown("packages", f"{python}; {finding}", "pip install . (in its checkout)")
    else:
        if measured.requires_python and meets(measured.version, measured.requires_python) is False:
            finding = f"{python} is outside {measured.requires_python}"
            remedy = "create the environment again with a newer Python"
            yield Check.problem("python", finding, remedy)
        bounds = bounds_of(measured.requires)
        wrong = mismatches(measured.packages, bounds)
        if wrong:
            yield _mismatch_check("packages", "", wrong, measured.executable, is_needed=True)
        else:
            finding = f"{python}, and all {len(bounds)} packages of the login node within bounds"
            yield Check.ok("packages", finding)
    if measured.open_s is None:
        yield Check.unknown("imports", "no module's file could be timed")
        return
    finding = (
        f"{units.seconds(measured.open_s)} to open and read a module's file ({measured.num_opened})"
    )
    if measured.open_s <= _SLOW_OPEN_S:
        yield Check.ok("imports", finding)
        return
    all_s = units.seconds(measured.open_s * _FILES_OF_TORCH)
    yield Check.warning(
        "imports",
        f"{finding}: torch and transformers then take {all_s} at least to import",
        "put the environment on a faster file system, or pack it into one image "
        "(Apptainer, conda-pack unpacked to node-local storage in `setup:`)",
    )


def stage_python_checks(measured: MeasuredPython, started: Collection[str]) -> Iterator[Check]:
    """Check the Python interpreters that stages name.

    `started`: those that ran on a node, so that it does not matter if they are missing here.
    """
    for path, is_here in measured.stage_pythons.items():
        if is_here or path in started:
            yield Check.ok("stage-python", f"{path} starts {'here' if is_here else 'on the nodes'}")
            continue
        yield Check.unknown(
            "stage-python",
            f"{path} is not on this machine; it may be on the nodes alone",
            "the job on nodes shows it; if it fails, correct the stage's `python:`",
        )
