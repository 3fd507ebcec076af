"""Judgement of nodes for a training. PURE. Equal results of several nodes are merged."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from slurm_jobs.common.doctor_records import NodeFacts
from slurm_jobs.doctor.judging_clocks import clock_checks
from slurm_jobs.doctor.judging_files import LOCAL_KINDS, MEMORY_KINDS, size_text
from slurm_jobs.doctor.judging_torch import torch_checks
from slurm_jobs.doctor.model import Check, SpecFacts
from slurm_jobs.doctor.versions import bounds_of, meets, mismatches
from slurm_jobs.report import words

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
        yield Check(
            name="node-python",
            standing="problem",
            told=f"{python} is outside {requires_python}",
            remedy="name another with the stage's `python:`",
        )
    if requires is None:
        finding = f"{python} starts; the bounds of its packages are not known"
        yield Check(
            name=name, standing="unknown", told=finding, remedy="pip install . (login node)"
        )
        return
    bounds = bounds_of(requires, "train")
    wrong = mismatches(node.packages, bounds)
    if not wrong:
        finding = f"{python} starts, and all {len(bounds)} packages of a training are within bounds"
        yield Check(name=name, standing="ok", told=finding)
        return
    if not spec.trains and len(wrong) == len(bounds):
        finding = (
            f"{python} starts; it has none of the packages of a training, and none is requested"
        )
        yield Check(name=name, standing="ok", told=finding)
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
        yield Check(name=name, standing="problem", told=finding, remedy=remedy)
        return
    room = "" if facts.free_bytes is None else f", {size_text(facts.free_bytes)} free"
    finding = f"{_base(facts.path)} is writable on {facts.kind or 'an unknown file system'}{room}"
    if facts.kind in MEMORY_KINDS:
        finding += ": what is staged there takes the job's memory"
        yield Check(name=name, standing="warning", told=finding, remedy=remedy)
    elif not facts.kind:
        yield Check(name=name, standing="unknown", told=finding)
    elif facts.kind not in LOCAL_KINDS:
        finding += ": that is not the node's own, and staging to it gains nothing"
        yield Check(name=name, standing="warning", told=finding, remedy=remedy)
    elif facts.free_bytes is not None and facts.free_bytes < _LITTLE_LOCAL:
        finding += ": little for a data set"
        yield Check(name=name, standing="warning", told=finding, remedy=remedy)
    else:
        yield Check(name=name, standing="ok", told=finding)


def _base(path: str) -> str:
    """Return the folder that the user named; ours in it has the user's and the node's names."""
    return path.partition("/slurm-jobs-")[0] or path


def _shared(node: NodeFacts) -> Iterator[Check]:
    facts = node.shared
    if facts.problem:
        finding = f"runs_dir cannot be written from the node: {facts.problem}"
        remedy = "runs_dir: a folder of yours that all nodes see, and may write"
        yield Check(name="node-runs_dir", standing="problem", told=finding, remedy=remedy)
        return
    if node.login is None and node.login_file_s is None:
        finding = f"runs_dir is written; of the login node's answer there {node.login_reason}"
        remedy = "see `cat /proc/mounts` on both: NFS may show a folder's list a minute late"
        yield Check(name="node-runs_dir", standing="unknown", told=finding, remedy=remedy)
        return
    took_s = node.login_file_s or 0.0
    finding = "runs_dir is writable, and the same as on the login node"
    late = f"files were seen both ways in {words.seconds(took_s)}"
    if took_s > _SLOW_FILE_S:
        remedy = "no action needed: slurm-jobs checks again for a minute; `status` lags as much"
        yield Check(
            name="node-runs_dir", standing="warning", told=f"{finding}, but {late}", remedy=remedy
        )
    else:
        yield Check(name="node-runs_dir", standing="ok", told=finding)


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
            yield Check(name=name, standing="unknown", told="it was not checked on the node")
        elif not facts.path:
            finding = f"{name} is not on the node's PATH: {why}"
            yield Check(name=name, standing="problem", told=finding, remedy=remedies[name])
        elif facts.problem:
            finding = f"{facts.path} does not answer on the node ({facts.problem}): {why}"
            yield Check(name=name, standing="problem", told=finding, remedy=remedies[name])
        else:
            finding = f"{name} answers on the node"
            yield Check(name=name, standing="ok", told=finding)


def _signal(node: NodeFacts) -> Iterator[Check]:
    name = "node-signal"
    if node.signalled:
        finding = "SIGUSR2 to the job comes through to its ranks"
        yield Check(name=name, standing="ok", told=finding)
    elif node.signalled is None:
        yield Check(name=name, standing="unknown", told=f"no signal: {node.signal_reason}")
    else:
        yield Check(
            name=name,
            standing="problem",
            told=f"SIGUSR2: {node.signal_reason}",
            remedy="something in `setup:` may ignore it (`trap '' USR2`); try `doctor --drill`",
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
        yield Check(name="limits", standing="warning", told=f"only {few}", remedy=remedy)
    else:
        finding = f"open files, locked memory and /dev/shm suffice; {finding}"
        yield Check(name="limits", standing="ok", told=finding)


def _hub(node: NodeFacts) -> Iterator[Check]:
    name = "model-hub"
    offline = node.environment.get("HF_HUB_OFFLINE", "0") not in {"", "0"}
    if node.hub_s is not None:
        finding = f"reached from the node in {words.seconds(node.hub_s)}"
        if offline:
            finding += "; HF_HUB_OFFLINE is set all the same"
        yield Check(name=name, standing="ok", told=finding)
    elif offline:
        finding = "not reached from the node, and HF_HUB_OFFLINE is set for libraries"
        yield Check(name=name, standing="ok", told=finding)
    else:
        yield Check(
            name=name,
            standing="warning",
            told=f"not reached from the node ({node.hub_problem})",
            remedy="download models on the login node first; in the spec "
            'environment: {HF_HUB_OFFLINE: "1"}',
        )


def _all_reduce(node: NodeFacts, spec: SpecFacts) -> Iterator[Check]:
    facts, name = node.all_reduce, "node-gloo"
    if facts is None or node.torch.problem:
        return
    where = f" over {facts.interface}" if facts.interface else ""
    if facts.seconds is not None:
        text = f"an all-reduce over gloo works between the nodes{where}"
        yield Check(name=name, standing="ok", told=text)
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
        text = f"not all GPUs say at which NUMA node they are: {order}"
        yield Check(name="node-numa", standing="unknown", told=text)
        return
    if list(nodes) == sorted(nodes):
        text = f"the GPUs are at NUMA nodes {order}: ranks that fill the node run near theirs"
        yield Check(name="node-numa", standing="ok", told=text)
        return
    yield Check(
        name="node-numa",
        standing="warning",
        told=f"the GPUs are at NUMA nodes {order}, not in ascending order: some ranks run far from "
        "theirs",
        remedy="CUDA_VISIBLE_DEVICES in `setup:` with the GPUs in order of their NUMA nodes",
    )
