"""Creation of a run and submission of its jobs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from slurm_jobs.commands.cluster_limits import (
    limits_of,
    profile_of,
    refuse_impossible,
    refuse_unreachable,
)
from slurm_jobs.commands.run_search.remembered_dirs import remember
from slurm_jobs.commands.run_search.runs_dir import default_runs_dir
from slurm_jobs.commands.shell_variables import effective_variables, shell_notes
from slurm_jobs.plan.make_plan import make_plan
from slurm_jobs.plan.planned import Plan
from slurm_jobs.run.code_files import private_files_note
from slurm_jobs.run.parents import SubmittedJob
from slurm_jobs.run.provenance import record_provenance
from slurm_jobs.run.snapshot import CodeSnapshot, code_sources, refuse_uncopyable, take_snapshot
from slurm_jobs.run.submission import (
    Connections,
    RunContext,
    create_run,
    dependency_notes,
    submit_plan,
    write_plan,
)
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.run_folder.submission_lock import submitting
from slurm_jobs.schedulers import scheduler_for
from slurm_jobs.spec.checked_spec import LoadedSpec
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.profile import ClusterProfile

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
