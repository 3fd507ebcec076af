"""Limits of the cluster: query them, and refuse jobs that could never run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

from slurm_jobs.cluster.limits import NO_LIMITS, ClusterLimits
from slurm_jobs.cluster.profile import ClusterProfile
from slurm_jobs.common.errors import InputError, SchedulerError, SpecError
from slurm_jobs.plan import Plan
from slurm_jobs.schedulers.batch_script import chosen_options
from slurm_jobs.schedulers.slurm_environment import (
    SHELL_DEFAULTS,
    kept_variables,
    variables_applied,
)
from slurm_jobs.schedulers.surrounding_job import OWN_PREFIX, foreign_to_new_jobs
from slurm_jobs.spec.loader import LoadedSpec
from slurm_jobs.spec.validation import path_text, problem_at

_MAX_SHOWN = 12
"""Variables named in one note; an allocation sets forty."""


def limits_of(profile: ClusterProfile) -> ClusterLimits:
    """Return the limits of the profile's cluster; `problems` has what could not be queried."""
    if profile.scheduler == "local":
        return NO_LIMITS
    from slurm_jobs.cluster.probe import ask_limits

    return ask_limits(profile)


def limits_if_near(profile: ClusterProfile) -> ClusterLimits:
    """Return the limits if Slurm's commands exist here; a plan may be made far from the cluster."""
    if profile.scheduler == "local" or shutil.which("scontrol") is not None:
        return limits_of(profile)
    return ClusterLimits(
        problems=("the cluster's limits are unknown: there is no scontrol on this machine",)
    )


def effective_variables(
    plan: Plan, profile: ClusterProfile, recorded: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the SBATCH_... variables to record: those that set an option for a job of the run.

    Args:
        plan: plan of this submission; a resume may run only some stages.
        profile: profile of the run's cluster.
        recorded: variables recorded so far.
    """
    if profile.scheduler == "local":
        return dict(recorded or {})
    # A variable that is empty here is dropped, for later resumes too.
    before = {name: v for name, v in (recorded or {}).items() if os.environ.get(name, v)}
    kept = kept_variables(before, os.environ)
    applied = variables_applied(kept, _options(plan))
    return {**before, **{name: kept[name] for name, users in applied.items() if users}}


def shell_notes(
    plan: Plan, profile: ClusterProfile, recorded: Mapping[str, str] | None = None
) -> list[str]:
    """Return which options the shell's variables set for the plan's jobs, and which have no effect.

    Args:
        plan: plan of this submission.
        profile: profile of the run's cluster.
        recorded: variables of the run's submission, for a resume that knows them.
    """
    if profile.scheduler == "local":
        return []
    notes = []
    ignored = {name for name in foreign_to_new_jobs(os.environ) if not name.startswith(OWN_PREFIX)}
    variables = {**(recorded or {}), **os.environ}
    for name, users in variables_applied(variables, _options(plan)).items():
        if users:
            notes.append(_variable_note(name, ", ".join(users), recorded))
        elif name in os.environ:
            ignored.add(name)
    if ignored:
        shown = sorted(ignored, key=lambda name: (not name.startswith("SBATCH_"), name))
        more = f" and {len(shown) - _MAX_SHOWN} more" if len(shown) > _MAX_SHOWN else ""
        notes.append(
            f"variables of this shell that jobs do not get: {', '.join(shown[:_MAX_SHOWN])}{more}; "
            "write options of sbatch under `slurm:`, other variables under `environment:`"
        )
    return notes


def _options(plan: Plan) -> dict[str, frozenset[str]]:
    return {job.stage: frozenset(chosen_options(job.resources)) for job in plan.jobs}


def _variable_note(name: str, users: str, recorded: Mapping[str, str] | None) -> str:
    option, before = SHELL_DEFAULTS[name], (recorded or {}).get(name)
    value = os.environ.get(name)
    if value is None:
        return (
            f"{name}={before} of the shell that submitted this run applies to {users}, as before; "
            f"this shell does not set it. Set {name}, empty for none, or `--set` the option "
            f"`{option}` under `slurm:` to change it"
        )
    note = f"{name}={value} of this shell applies to {users}: the spec has no `{option}` there"
    if recorded is None or before == value:
        return note
    return f"{note}. The run was submitted {f'with {name}={before}' if before else 'without it'}"


def refuse_unreachable(limits: ClusterLimits) -> None:
    """Raise if Slurm answered nothing: a run made now would be the newest, and empty.

    Raises:
        SchedulerError: with the reason and what to do.
    """
    if limits.unreachable:
        message = (
            f"Slurm cannot be reached, and nothing was made or queued: {limits.unreachable}; type "
            "the same again once `sinfo` answers here, or say `cluster: local` (or --set "
            "cluster=local) to run the jobs on this machine"
        )
        raise SchedulerError(message)


def refuse_impossible(loaded: LoadedSpec, plan: Plan, limits: ClusterLimits) -> None:
    """Raise for everything that the cluster could never run, at its line of the spec.

    Raises:
        SpecError: with every such limit.
    """
    from slurm_jobs.cluster.checks import limit_problems

    problems = [
        problem_at(loaded.document, found.path, f"{path_text(found.path)}: {found.message}")
        for found in limit_problems(plan, limits)
    ]
    if problems:
        raise SpecError(sorted(problems, key=lambda p: (p.line, p.column)))


def refuse_impossible_resume(plan: Plan, limits: ClusterLimits) -> None:
    """Raise like `refuse_impossible`; a resume's spec has no lines, so name the key to `--set`.

    Raises:
        InputError: with every such limit.
    """
    from slurm_jobs.cluster.checks import limit_problems

    lines = [f"{path_text(p.path)}: {p.message}" for p in limit_problems(plan, limits)]
    if lines:
        message = "\n".join([*lines, "change it with --set KEY=VALUE"])
        raise InputError(message)
