"""Run of one stage that measures the nodes that a spec's training would get."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_jobs.base.errors import InputError
from slurm_jobs.commands.cluster_limits import profile_of
from slurm_jobs.commands.node_checks.one_stage_spec import (
    OneStage,
    a_task_a_node,
    fits,
    num_named_nodes,
    one_stage_spec,
    source_stage,
)
from slurm_jobs.commands.submit import OnJob, Submission, submit
from slurm_jobs.formats.configs.stages import ProbeConfig
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.resolved_spec import read_resolved_values
from slurm_jobs.spec.checked_spec import LoadedSpec

STAGE = "probe"
DEFAULT_MINUTES = 5.0
_LEAD_S = 10
"""Short: there is nothing to save at the time limit."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeRequest:
    """Options of a probe."""

    stage: str | None = None
    """Stage whose resources, Python and folders are used; the training if None."""
    num_nodes: int | None = None
    """Default: as many as `nodelist` names, else 2 where one job can have them, else 1."""
    nodelist: str | None = None
    """Host list in Slurm's syntax."""
    minutes: float = DEFAULT_MINUTES
    """Time limit of the job."""
    config: ProbeConfig = dataclasses.field(default_factory=ProbeConfig)


def submit_probe(
    loaded: LoadedSpec, request: ProbeRequest, *, on_job: OnJob = lambda _job: None
) -> Submission:
    """Create the run and submit its job.

    Raises:
        InputError: no stage is meant, or the request and the spec do not fit together.
        SpecError: the cluster could never run it.
        SchedulerError: the scheduler cannot be reached or refused.
    """
    profile = profile_of(loaded)
    source = source_stage(loaded.spec, request.stage)
    if request.nodelist is not None and profile.scheduler == "local":
        message = f"--nodelist {request.nodelist}: `cluster: local` is this machine only"
        raise InputError(message)
    if (request.num_nodes or 1) > 1 and profile.scheduler == "local":
        message = f"--nodes {request.num_nodes}: `cluster: local` is this machine only"
        raise InputError(message)
    number = request.num_nodes or num_named_nodes(loaded.spec, source, request.nodelist, profile)
    if number is None:
        two = probe_spec(loaded, source, request, num_nodes=2)
        number = 2 if fits(two, profile) else 1
    return submit(probe_spec(loaded, source, request, num_nodes=number), on_job=on_job)


def require_probe(run_dir: Path) -> None:
    """Refuse a run that measured no nodes.

    Raises:
        InputError: it is not a probe.
    """
    stages = read_resolved_values(RunPaths(run_dir))["stages"]
    if stages.get(STAGE, {}).get("run") != STAGE:
        message = (
            f"{run_dir.name} is not a probe (its stages: {', '.join(stages)}); name a run that "
            "`slurm-jobs probe` made, or the file of a spec whose nodes are to be probed"
        )
        raise InputError(message)


def probe_spec(
    loaded: LoadedSpec, source: str, request: ProbeRequest, *, num_nodes: int
) -> LoadedSpec:
    """Return a spec with one stage, which runs once on each of so many nodes of the stage `source`.

    If the cluster could never run it, the error names the line of `source`.
    """
    asked = loaded.spec.stages[source].resources
    slurm: dict[str, Any] = dict(asked.slurm)
    if request.nodelist is not None:
        slurm.pop("exclude", None)  # naming a node selects it
        slurm["nodelist"] = request.nodelist
    resources = a_task_a_node(
        asked, num_nodes=num_nodes, minutes=request.minutes, lead_s=_LEAD_S
    ).model_copy(update={"slurm": slurm})
    stage = OneStage(
        name=STAGE, run=STAGE, config=dataclasses.asdict(request.config), resources=resources
    )
    return one_stage_spec(loaded, source, stage)
