"""Limits of the cluster: query them, and refuse jobs that could never run."""

from __future__ import annotations

import shutil

from slurm_jobs.base.errors import InputError, SchedulerError, SpecError
from slurm_jobs.cluster.limits import NO_LIMITS, ClusterLimits
from slurm_jobs.plan.planned import Plan
from slurm_jobs.spec.checked_spec import LoadedSpec
from slurm_jobs.spec.profile import ClusterProfile
from slurm_jobs.spec.yaml.document import path_text, problem_at


def profile_of(loaded: LoadedSpec) -> ClusterProfile:
    """Return the spec's cluster profile; `auto` detects that of this machine.

    Raises:
        SchedulerError: `auto`, and there is no Slurm here.
    """
    if loaded.profile is not None:
        return loaded.profile
    from slurm_jobs.schedulers.limit_queries import probe_profile

    return probe_profile()


def limits_of(profile: ClusterProfile) -> ClusterLimits:
    """Return the limits of the profile's cluster; `problems` has what could not be queried."""
    if profile.scheduler == "local":
        return NO_LIMITS
    from slurm_jobs.schedulers.limit_queries import ask_limits

    return ask_limits(profile)


def limits_if_near(profile: ClusterProfile) -> ClusterLimits:
    """Return the limits if Slurm's commands exist here; a plan may be made far from the cluster."""
    if profile.scheduler == "local" or shutil.which("scontrol") is not None:
        return limits_of(profile)
    return ClusterLimits(
        problems=("the cluster's limits are unknown: there is no scontrol on this machine",)
    )


def refuse_unreachable(limits: ClusterLimits) -> None:
    """Raise if Slurm answered nothing: a run made now would be the newest, and empty.

    Raises:
        SchedulerError: with the reason and what to do.
    """
    if limits.unreachable:
        message = (
            f"Slurm is unreachable: {limits.unreachable}; nothing was created or submitted. Repeat "
            "the command when `sinfo` works here, or run the jobs on this machine with --set "
            "cluster=local"
        )
        raise SchedulerError(message)


def refuse_impossible(loaded: LoadedSpec, plan: Plan, limits: ClusterLimits) -> None:
    """Raise for everything that the cluster could never run, at its line of the spec.

    Raises:
        SpecError: with every such limit.
    """
    from slurm_jobs.commands.limit_checks import limit_problems

    problems = [
        problem_at(loaded.document, problem.path, f"{path_text(problem.path)}: {problem.message}")
        for problem in limit_problems(plan, limits)
    ]
    if problems:
        raise SpecError(sorted(problems, key=lambda p: (p.line, p.column)))


def refuse_impossible_resume(plan: Plan, limits: ClusterLimits) -> None:
    """Raise like `refuse_impossible`; a resume's spec has no lines, so name the key to `--set`.

    Raises:
        InputError: with every such limit.
    """
    from slurm_jobs.commands.limit_checks import limit_problems

    lines = [f"{path_text(p.path)}: {p.message}" for p in limit_problems(plan, limits)]
    if lines:
        message = "\n".join([*lines, "change it with --set KEY=VALUE"])
        raise InputError(message)
