"""Variables of the shell that change what sbatch does."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping

from slurm_jobs.plan.planned import Plan
from slurm_jobs.schedulers.batch_script import chosen_options
from slurm_jobs.schedulers.launcher_variables import left_by_launchers
from slurm_jobs.schedulers.rank_variables import OWN_PREFIX
from slurm_jobs.schedulers.slurm_environment import (
    SHELL_DEFAULTS,
    foreign_to_new_jobs,
    kept_variables,
    variables_applied,
)
from slurm_jobs.spec.profile import ClusterProfile

_MAX_SHOWN = 12
"""Variables named in one note; an allocation sets forty."""


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
    variables = kept_variables(before, os.environ)
    applied = variables_applied(variables, _options(plan))
    return {**before, **{name: variables[name] for name, users in applied.items() if users}}


def shell_notes(
    plan: Plan, profile: ClusterProfile, recorded: Mapping[str, str] | None = None
) -> list[str]:
    """Return which options the shell's variables set for the plan's jobs, and which have no effect.

    `recorded` are the variables of the run's submission, for a resume that knows them.
    """
    if profile.scheduler == "local":
        return _ignored_notes(left_by_launchers(os.environ))
    notes = []
    ignored = {name for name in foreign_to_new_jobs(os.environ) if not name.startswith(OWN_PREFIX)}
    before = recorded or {}
    for name, users in variables_applied({**before, **os.environ}, _options(plan)).items():
        value = os.environ.get(name)
        if not users:
            ignored |= set() if value is None else {name}
            continue
        option, stages = SHELL_DEFAULTS[name], ", ".join(users)
        if value is None:
            notes.append(
                f"{name}={before.get(name)}, set when this run was submitted, still applies to "
                f"{stages}; this shell does not set it. To change it, set {name} here (`{name}=` "
                f"removes it), or `--set` the option `{option}` under `slurm:`"
            )
        else:
            applies = f"{name}={value} of this shell applies to {stages}"
            note = f"{applies}: the spec has no `{option}` there"
            if recorded is not None and before.get(name) != value:
                with_before = f"with {name}={before[name]}" if before.get(name) else "without it"
                note += f". The run was submitted {with_before}"
            notes.append(note)
    return [*notes, *_ignored_notes(ignored)]


def _ignored_notes(ignored: Collection[str]) -> list[str]:
    if not ignored:
        return []
    shown = sorted(ignored, key=lambda name: (not name.startswith("SBATCH_"), name))
    more = f" and {len(shown) - _MAX_SHOWN} more" if len(shown) > _MAX_SHOWN else ""
    note = (
        f"variables of this shell that jobs do not get: {', '.join(shown[:_MAX_SHOWN])}{more}; "
        "write options of sbatch under `slurm:`, other variables under `environment:`"
    )
    return [note]


def _options(plan: Plan) -> dict[str, frozenset[str]]:
    return {job.stage: frozenset(chosen_options(job.resources)) for job in plan.jobs}
