"""Stage `probe`: runs every measurement on each node, and stores the results next to the runs.

A failed measurement states its reason and stops no other. The node's record is written after
each measurement, so a probe that is stopped, runs out of time or hangs keeps its results.
"""

from __future__ import annotations

import errno
import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pipeline.nodes.measures.cores import busy_cores, measure_cores
from pipeline.nodes.measures.file_systems import measure_file_system
from pipeline.nodes.measures.gpu_links import find_gpus
from pipeline.nodes.measures.link_speeds import measure_links
from pipeline.nodes.measures.measurement import Deadline, Measurement, merged
from slurm_jobs.base.errors import StageConfigError, StageError
from slurm_jobs.base.machine import cpu_facts, host_facts, is_local_node
from slurm_jobs.base.processes.stop_requests import stop_requested
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.stages import ProbeConfig
from slurm_jobs.formats.node_records.probe_files import ProbePaths, keep_probe, make_node_dir
from slurm_jobs.formats.node_records.probe_measures import MEASURES, NodeProbe
from slurm_jobs.formats.records.task_context import TaskContext

log = logging.getLogger(__name__)

_SHARES = {"cores": 0.15, "local": 0.25, "shared": 0.25, "matmul": 0.15, "host_to_device": 0.05}
"""Shares of the budget; the network has the rest, bounded by its message sizes."""
_LOAD_S = 0.5
_TALKS = ("network", "nccl")
"""Measurements of the nodes together, last."""
_ENDED = (
    "the probe was stopped, or ran out of time, before this was measured (--minutes gives more)"
)


def run(config: Mapping[str, Any], context: TaskContext) -> dict[str, Any]:
    """Measure this node; called once on every node. Returns this node's numbers and reasons.

    Raises:
        StageConfigError: several tasks on one node, which would measure each other.
        StageError: a stop was requested; earlier results are kept.
    """
    if context.num_local_ranks != 1:
        message = (
            f"stage {context.stage}: {context.num_local_ranks} tasks on node {context.node_name} "
            "would measure each other; set resources.tasks_per_node: 1"
        )
        raise StageConfigError(message)
    settings = build_config(ProbeConfig, config)
    paths, started_unix_s = ProbePaths(context.run_dir.parent), time.time()
    node = _node_name(context.node_name, os.environ.get("SLURMD_NODENAME"))
    with _naming_the_remedy(paths):
        folder = make_node_dir(paths, node)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    gpus, measured = find_gpus()
    cpu, num_asked = cpu_facts(), asked_cores(os.environ.get("SLURM_CPUS_PER_TASK"))
    probe = NodeProbe(
        node=node,
        run_id=context.run_id,
        measured_unix_s=started_unix_s,
        cpu=str(cpu["model"]),
        num_cores=int(cpu["num_cores"] or 0),
        num_asked_cores=num_asked,
        gpus=gpus,
        numbers={},
        reasons={},
    )
    measures = _measures(settings, context, paths, num_asked)
    remaining = [*measures, *_TALKS]

    def keep(more: Measurement) -> None:
        with _naming_the_remedy(paths):
            keep_probe(paths, _with(probe, merged(measured, more), remaining), context.attempt)

    def network() -> Measurement:
        from pipeline.nodes.measures.network import measure_network

        return measure_network(context, keep)

    for name, measure in [*measures.items(), ("network", network)]:
        if stop_requested():
            names = ", ".join(name.replace("_", " ") for name in remaining)
            message = f"asked to stop before these were measured: {names}; earlier results are kept"
            raise StageError(message)
        measured = merged(measured, _answer(name, measure))
        remaining = remaining[1:] if name != "network" else []
        keep(Measurement())
    return {
        "node": probe.node,
        "seconds": time.time() - started_unix_s,
        **measured.numbers,
        "not_measured": dict(measured.reasons),
    }


def asked_cores(slurm_cpus: str | None) -> int:
    """Return the cores of the job's task on this node: Slurm's number, or all allowed."""
    if slurm_cpus is not None and slurm_cpus.isdecimal():
        return int(slurm_cpus)
    return len(os.sched_getaffinity(0))


def _measures(
    config: ProbeConfig, context: TaskContext, paths: ProbePaths, num_asked: int
) -> dict[str, Callable[[], Measurement]]:
    """Return the measurements of one node: `cores` forks before threads, torch's come last."""

    def deadline(name: str) -> Deadline:
        return Deadline.after(config.budget_s * _SHARES[name])

    def file_system(place: str) -> Measurement:
        base = context.node_local_dir if place == "local" else paths.scratch_dir
        measured = measure_file_system(place, base, config, deadline(place))
        details = {**measured.details.get(place, {}), "num_nodes_at_once": context.num_nodes}
        return replace(measured, details={place: details})

    def matmul() -> Measurement:
        from pipeline.nodes.measures.devices import measure_matmul

        return measure_matmul(num_asked, deadline("matmul"))

    def host_to_device() -> Measurement:
        from pipeline.nodes.measures.devices import measure_transfers

        return measure_transfers(deadline("host_to_device"))

    return {
        "load": lambda: Measurement(numbers={"other_busy_cores": busy_cores(_LOAD_S)}),
        "cores": lambda: measure_cores(num_asked, deadline("cores")),
        "link": measure_links,
        "local": lambda: file_system("local"),
        "shared": lambda: file_system("shared"),
        "matmul": matmul,
        "host_to_device": host_to_device,
    }


def _answer(name: str, measure: Callable[[], Measurement]) -> Measurement:
    """Run a measurement; if it fails, return the reason."""
    start_s = time.monotonic()
    try:
        more = measure()
    except ModuleNotFoundError as error:
        reason = (
            f"the package {error.name} is missing in {sys.executable}: install slurm-jobs[train] "
            "there (`pip install '.[train]'` in its checkout), or name the stage's `python:`"
        )
        more = Measurement(reasons={name: reason})
    except (OSError, RuntimeError) as error:  # torch raises RuntimeError for its devices
        first_line = (str(error).splitlines() or [""])[0]
        more = Measurement(reasons={name: f"{type(error).__name__}: {first_line}"})
    for group, reason in more.reasons.items():
        log.warning("%s not measured: %s", group, reason)
    log.info("%s: %.1f s", name, time.monotonic() - start_s)
    return more


def _node_name(called: str, slurms: str | None) -> str:
    """Return Slurm's name of the node; under the local scheduler, the host's name."""
    return host_facts()["name"] if called != slurms and is_local_node(called) else called


def _with(probe: NodeProbe, measured: Measurement, left: Sequence[str]) -> NodeProbe:
    """Return the record so far; for remaining measurements it states that the probe has ended.

    This is true if the probe is killed, and is replaced when all is measured.
    """
    have = {*measured.reasons, *(m.group for m in MEASURES if m.name in measured.numbers)}
    reasons = {name: _ENDED for name in left if name not in have}
    return replace(
        probe,
        numbers=measured.numbers,
        reasons={**measured.reasons, **reasons},
        details=measured.details,
        is_partial=not set(left) <= set(_TALKS),
    )


@contextmanager
def _naming_the_remedy(paths: ProbePaths) -> Iterator[None]:
    """Name the remedy if the folder of probes cannot be written."""
    try:
        yield
    except OSError as error:
        message = (
            f"{error.filename or paths.own_dir}: {error.strerror}; probes are stored there: free "
            "space and make it writable, or name another folder (--set runs_dir=FOLDER)"
        )
        raise StageError(message) from error
