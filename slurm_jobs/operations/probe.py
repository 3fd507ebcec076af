"""A run of one stage that measures the nodes that a spec's training would get."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slurm_jobs.cluster.checks import limit_problems
from slurm_jobs.cluster.profile import ClusterProfile
from slurm_jobs.common.errors import InputError
from slurm_jobs.common.files import read_json
from slurm_jobs.common.stage_config.probe import ProbeConfig
from slurm_jobs.operations.limits import limits_of
from slurm_jobs.operations.load import profile_of
from slurm_jobs.operations.submit import OnJob, Submission, submit
from slurm_jobs.plan import make_plan
from slurm_jobs.probes.node_names import num_named
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.spec.loader import LoadedSpec
from slurm_jobs.spec.model import Resources, RunSpec, Stage
from slurm_jobs.spec.validation import did_you_mean
from slurm_jobs.spec.yaml_values import YamlDocument

STAGE = "probe"
DEFAULT_MINUTES = 5.0
_NAME_CHARS = 40
"""Most that a spec's name may have."""
_LEAD_S = 10
"""There is nothing to save when the time is up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeRequest:
    """What a user asked to be measured."""

    stage: str | None = None
    """Whose resources, Python and folders are taken; the training where it is left out."""
    num_nodes: int | None = None
    """As many as `nodelist` names, else 2 where one job can have them, else 1."""
    nodelist: str | None = None
    """As Slurm writes it."""
    minutes: float = DEFAULT_MINUTES
    """Time limit of the job."""
    config: ProbeConfig = dataclasses.field(default_factory=ProbeConfig)


def submit_probe(
    loaded: LoadedSpec, request: ProbeRequest, *, on_job: OnJob = lambda _job: None
) -> Submission:
    """Make the run and submit its job.

    Raises:
        InputError: no stage is meant, or the request and the spec do not fit together.
        SpecError: the cluster could never run it.
        SchedulerError: the scheduler cannot be reached or refused.
    """
    profile = profile_of(loaded)
    source = source_stage(loaded.spec, request.stage)
    if request.nodelist is not None and profile.scheduler == "local":
        message = f"--nodelist {request.nodelist}: `cluster: local` is this machine alone"
        raise InputError(message)
    if (request.num_nodes or 1) > 1 and profile.scheduler == "local":
        message = f"--nodes {request.num_nodes}: `cluster: local` is this machine alone"
        raise InputError(message)
    number = request.num_nodes or _named_nodes(loaded.spec, source, request, profile)
    if number is None:
        two = probe_spec(loaded, source, request, num_nodes=2)
        number = 2 if _fits(two, profile) else 1
    return submit(probe_spec(loaded, source, request, num_nodes=number), on_job=on_job)


def refuse_no_probe(run_dir: Path) -> None:
    """Refuse a run that measured no nodes.

    Raises:
        InputError: it is none of a probe.
    """
    stages = read_json(RunPaths(run_dir).resolved_spec)["stages"]
    if stages.get(STAGE, {}).get("run") != STAGE:
        message = (
            f"{run_dir.name} is no probe (its stages: {', '.join(stages)}); name a run that "
            "`slurm-jobs probe` made, or the file of a spec whose nodes are to be probed"
        )
        raise InputError(message)


def source_stage(spec: RunSpec, name: str | None) -> str:
    """The stage whose nodes are meant: by name, else the training, or what asks for GPUs.

    Raises:
        InputError: there is no such stage, or several could be meant.
    """
    if name is not None:
        if name in spec.stages:
            return name
        known = ", ".join(spec.stages)
        message = (
            f"--stage {name}: no such stage{did_you_mean(name, spec.stages)} (stages: {known})"
        )
        raise InputError(message)
    stages = spec.stages
    for found in (
        [n for n, stage in stages.items() if stage.run == "train"],
        [n for n, stage in stages.items() if stage.resources.gpus_per_node],
        list(stages),
    ):
        if found and _are_alike([stages[n] for n in found]):
            return found[0]
        if found:
            message = f"several stages could be meant: {', '.join(found)}; name one with --stage"
            raise InputError(message)
    raise AssertionError  # a spec has a stage


def _are_alike(stages: Sequence[Stage]) -> bool:
    """Whether it makes no difference which of them is taken, as with most matrices."""
    first = stages[0]
    return all(
        (s.resources, s.python, s.setup, s.environment, s.node_local_dir)
        == (first.resources, first.python, first.setup, first.environment, first.node_local_dir)
        for s in stages
    )


def _named_nodes(
    spec: RunSpec, source: str, request: ProbeRequest, profile: ClusterProfile
) -> int | None:
    """How many nodes the command or the spec names; None where neither names any.

    Raises:
        InputError: what should name them does not.
    """
    stage = spec.stages[source]
    options = {**profile.slurm, **stage.resources.slurm}
    text = request.nodelist if request.nodelist is not None else options.get("nodelist")
    if text is None:
        return 1 if profile.scheduler == "local" else None
    try:
        return num_named(str(text))
    except ValueError as error:
        message = f"nodelist {text}: {error}"
        raise InputError(message) from error


def _fits(loaded: LoadedSpec, profile: ClusterProfile) -> bool:
    """Whether the cluster could run it, as far as it says."""
    limits = limits_of(profile)
    return not limit_problems(make_plan(loaded.spec, profile, limits=limits), limits)


def probe_spec(
    loaded: LoadedSpec, source: str, request: ProbeRequest, *, num_nodes: int
) -> LoadedSpec:
    """A spec with one stage, which runs once on each of so many nodes of the stage `source`.

    Where the cluster could never run it, the line of `source` is told.
    """
    stage = loaded.spec.stages[source]
    probe = Stage(
        run=STAGE,
        python=stage.python,
        setup=stage.setup,
        environment=stage.environment,
        node_local_dir=stage.node_local_dir,
        resources=_resources(stage.resources, request, num_nodes),
        config=dataclasses.asdict(request.config),
    )
    name = f"{loaded.spec.name[: _NAME_CHARS - len(STAGE) - 1]}-{STAGE}"
    update: dict[str, Any] = {"name": name, "limit": None, "code": [], "stages": {STAGE: probe}}
    spec = loaded.spec.model_copy(update=update)
    return dataclasses.replace(
        loaded,
        spec=RunSpec.model_validate(json.loads(spec.model_dump_json()), strict=True),
        document=_as_probe(loaded.document, source),
        overrides=(),
        notes=(),
    )


def _resources(asked: Resources, request: ProbeRequest, num_nodes: int) -> Resources:
    """One task a node, with all that the stage's tasks have there together."""
    slurm: dict[str, Any] = dict(asked.slurm)
    if request.nodelist is not None:
        slurm.pop("exclude", None)  # who names a node means it
        slurm["nodelist"] = request.nodelist
    return asked.model_copy(
        update={
            "nodes": num_nodes,
            "tasks_per_node": 1,
            "cpus_per_task": asked.cpus_per_task * asked.tasks_per_node,
            "timeout_min": request.minutes,
            "signal_lead_s": _LEAD_S,
            "slurm": slurm,
        }
    )


def _as_probe(document: YamlDocument, source: str) -> YamlDocument:
    """The places of `source`, as those of the stage that is made of it."""

    def moved(places: dict[Any, Any]) -> dict[Any, Any]:
        return {
            (("stages", STAGE, *path[2:]) if path[:2] == ("stages", source) else path): place
            for path, place in places.items()
        }

    return dataclasses.replace(
        document,
        key_places=moved(document.key_places),
        value_places=moved(document.value_places),
        sources=moved(document.sources),
    )
