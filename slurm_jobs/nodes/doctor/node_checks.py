"""Judgement of nodes for a training. Equal results of several nodes are merged. PURE."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from slurm_jobs.base import units
from slurm_jobs.formats.node_records.doctor_facts import NodeFacts
from slurm_jobs.nodes.doctor.clocks import clock_checks
from slurm_jobs.nodes.doctor.doctor_check import Check
from slurm_jobs.nodes.doctor.login_folders import LOCAL_KINDS, MEMORY_KINDS, size_text
from slurm_jobs.nodes.doctor.pythons import node_python_checks
from slurm_jobs.nodes.doctor.site_facts import SpecFacts
from slurm_jobs.nodes.doctor.torch_build import torch_checks

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
        lambda node: node_python_checks(node, spec, requires, requires_python),
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
    checks = [replace(c, where=node.node) for rule in rules for node in nodes for c in rule(node)]
    return merged(checks)


def merged(checks: Sequence[Check]) -> list[Check]:
    """Merge equal checks of several machines."""
    where: dict[Check, list[str]] = {}
    for check in checks:
        where.setdefault(replace(check, where=""), []).append(check.where)
    return [replace(check, where=", ".join(dict.fromkeys(names))) for check, names in where.items()]


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
