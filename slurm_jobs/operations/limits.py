"""Ask the cluster what it allows, and refuse what it would never run."""

from __future__ import annotations

import shutil

from slurm_jobs.cluster.limits import NO_LIMITS, ClusterLimits
from slurm_jobs.cluster.profile import ClusterProfile
from slurm_jobs.common.errors import InputError, SchedulerError, SpecError
from slurm_jobs.plan import Plan
from slurm_jobs.spec.loader import LoadedSpec
from slurm_jobs.spec.validation import path_text, problem_at


def limits_of(profile: ClusterProfile, *, to_choose: bool = False) -> ClusterLimits:
    """What the profile's cluster allows; what could not be asked stands in its `problems`.

    `to_choose`: see `ask_limits`.
    """
    if profile.scheduler == "local":
        return NO_LIMITS
    from slurm_jobs.cluster.probe import ask_limits

    return ask_limits(profile, to_choose=to_choose)


def limits_if_near(profile: ClusterProfile) -> ClusterLimits:
    """The same where Slurm's commands are at hand; a plan may be made far from the cluster."""
    if profile.scheduler == "local" or shutil.which("scontrol") is not None:
        return limits_of(profile)
    return ClusterLimits(
        problems=("the cluster's limits were not asked: there is no scontrol on this machine",)
    )


def refuse_unreachable(limits: ClusterLimits) -> None:
    """Raise where Slurm answered nothing: a run made now would be the newest, and be empty.

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
    """Raise what the cluster could never run, each at its line of the spec.

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
    """The same for a resume, whose spec has no lines: the message names the key to `--set`.

    Raises:
        InputError: with every such limit.
    """
    from slurm_jobs.cluster.checks import limit_problems

    lines = [f"{path_text(p.path)}: {p.message}" for p in limit_problems(plan, limits)]
    if lines:
        message = "\n".join([*lines, "change it with --set KEY=VALUE"])
        raise InputError(message)
