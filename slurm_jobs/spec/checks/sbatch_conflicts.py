"""Options of sbatch that exclude each other, or contradict a stage's resources. PURE.

sbatch refuses some of these pairs, and silently ignores one of the two in others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from slurm_jobs.base.errors import Problem
from slurm_jobs.formats.records.job_resources import gpus_of_options
from slurm_jobs.spec.checked_spec import CheckedSpec
from slurm_jobs.spec.durations import parse_minutes
from slurm_jobs.spec.model import Resources
from slurm_jobs.spec.sbatch_options import is_known_option
from slurm_jobs.spec.stage_views import StageView
from slurm_jobs.spec.yaml.document import KeyPath, YamlDocument, path_text, problem_at

ProfileOptions = tuple[Mapping[str, Any], Mapping[str, Any]]
"""Options of a profile for every job, and those for jobs with GPUs."""
_PAIRS = (
    ("mem-per-cpu", "mem-per-gpu"),
    ("core-spec", "thread-spec"),
    ("exclusive", "oversubscribe"),
    ("exclusive", "share"),
    ("nodefile", "nodelist"),
    ("no-requeue", "requeue"),
    *(("hint", name) for name in ("ntasks-per-core", "threads-per-core")),
    *(("hint", name) for name in ("cores-per-socket", "extra-node-info", "sockets-per-node")),
)
"""Pairs from Slurm's src/common/slurm_opt.c, and those that `batch_script` would leave out."""
_DEFAULT_TIMEOUT_MIN: float = Resources.model_fields["timeout_min"].default
_OF_MEMORY = ("mem-per-cpu", "mem-per-gpu")
_OF_GPUS = ("gres", "gpus-per-socket", "tres-per-task")
_OF_ENVIRONMENT = ("export", "export-file", "get-user-env")
"""Options that decide which variables of the submitting shell reach a job. A job that lacks some of
them fails, and the effect of `environment` would depend on the cluster profile."""


def conflict_problems(spec: CheckedSpec, profile: ProfileOptions) -> Iterator[Problem]:
    """Yield the pairs of each stage that exclude each other, at the stage's own key."""
    for name, view in spec.views.items():
        given = view.keys.get("resources")
        if isinstance(given, dict) and isinstance(given.get("slurm") or {}, dict):
            yield from _conflicts(spec, name, view, profile)


def environment_option_problems(
    options: Any, place: KeyPath, document: YamlDocument
) -> Iterator[Problem]:
    """Yield the options of sbatch, at `place`, that would change which variables a job gets."""
    for key, value in options.items() if isinstance(options, dict) else ():
        name = str(key).replace("_", "-")
        is_default = value is False or (name == "export" and str(value).upper() == "ALL")
        if name in _OF_ENVIRONMENT and not is_default:
            shown = str(value).lower() if isinstance(value, bool) else value
            message = (
                f"{path_text((*place, key))}: `{shown}` would change which variables a job gets: "
                "a job has those of the shell that submits, and those of `environment`; write "
                "`environment: {NAME: value}` in the spec, or `unset NAME` as a line of `setup`"
            )
            yield problem_at(document, (*place, key), message)


def unknown_option_notes(spec: CheckedSpec, profile: ProfileOptions) -> Iterator[Problem]:
    """Yield a note for each option that sbatch does not have, as far as known here.

    Those of the cluster profile are noted at `cluster`.
    """
    for name, view in spec.views.items():
        place: KeyPath = ("stages", name, "resources", "slurm")
        for key in view.resources.get("slurm") or ():
            if not is_known_option(str(key)):
                message = f"{path_text(place)}: {_unknown_option(str(key))}"
                yield spec.at((*place, key), message, at_key=True)
    for key in sorted({*profile[0], *profile[1]}):
        if not is_known_option(key):
            message = f"{_unknown_option(key)} (it is in the cluster profile)"
            yield spec.problem(("cluster",), message)


def _unknown_option(key: str) -> str:
    return (
        f"`{key}` is not among the options of sbatch that are known here; it is passed on as "
        f"`--{key.replace('_', '-')}`, and an sbatch that does not know it refuses the job"
    )


def _conflicts(
    spec: CheckedSpec, name: str, view: StageView, profile: ProfileOptions
) -> Iterator[Problem]:
    place: KeyPath = ("stages", name, "resources")
    resources, options = view.resources, view.resources.get("slurm") or {}
    tasks, gpus = resources.get("tasks_per_node", 1), resources.get("gpus_per_node")
    tasks = tasks if isinstance(tasks, int) else 1
    general, of_gpus = map(_named, profile)
    asks_for_gpus = gpus or gpus_of_options({**general, **_named(options)}, tasks)
    settings = {**general, **(of_gpus if asks_for_gpus else {}), **_named(options)}
    given = {
        key: value for key, value in settings.items() if value is not None and value is not False
    }
    keys = {str(key).replace("_", "-"): (*place, "slurm", key) for key in options}

    def problem(option: str, other: str, counterpart: str, why: str) -> Problem:
        path = keys.get(option) or keys.get(other) or (*place, counterpart)
        where = "" if option in keys else " of the cluster profile"
        message = (
            f"{path_text(place)}: `{option}: {given[option]}`{where} and `{counterpart}` "
            f"exclude each other: {why}"
        )
        return spec.at(path, message, at_key=True)

    for option, other in _PAIRS:
        if option in given and other in given and {option, other} & keys.keys():
            why = f"leave one of them out (`{option}: false` leaves out the profile's)"
            yield problem(option, other, other, why)
    least_min = parse_minutes(str(given.get("time-min", "")).strip())
    timeout_min = resources.get("timeout_min", _DEFAULT_TIMEOUT_MIN)
    if least_min is not None and isinstance(timeout_min, (int, float)):
        array = view.keys.get("array")
        num_together = array.get("slices_per_task", 1) if isinstance(array, dict) else 1
        limit_min = timeout_min * (num_together if isinstance(num_together, int) else 1)
        if least_min > limit_min:
            why = (
                f"the minimum time limit ({least_min:g} min) is above the limit ({limit_min:g} min)"
            )
            yield problem("time-min", "", "timeout_min", why)
    if str(given.get("distribution", "")).startswith("arbitrary"):
        why = "sbatch takes `arbitrary` only without a number of nodes, which every job has"
        yield problem("distribution", "", "nodes", why)
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
