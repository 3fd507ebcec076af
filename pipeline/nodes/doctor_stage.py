"""Stage that `doctor` runs once on each node: facts about Python, torch, files and the network.

The command on the login node judges the findings. `run_drill` is its stage for the requeue.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, TypeVar

from pipeline.nodes.doctor.all_reduce import all_reduce
from pipeline.nodes.doctor.clock_exchange import ClockQuestion, signal_was_sent
from pipeline.nodes.doctor.meeting import meet
from pipeline.nodes.doctor.node_environment import (
    folder_facts,
    gpu_numa_nodes,
    has_infiniband,
    limits,
    nccl_variables,
    programs,
    reach_hub,
)
from pipeline.nodes.doctor.requeue_drill import run_drill
from pipeline.nodes.doctor.torch_facts import ask_torch
from pipeline.nodes.measures.cores import cgroup_quota
from pipeline.nodes.measures.gpu_links import find_gpus
from slurm_jobs.base.files import make_private_dir, write_json_atomic
from slurm_jobs.base.machine import host_facts, python_facts
from slurm_jobs.base.processes.stop_requests import stop_requested
from slurm_jobs.formats.node_records.doctor_facts import NodeFacts, facts_name
from slurm_jobs.formats.records.task_context import TaskContext

__all__ = ["run", "run_drill"]

T = TypeVar("T")

_SIGNAL_S = 10.0
"""Limit from the login node's report that it sent the signal until its arrival."""


def run(config: Mapping[str, Any], context: TaskContext) -> dict[str, Any]:
    """Examine this node, and write the findings."""
    make_private_dir(context.output_dir)
    patience_s = float(config["patience_s"])
    question = ClockQuestion(context.output_dir, context.rank, patience_s)
    met = _timed("the other nodes", lambda: meet(context))  # they have just been started together
    reduced = None
    if context.num_nodes > 1:
        reduced = _timed("an all-reduce", lambda: all_reduce(context))
    python = python_facts(sys.path)
    gpus, measured = _timed("GPUs", find_gpus)
    hub_s, hub_problem = _timed("the model hub", lambda: reach_hub(os.environ))
    torch = _timed("torch", ask_torch)
    shared = folder_facts(context.output_dir)
    _timed("the login node", question.wait)
    signalled, signal_reason = _timed("a signal", lambda: _signal(context, patience_s))
    facts = NodeFacts(
        node=context.node_name,
        rank=context.rank,
        host=host_facts()["name"],
        python=str(python["version"]),
        executable=str(python["executable"]),
        packages=python["packages"],
        torch=torch,
        gpus=gpus,
        gpus_reason=measured.reasons.get("gpu", ""),
        driver=", ".join(measured.details.get("gpu", {}).get("drivers", ())),
        local=folder_facts(context.node_local_dir),
        shared=shared,
        programs=programs(os.environ["SLURM_JOB_ID"]) if "SLURM_JOB_ID" in os.environ else {},
        limits=limits(),
        cores=cgroup_quota(),
        num_cores=len(os.sched_getaffinity(0)),
        has_infiniband=has_infiniband(),
        environment=nccl_variables(os.environ),
        hub_s=hub_s,
        hub_problem=hub_problem,
        login=question.clock,
        login_reason="" if question.clock else f"it did not answer within {patience_s:g} s",
        login_file_s=question.both_ways_s,
        first=met.clock,
        first_reason=met.reason,
        file_s=met.file_s,
        signalled=signalled,
        signal_reason=signal_reason,
        all_reduce=reduced,
        gpu_numa_nodes=gpu_numa_nodes(),
    )
    write_json_atomic(context.output_dir / facts_name(context.rank), asdict(facts))
    return {"node": facts.node}


def _timed(what: str, look: Callable[[], T]) -> T:
    """Call `look`, and log how long it took."""
    start_s = time.monotonic()
    result = look()
    print(f"{what}: {time.monotonic() - start_s:.1f} s", flush=True)
    return result


def _signal(context: TaskContext, patience_s: float) -> tuple[bool | None, str]:
    """Return whether SIGUSR2 came through the job's batch process to this rank."""
    if stop_requested():
        return True, ""
    sent, reason = signal_was_sent(context.output_dir, patience_s)
    if sent is None:
        return None, reason
    end_s = time.monotonic() + _SIGNAL_S
    while time.monotonic() < end_s:
        if stop_requested():
            return True, ""
        time.sleep(0.05)
    return False, f"it was sent to the job, and did not come within {_SIGNAL_S:g} s"
