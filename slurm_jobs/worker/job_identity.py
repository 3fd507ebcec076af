"""Identity of this job as one value, from Slurm's or the local scheduler's variables."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from slurm_jobs.base.errors import SchedulerError
from slurm_jobs.base.machine import local_node_name
from slurm_jobs.run_folder.orders import JobOrder, slices_of_element
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.schedulers.batch_script import with_own_constraint
from slurm_jobs.schedulers.controller import entries, parse_jobs
from slurm_jobs.schedulers.local import LocalBook
from slurm_jobs.schedulers.slurm_environment import query_environment

COMMAND_TIMEOUT_S = 30
_GRACE_TIMEOUT_S = 3.0
"""Patience of a preempted job, which may have seconds left to record its end."""


def output_of(command: list[str], *, timeout_s: float = COMMAND_TIMEOUT_S) -> str | None:
    """Return the standard output; None if the command is missing, failed or did not answer."""
    try:
        result = _run(command, timeout_s)
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return None
    return result.stdout if result.returncode == 0 else None


def failure_of(command: list[str]) -> str | None:
    """Run a command; return None, or the reason why it failed."""
    try:
        result = _run(command)
    except FileNotFoundError:
        return f"{command[0]} is missing on this node; `slurm-jobs resume` runs it again"
    except subprocess.TimeoutExpired:
        return f"{command[0]} did not answer within {COMMAND_TIMEOUT_S} s"
    if result.returncode != 0:
        return f"{' '.join(command[:2])} failed: {result.stderr.strip()}"
    return None


def _run(
    command: list[str], timeout_s: float = COMMAND_TIMEOUT_S
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        encoding="utf-8",
        errors="replace",
        timeout=timeout_s,
        check=False,
        env=query_environment(os.environ),
    )


_TRIES = 5
"""Attempts to call scontrol: the signal that ends a requeued job may end that process, too."""


def kind_of_node(order: JobOrder, node: str) -> str:
    """Return the GPU type of a node among those requested; empty if unknown."""
    if len(order.resources.gpu) < 2:
        return ""
    shown = output_of(["scontrol", "show", "node", "-o", node]) or ""
    words = dict(word.partition("=")[::2] for word in shown.split())
    names = set(words.get("ActiveFeatures", "").split(","))
    names |= set(words.get("Gres", "").replace("(", ":").split(":"))
    return next((kind for kind in order.resources.gpu if kind in names), "")


def keep_kind(order: JobOrder, element_id: str, kind: str) -> str | None:
    """Restrict a requeued job to this GPU type; return the reason if that fails.

    A job with `gpu: [a100, v100]` takes the first type that is free. Started again on another, its
    arithmetic would differ from that of its checkpoint. Slurm lets a user change the request of a
    pending job, and a requeued job is pending while its processes still end.
    """
    constraint = order.resources.slurm.get("constraint")
    features = f"Features={with_own_constraint(kind, constraint)}"
    problem = None
    for _ in range(_TRIES):
        problem = failure_of(["scontrol", "update", f"JobId={element_id}", features])
        if problem is None:
            return None
    return problem


_CLOCKS_DIFFER_S = 2.0
"""Lag at which a node's clock counts as wrong compared to the controller's."""
_LONGEST_START_S = 300.0
"""Longest time from a job's start in Slurm's record to its first process: prologs take seconds,
rarely minutes."""
RANK_VARIABLES = (
    "SLURM_JOBS_RANK",
    "SLURM_JOBS_LOCAL_RANK",
    "SLURM_JOBS_NODE_RANK",
    "SLURM_JOBS_NODE_NAME",
)
"""Identity of a rank that the supervisor starts itself; srun sets Slurm's own variables for its
ranks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobEnvironment:
    """Job or array task as the scheduler started it."""

    element_id: str
    """Job id as squeue shows it: `12`, `12_3`."""
    slices: tuple[int, ...]
    """Slices of this job or array task, in order."""
    restart: int
    node_names: tuple[str, ...]
    deadline_unix_s: float
    is_slurm: bool
    gpu: str = ""
    """GPU type, if the job requested one of several."""


def read_environment(order: JobOrder, variables: Mapping[str, str]) -> JobEnvironment:
    """Read the identity of this job from its environment.

    A job inherits the variables of a surrounding job except those that its own scheduler sets. So
    only variables that this kind of job always has are read.

    Raises:
        KeyError: neither Slurm nor the local scheduler started it.
    """
    if order.scheduler == "local":
        task_id = variables["SLURM_JOBS_LOCAL_TASK_ID"]
        return JobEnvironment(
            element_id=task_id,
            slices=_slices(order, task_id.partition("_")[2]),
            restart=int(variables["SLURM_JOBS_LOCAL_RESTART_COUNT"]),
            node_names=tuple(map(local_node_name, range(order.resources.nodes))),
            deadline_unix_s=float(variables["SLURM_JOBS_LOCAL_END_UNIX_S"]),
            is_slurm=False,
        )
    job_id, index = variables["SLURM_JOB_ID"], ""
    if order.is_array:
        job_id, index = variables["SLURM_ARRAY_JOB_ID"], variables["SLURM_ARRAY_TASK_ID"]
    listed = variables.get("SLURM_JOB_NODELIST", "")
    nodes: tuple[str, ...] = (listed or variables.get("SLURMD_NODENAME", socket.gethostname()),)
    if "[" in listed or "," in listed:
        nodes = tuple((output_of(["scontrol", "show", "hostnames", listed]) or listed).split())
    return JobEnvironment(
        element_id=f"{job_id}_{index}" if order.is_array else job_id,
        slices=_slices(order, index),
        restart=int(variables.get("SLURM_RESTART_COUNT", "0")),
        node_names=nodes,
        gpu=kind_of_node(order, nodes[0]),
        deadline_unix_s=_deadline(order, variables),
        is_slurm=True,
    )


def _slices(order: JobOrder, index: str) -> tuple[int, ...]:
    """Return the slices of the array's element `index`; of the whole job if that is empty."""
    if not index:
        return order.slices
    return slices_of_element(order.slices, order.slices_per_task, int(index))


def _deadline(order: JobOrder, variables: Mapping[str, str]) -> float:
    """Return when the job must end, by this node's clock.

    Slurm reports it since 23.02, by the controller's clock. If the two clocks cannot agree (the job
    would start in the future, or minutes ago), and before 23.02, the limit from now on is a close
    upper bound: Slurm's own signal then comes first.
    """
    now_s = time.time()
    start, end = (variables.get(f"SLURM_JOB_{word}_TIME", "") for word in ("START", "END"))
    if not end.isdecimal():
        return now_s + order.resources.timeout_min * 60
    if start.isdecimal() and not -_CLOCKS_DIFFER_S <= now_s - float(start) <= _LONGEST_START_S:
        return now_s + float(end) - float(start)
    return float(end)


def main_address(order: JobOrder, environment: JobEnvironment) -> str:
    """Return the address at which other nodes reach the first one, where this supervisor runs."""
    if order.main_addr is not None:
        return order.main_addr
    if not environment.is_slurm or len(environment.node_names) == 1:
        return "127.0.0.1"
    return _address_of(environment.node_names[0]) or socket.gethostname()


def second_address(environment: JobEnvironment) -> str | None:
    """Return the address at which the first node reaches the second; None if there is none."""
    if not environment.is_slurm or len(environment.node_names) == 1:
        return None
    return _address_of(environment.node_names[1])


def _address_of(name: str) -> str | None:
    """Return a node's name, or the address that Slurm has for it if it does not resolve."""
    with suppress(socket.gaierror):
        socket.getaddrinfo(name, None)
        return name
    shown = output_of(["scontrol", "show", "node", "-o", name]) or ""
    for word in shown.split():
        if word.startswith("NodeAddr="):
            return word.partition("=")[2]
    return None


def free_port() -> int:
    """Return a port that was just free."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        port: int = probe.getsockname()[1]
    return port


def requeue(order: JobOrder, environment: JobEnvironment, *, gpu: str) -> str | None:
    """Request another run of this job under the same id; return the reason if that fails.

    `gpu` is the GPU type that it must run on, one of those requested; empty for any.
    """
    if not environment.is_slurm:
        book = LocalBook(RunPaths(Path(order.run_dir)).local_dir)
        book.request("requeue", environment.element_id)
        return None
    problem = _stranger(order, environment.element_id)
    if problem is None:
        problem = failure_of(["scontrol", "requeue", environment.element_id])
    if problem is None and gpu:
        # If this fails, the next start detects and repairs it.
        keep_kind(order, environment.element_id, gpu)
    return problem


def is_preempted(environment: JobEnvironment) -> bool:
    """Check whether Slurm is preempting this job, which has until the end of its grace time."""
    if not environment.is_slurm:
        return False
    command = ["scontrol", "show", "job", "--oneliner", environment.element_id]
    shown = output_of(command, timeout_s=_GRACE_TIMEOUT_S) or ""
    words = dict(word.partition("=")[::2] for word in shown.split())
    return words.get("PreemptTime", "")[:1].isdecimal()  # else `None`


def _stranger(order: JobOrder, element_id: str) -> str | None:
    """Return why the id is not this job's any more; None if it is, or cannot be shown.

    After the controller has lost its state, another job may have the id.
    """
    shown = output_of(["scontrol", "show", "job", element_id])
    job_id = element_id.partition("_")[0]
    try:
        is_stranger = shown is not None and bool(entries(shown))
        is_stranger = is_stranger and not parse_jobs(shown or "", {order.job_name: job_id})
    except SchedulerError:
        return None
    return f"Slurm's controller has another job under the id {element_id}" if is_stranger else None


def rank_variables() -> dict[str, int | str]:
    """Return the identity of this rank, from srun or from the supervisor."""
    variables = os.environ
    rank, local_rank, node_rank, node_name = RANK_VARIABLES
    if rank in variables:
        return {
            "rank": int(variables[rank]),
            "local_rank": int(variables[local_rank]),
            "node_rank": int(variables[node_rank]),
            "node_name": variables[node_name],
        }
    return {
        "rank": int(variables["SLURM_PROCID"]),
        "local_rank": int(variables["SLURM_LOCALID"]),
        "node_rank": int(variables["SLURM_NODEID"]),
        "node_name": variables["SLURMD_NODENAME"],
    }
