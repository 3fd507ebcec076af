"""Creation of a run and submission of its jobs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from slurm_jobs.cluster.limits import NO_LIMITS, ClusterLimits
from slurm_jobs.commands.remembered_dirs import remember
from slurm_jobs.commands.runs_dir import default_runs_dir
from slurm_jobs.plan.make_plan import make_plan
from slurm_jobs.plan.planned import Plan
from slurm_jobs.run.code_files import private_files_note
from slurm_jobs.run.parents import SubmittedJob
from slurm_jobs.run.provenance import record_provenance
from slurm_jobs.run.snapshot import (
    CodeSnapshot,
    code_sources,
    refuse_uncopyable,
    take_snapshot,
    tree_fingerprint,
)
from slurm_jobs.run.submission import (
    Connections,
    RunContext,
    create_run,
    dependency_notes,
    job_dependencies,
    make_order,
    submit_plan,
    write_plan,
)
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.submission_lock import submitting
from slurm_jobs.schedulers import scheduler_for
from slurm_jobs.schedulers.batch_script import chosen_options
from slurm_jobs.schedulers.launcher_variables import left_by_launchers
from slurm_jobs.schedulers.slurm_environment import (
    OWN_PREFIX,
    SHELL_DEFAULTS,
    foreign_to_new_jobs,
    kept_variables,
    variables_applied,
)
from slurm_jobs.shared.errors import InputError, SchedulerError, SpecError
from slurm_jobs.shared.records.job_key import JobKey
from slurm_jobs.spec.checked_spec import LoadedSpec
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.profile import ClusterProfile
from slurm_jobs.spec.yaml.document import path_text, problem_at

# Limits of the cluster: query them, and refuse jobs that could never run.


_MAX_SHOWN = 12
"""Variables named in one note; an allocation sets forty."""


def profile_of(loaded: LoadedSpec) -> ClusterProfile:
    """Return the spec's cluster profile; `auto` detects that of this machine.

    Raises:
        SchedulerError: `auto`, and there is no Slurm here.
    """
    if loaded.profile is not None:
        return loaded.profile
    from slurm_jobs.schedulers.cluster_query import probe_profile

    return probe_profile()


def limits_of(profile: ClusterProfile) -> ClusterLimits:
    """Return the limits of the profile's cluster; `problems` has what could not be queried."""
    if profile.scheduler == "local":
        return NO_LIMITS
    from slurm_jobs.schedulers.cluster_query import ask_limits

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


OnJob = Callable[[SubmittedJob], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """Result of a submit."""

    paths: RunPaths
    plan: Plan
    jobs: tuple[SubmittedJob, ...]
    notes: tuple[str, ...] = ()
    """Warnings about the spec, limits that could not be queried, and dependencies that differ from
    the spec."""


def submit(
    loaded: LoadedSpec, *, on_job: OnJob = lambda _job: None, is_remembered: bool = True
) -> Submission:
    """Create a run and submit all its jobs.

    Args:
        loaded: the spec.
        on_job: called with each job that the scheduler accepted.
        is_remembered: False for a run that commands shall not find from other folders.

    Raises:
        SpecError: the cluster could never run it; nothing was made or queued.
        InputError: the code cannot be copied; nothing was made or queued.
        SchedulerError: the scheduler cannot be reached, then nothing was made; or a job was
            refused.
    """
    from slurm_jobs.commands.limit_checks import limit_notes

    profile = profile_of(loaded)
    limits = limits_of(profile)
    refuse_unreachable(limits)
    refuse_impossible(loaded, make_plan(loaded.spec, profile, limits=limits), limits)
    spec_dir = Path(loaded.spec_dir)
    sources = code_sources(loaded.spec, spec_dir)
    refuse_uncopyable(sources)
    private = private_files_note(sources)
    paths = create_run(loaded, profile, cluster_name=limits.cluster_name)
    with ExitStack() as undo, submitting(paths) as turn:
        undo.callback(shutil.rmtree, paths.run_dir, ignore_errors=True)
        snapshot = take_snapshot(paths.code_dir, sources)
        context = run_context(paths, loaded.spec, profile, spec_dir, snapshot)
        code = snapshot.user_fingerprint
        plan = make_plan(loaded.spec, profile, code_fingerprint=code, limits=limits)
        context = replace(context, shell_variables=effective_variables(plan, profile))
        number = write_plan(context, plan)
        undo.pop_all()  # the run exists from here on, and soon its jobs
        unremembered = _unremembered_note(paths.run_dir.parent, spec_dir) if is_remembered else None
        record_provenance(
            paths,
            Path(context.spec_dir),
            number,
            loaded.overrides,
            scheduler=context.scheduler.name,
            snapshot=context.snapshot.folder.name,
        )
        jobs = submit_plan(context, plan, Connections(), turn=turn, on_job=on_job)
    notes = (
        *map(str, loaded.notes),
        *([] if private is None else [private]),
        *([] if unremembered is None else [unremembered]),
        *dependency_notes(plan),
        *limit_notes(plan, limits),
        *shell_notes(plan, profile),
    )
    return Submission(paths=paths, plan=plan, jobs=tuple(jobs), notes=notes)


def _unremembered_note(runs_dir: Path, spec_dir: Path) -> str | None:
    """Remember the folder of runs; return a note if that fails and commands look elsewhere."""
    problem = remember(runs_dir, spec_dir)
    if problem is None or runs_dir == default_runs_dir():
        return None
    return (
        f"later commands need this run's folder or its spec as RUN, because {runs_dir} could not "
        f"be remembered as a folder of your runs: {problem}"
    )


def run_context(
    paths: RunPaths,
    spec: RunSpec,
    profile: ClusterProfile,
    spec_dir: Path,
    snapshot: CodeSnapshot,
    *,
    shell_variables: Mapping[str, str] | None = None,
) -> RunContext:
    """Return what all jobs of a run share; `shell_variables` are those of its submission."""
    return RunContext(
        paths=paths,
        run_id=paths.run_dir.name,
        scheduler=scheduler_for(profile, paths.run_dir, shell_variables),
        snapshot=snapshot,
        spec_dir=str(spec_dir),
        limit=spec.limit,
        main_addr=profile.main_addr,
    )


# Plan of a spec and its batch scripts; nothing is written or submitted.


def plan_spec(loaded: LoadedSpec, profile: ClusterProfile, limits: ClusterLimits) -> Plan:
    """Return the plan of a first submit."""
    sources = code_sources(loaded.spec, Path(loaded.spec_dir))
    refuse_uncopyable(sources)
    code = tree_fingerprint(sources)
    return make_plan(loaded.spec, profile, code_fingerprint=code, limits=limits)


def render_scripts(loaded: LoadedSpec, profile: ClusterProfile, plan: Plan) -> list[str]:
    """Return each job's batch script, with placeholders for values that only a submit knows."""
    paths = RunPaths(Path(loaded.spec.runs_dir) / f"{loaded.spec.name}-RUN")
    snapshot = CodeSnapshot(folder=paths.code_snapshot("CODE"), user_fingerprint="")
    context = run_context(paths, loaded.spec, profile, Path(loaded.spec_dir), snapshot)
    scripts = []
    planned: list[SubmittedJob] = []
    for job in plan.jobs:
        order = make_order(context, plan, job, "TOKEN")
        dependencies = job_dependencies(plan, job, planned, Connections())
        scripts.append(context.scheduler.render(order, dependencies))
        number = sum(done.stage == job.stage for done in planned)
        job_id = f"{job.stage.upper()}_ID" + (f"_{number + 1}" if number else "")
        key = JobKey(order.job_name, job_id)
        planned.append(SubmittedJob(planned=job, token=order.token, job=key))
    return scripts
