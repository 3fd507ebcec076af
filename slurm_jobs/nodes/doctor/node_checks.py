"""Judgement of nodes for a training. Equal results of several nodes are merged. PURE."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from slurm_jobs.base import units
from slurm_jobs.formats.node_records.doctor_facts import NodeFacts
from slurm_jobs.nodes.doctor.clocks import first_clock, first_file, login_clock
from slurm_jobs.nodes.doctor.doctor_check import Check, Judgement, judged
from slurm_jobs.nodes.doctor.login_folders import LOCAL_KINDS, MEMORY_KINDS, size_text
from slurm_jobs.nodes.doctor.pythons import node_packages, node_python
from slurm_jobs.nodes.doctor.site_facts import SpecFacts
from slurm_jobs.nodes.doctor.torch_build import cuda_driver, nccl, torch_code, torch_import

_FEW_FILES = 4096
"""Open files of a rank: shards, pipes to workers, sockets to every other rank."""
_LITTLE_LOCKED = 1 << 30
_LITTLE_SHM = 2 << 30
_LITTLE_LOCAL = 20e9
_SLOW_FILE_S = 5.0


def _local(node: NodeFacts, _spec: SpecFacts) -> Judgement:
    facts = node.local
    remedy = "node_local_dir: a folder on each node's own disk (in the profile, or the stage)"
    if facts.problem:
        finding = f"nothing can be written to {facts.path}: {facts.problem}"
        return Judgement("problem", finding, remedy)
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
        return Judgement("warning", f"{finding}: {reason}", remedy)
    return Judgement("ok" if facts.kind else "unknown", finding)


def _shared(node: NodeFacts, _spec: SpecFacts) -> Judgement:
    if node.shared.problem:
        finding = f"runs_dir cannot be written from the node: {node.shared.problem}"
        remedy = "runs_dir: a folder of yours that all nodes see, and may write"
        return Judgement("problem", finding, remedy)
    took_s = node.login_file_s
    if took_s is None:
        reason = node.login_reason or "no time is known for its answer"
        finding = f"runs_dir is writable, but not compared with the login node: {reason}"
        remedy = "see `cat /proc/mounts` on both: NFS may show a folder's list a minute late"
        return Judgement("unknown", finding, remedy)
    finding = "runs_dir is writable, and the same as on the login node"
    if took_s > _SLOW_FILE_S:
        finding = f"{finding}, but files took {units.seconds(took_s)} there and back"
        remedy = "no action needed: slurm-jobs checks again for a minute; `status` lags as much"
        return Judgement("warning", finding, remedy)
    return Judgement("ok", finding)


def _scontrol(node: NodeFacts, spec: SpecFacts) -> Judgement | None:
    effect = "a training near its time limit cannot have itself requeued"
    remedy = "type `slurm-jobs resume` after each time limit, and ask the site for it"
    return _program("scontrol", node, effect, remedy) if spec.is_slurm else None


def _srun(node: NodeFacts, spec: SpecFacts) -> Judgement | None:
    effect = "ranks on several nodes, or several a node, cannot be started"
    remedy = "add the site's line to `setup:` (such as `module load slurm`)"
    return _program("srun", node, effect, remedy) if spec.is_slurm else None


def _program(name: str, node: NodeFacts, effect: str, remedy: str) -> Judgement:
    facts = node.programs.get(name)
    if facts is None:
        return Judgement("unknown", "it was not checked on the node")
    if not facts.path:
        return Judgement("problem", f"{name} is not on the node's PATH: {effect}", remedy)
    if facts.problem:
        finding = f"{facts.path} does not answer on the node ({facts.problem}): {effect}"
        return Judgement("problem", finding, remedy)
    return Judgement("ok", f"{name} answers on the node")


def _signal(node: NodeFacts, _spec: SpecFacts) -> Judgement:
    if node.signalled:
        return Judgement("ok", "SIGUSR2 to the job comes through to its ranks")
    if node.signalled is None:
        return Judgement("unknown", f"no signal: {node.signal_reason}")
    remedy = "something in `setup:` may ignore it (`trap '' USR2`); try `doctor --drill`"
    return Judgement("problem", f"SIGUSR2: {node.signal_reason}", remedy)


@dataclass(frozen=True, slots=True)
class _LowLimit:
    amount: str
    raising: str | None
    """Shell command that raises it; None if only the site can."""


def _remedy_for(low: Sequence[_LowLimit]) -> str:
    remedies: list[str] = []
    commands = [each.raising for each in low if each.raising is not None]
    if commands:
        remedies.append(f'setup: ["{"; ".join(commands)}"]')
    if len(commands) < len(low):
        remedies.append("ask the site for a larger /dev/shm")
    return "; ".join(remedies)


def _limits(node: NodeFacts, _spec: SpecFacts) -> Judgement:
    """Judge the limits of the process; None is no limit."""
    limits: Mapping[str, int | None] = node.limits
    files, locked, shm = limits["open_files"], limits["locked_bytes"], limits["shm_bytes"]
    low: list[_LowLimit] = []
    if files is not None and files < _FEW_FILES:
        low.append(_LowLimit(f"{files} open files", "ulimit -S -n $(ulimit -H -n)"))
    # Locked memory is pinned for the GPU.
    if node.has_infiniband and locked is not None and locked < _LITTLE_LOCKED:
        amount = f"{size_text(locked)} of locked memory"
        low.append(_LowLimit(amount, "ulimit -S -l $(ulimit -H -l)"))
    if shm is not None and shm < _LITTLE_SHM:
        low.append(_LowLimit(f"{size_text(shm)} in /dev/shm", None))
    if low:
        finding = f"only {', '.join(each.amount for each in low)}"
        return Judgement("warning", finding, _remedy_for(low))
    memory = limits["memory_bytes"]
    amount = "no memory limit" if memory is None else f"{size_text(memory)} of memory"
    quota = "" if node.cores is None else f", {node.cores:g} of them by quota"
    return Judgement(
        "ok",
        "open files, locked memory and /dev/shm suffice; "
        f"{amount} by control groups; {node.num_cores} cores{quota}",
    )


def _hub(node: NodeFacts, _spec: SpecFacts) -> Judgement:
    is_offline = node.environment.get("HF_HUB_OFFLINE", "0") not in {"", "0"}
    if node.hub_s is not None:
        note = ", although HF_HUB_OFFLINE is set" if is_offline else ""
        return Judgement("ok", f"reached from the node in {units.seconds(node.hub_s)}{note}")
    if is_offline:
        return Judgement("ok", "not reached from the node, and HF_HUB_OFFLINE is set for libraries")
    remedy = (
        'download models on the login node first; in the spec environment: {HF_HUB_OFFLINE: "1"}'
    )
    return Judgement("warning", f"not reached from the node ({node.hub_problem})", remedy)


def _all_reduce(node: NodeFacts, spec: SpecFacts) -> Judgement | None:
    facts = node.all_reduce
    if facts is None or node.torch.problem:
        return None
    where = f" over {facts.interface}" if facts.interface else ""
    if facts.seconds is not None:
        return Judgement("ok", f"an all-reduce over gloo works between the nodes{where}")
    return Judgement(
        "problem" if spec.trains else "warning",
        f"an all-reduce over gloo failed between the nodes{where}: {facts.problem}",
        "environment: {GLOO_SOCKET_IFNAME: NAME}, an interface with which every node "
        "reaches the others (`ip -br addr` on a node)",
    )


def _numa(node: NodeFacts, _spec: SpecFacts) -> Judgement | None:
    """Judge whether ranks and GPUs fit the NUMA nodes.

    Rank n uses GPU n, and the first ranks get the cores of the first socket.
    """
    numa_nodes = list(node.gpu_numa_nodes)
    if len({*numa_nodes}) < 2:
        return None
    order = ", ".join(map(str, numa_nodes))
    if -1 in numa_nodes:
        return Judgement("unknown", f"not all GPUs say at which NUMA node they are: {order}")
    finding = f"the GPUs are at NUMA nodes {order}"
    if numa_nodes == sorted(numa_nodes):
        return Judgement("ok", f"{finding}: ranks that fill the node run near theirs")
    finding += ", not in ascending order: some ranks run far from theirs"
    remedy = "CUDA_VISIBLE_DEVICES in `setup:` with the GPUs in order of their NUMA nodes"
    return Judgement("warning", finding, remedy)


NODE_CHECKS: tuple[tuple[str, Callable[[NodeFacts, SpecFacts], Judgement | None]], ...] = (
    ("node-python", node_python),
    ("node-packages", node_packages),
    ("torch-import", torch_import),
    ("torch", torch_code),
    ("cuda-driver", cuda_driver),
    ("nccl", nccl),
    ("node-local", _local),
    ("node-runs_dir", _shared),
    ("scontrol", _scontrol),
    ("srun", _srun),
    ("node-signal", _signal),
    ("limits", _limits),
    ("model-hub", _hub),
    ("node-gloo", _all_reduce),
    ("node-numa", _numa),
    ("clock", login_clock),
    ("node-clocks", first_clock),
    ("node-files", first_file),
)
"""Checks of a node, in the order in which they are printed."""


def node_checks(nodes: Sequence[NodeFacts], spec: SpecFacts) -> list[Check]:
    """Return all checks of the nodes; equal ones of several nodes are merged."""
    where: dict[Check, list[str]] = {}
    for row in NODE_CHECKS:
        for node in nodes:
            for check in judged([row], node, spec):
                where.setdefault(check, []).append(node.node)
    return [replace(check, where=", ".join(dict.fromkeys(names))) for check, names in where.items()]
