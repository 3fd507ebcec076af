"""Specs of one built-in stage, derived from a user's: with nodes, Python and folders of a stage.

Being a run, a node check has waiting, logs, resume and cancel already.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.texts.did_you_mean import did_you_mean
from slurm_jobs.commands.cluster_limits import limits_of
from slurm_jobs.commands.limit_checks import limit_problems
from slurm_jobs.formats.records.job_resources import gpus_of_options
from slurm_jobs.nodes.probe.host_list_size import num_named
from slurm_jobs.plan.make_plan import make_plan
from slurm_jobs.spec.checked_spec import LoadedSpec
from slurm_jobs.spec.model import Resources, RunSpec, Stage
from slurm_jobs.spec.profile import ClusterProfile

_NAME_CHARS = 40
"""Limit on a spec's name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OneStage:
    """Stage to create."""

    name: str
    """Name of the stage, and suffix of the spec's name."""
    run: str
    config: Mapping[str, Any]
    resources: Resources


def source_stage(spec: RunSpec, name: str | None) -> str:
    """Return the stage whose nodes are used: the named one, else the training, else one with GPUs.

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
    for names in (
        [n for n, stage in stages.items() if stage.run == "train"],
        [
            n
            for n, stage in stages.items()
            if stage.resources.gpus_per_node
            or gpus_of_options(stage.resources.slurm, stage.resources.tasks_per_node)
        ],
        list(stages),
    ):
        if names and _are_alike([stages[n] for n in names]):
            return names[0]
        if names:
            message = f"several stages could be meant: {', '.join(names)}; name one with --stage"
            raise InputError(message)
    raise AssertionError  # a spec has a stage


def _are_alike(stages: Sequence[Stage]) -> bool:
    """Check whether the choice among them makes no difference, as with most matrices."""
    first = stages[0]
    return all(
        (s.resources, s.python, s.setup, s.environment, s.node_local_dir)
        == (first.resources, first.python, first.setup, first.environment, first.node_local_dir)
        for s in stages
    )


def num_named_nodes(
    spec: RunSpec, source: str, nodelist: str | None, profile: ClusterProfile
) -> int | None:
    """Return how many nodes the command or the spec names; None if neither names any.

    Raises:
        InputError: a host list is invalid.
    """
    stage = spec.stages[source]
    options = {**profile.slurm, **stage.resources.slurm}
    text = nodelist if nodelist is not None else options.get("nodelist")
    if text is None:
        return 1 if profile.scheduler == "local" else None
    try:
        return num_named(str(text))
    except ValueError as error:
        message = f"nodelist {text}: {error}"
        raise InputError(message) from error


def fits(loaded: LoadedSpec, profile: ClusterProfile) -> bool:
    """Check whether the cluster could run it, as far as known."""
    limits = limits_of(profile)
    return not limit_problems(make_plan(loaded.spec, profile, limits=limits), limits)


def one_stage_spec(loaded: LoadedSpec, source: str, one_stage: OneStage) -> LoadedSpec:
    """Return a spec with that stage only, and its surroundings from the stage `source`.

    If the cluster could never run it, the error names the line of `source`.
    """
    given = loaded.spec.stages[source]
    stage = Stage(
        run=one_stage.run,
        python=given.python,
        setup=given.setup,
        environment=given.environment,
        node_local_dir=given.node_local_dir,
        resources=one_stage.resources,
        config=dict(one_stage.config),
    )
    name = f"{loaded.spec.name[: _NAME_CHARS - len(one_stage.name) - 1]}-{one_stage.name}"
    update: dict[str, Any] = {
        "name": name,
        "limit": None,
        "code": [],
        "stages": {one_stage.name: stage},
    }
    spec = loaded.spec.model_copy(update=update)
    document = loaded.document

    def moved(places: dict[Any, Any]) -> dict[Any, Any]:
        return {
            (
                ("stages", one_stage.name, *path[2:]) if path[:2] == ("stages", source) else path
            ): place
            for path, place in places.items()
        }

    return dataclasses.replace(
        loaded,
        spec=RunSpec.model_validate_json(spec.model_dump_json(), strict=True),
        document=dataclasses.replace(
            document,
            key_places=moved(document.key_places),
            value_places=moved(document.value_places),
            sources=moved(document.sources),
        ),
        overrides=(),
        notes=(),
    )


def a_task_a_node(
    resources: Resources, *, num_nodes: int, minutes: float, lead_s: int
) -> Resources:
    """Return one task per node, with the resources of all the stage's tasks there."""
    return resources.model_copy(
        update={
            "nodes": num_nodes,
            "tasks_per_node": 1,
            "cpus_per_task": resources.cpus_per_task * resources.tasks_per_node,
            "timeout_min": minutes,
            "signal_lead_s": lead_s,
        }
    )
