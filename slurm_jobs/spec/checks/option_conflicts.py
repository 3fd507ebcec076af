"""Options of sbatch that exclude each other, or what a stage's resources say. PURE.

sbatch refuses some of these pairs, and lets one of the two win without a word in others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from slurm_jobs.common.errors import Problem
from slurm_jobs.common.resources import gpus_of_options
from slurm_jobs.spec.graph import StageView
from slurm_jobs.spec.validation import path_text, problem_at
from slurm_jobs.spec.yaml_values import Path, YamlDocument

ProfileOptions = tuple[Mapping[str, Any], Mapping[str, Any]]
"""A profile's options for every job, and those for jobs with GPUs."""
_PAIRS = (
    ("mem-per-cpu", "mem-per-gpu"),
    ("core-spec", "thread-spec"),
    ("exclusive", "oversubscribe"),
    ("exclusive", "share"),
    ("nodefile", "nodelist"),
    ("no-requeue", "requeue"),
    *(("hint", name) for name in ("ntasks-per-core", "threads-per-core")),
    *(("hint", name) for name in ("cores-per-socket", "sockets-per-node")),
)
"""From Slurm's src/common/slurm_opt.c, and what `batch_script` would leave out."""
_OF_MEMORY = ("mem-per-cpu", "mem-per-gpu")
_OF_GPUS = ("gres", "gpus-per-socket", "tres-per-task")


def conflict_problems(
    views: Mapping[str, StageView],
    document: YamlDocument,
    profile: ProfileOptions,
) -> list[Problem]:
    """Return the pairs of each stage that exclude each other, at the stage's own key.

    Args:
        views: the stages.
        document: for places.
        profile: options of sbatch that the cluster profile has.
    """
    problems: list[Problem] = []
    for name, view in views.items():
        resources = view.keys.get("resources")
        options = resources.get("slurm") if isinstance(resources, dict) else None
        if isinstance(resources, dict) and isinstance(options or {}, dict):
            place: Path = ("stages", name, "resources")
            problems += _problems(place, resources, options or {}, profile, document)
    return problems


def _problems(
    place: Path,
    resources: Mapping[str, Any],
    options: Mapping[str, Any],
    profile: ProfileOptions,
    document: YamlDocument,
) -> Iterator[Problem]:
    tasks, gpus = resources.get("tasks_per_node", 1), resources.get("gpus_per_node")
    tasks = tasks if isinstance(tasks, int) else 1
    general, of_gpus = map(_named, profile)
    asks_for_gpus = gpus or gpus_of_options({**general, **_named(options)}, tasks)
    from_profile = {**general, **(of_gpus if asks_for_gpus else {})}
    keys = {str(key).replace("_", "-"): (*place, "slurm", key) for key in options}
    given = {
        name: value
        for name, value in {**from_profile, **_named(options)}.items()
        if value is not None and value is not False
    }

    def problem(option: str, other: str, beside: str, why: str) -> Problem:
        path = keys.get(option) or keys.get(other) or (*place, beside)
        where = "" if option in keys else " of the cluster profile"
        message = (
            f"{path_text(place)}: `{option}: {given[option]}`{where} and `{beside}` exclude each "
            f"other: {why}"
        )
        return problem_at(document, path, message, at_key=True)

    for option, other in _PAIRS:
        if option in given and other in given and {option, other} & keys.keys():
            why = f"leave one of them out (`{option}: false` leaves out the profile's)"
            yield problem(option, other, other, why)
    for option in _OF_MEMORY:
        if option in given and resources.get("mem_gb") is not None:
            yield problem(option, "", "mem_gb", "both say how much memory a job gets; give one")
    for option in _OF_GPUS:
        alone = {k: v for k, v in given.items() if k in {option, "sockets-per-node"}}
        if gpus and option in given and gpus_of_options(alone, tasks):
            why = "both say how many GPUs a job gets; give `gpus_per_node` and `gpu`"
            yield problem(option, "", "gpus_per_node", why)
    tres = str(given.get("tres-per-task", ""))
    if any(part.strip().startswith("cpu") for part in tres.split(",")):
        why = "both say how many cores a rank gets; give `cpus_per_task`"
        yield problem("tres-per-task", "", "cpus_per_task", why)


def _named(options: Mapping[str, Any]) -> dict[str, Any]:
    return {str(key).replace("_", "-"): value for key, value in options.items()}
