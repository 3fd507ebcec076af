"""Creation of a run and submission of its jobs."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from slurm_jobs.cluster.profile import ClusterProfile
from slurm_jobs.operations.limits import (
    effective_variables,
    limits_of,
    refuse_impossible,
    refuse_unreachable,
    shell_notes,
)
from slurm_jobs.operations.load import code_sources, profile_of
from slurm_jobs.plan import Plan, make_plan
from slurm_jobs.run.connections import Connections, SubmittedJob, dependency_notes
from slurm_jobs.run.create import create_run
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.provenance import record_provenance
from slurm_jobs.run.snapshot import CodeSnapshot, refuse_uncopyable, take_snapshot
from slurm_jobs.run.submission import RunContext, submit_plan, write_plan
from slurm_jobs.run.turns import submitting
from slurm_jobs.schedulers import scheduler_for
from slurm_jobs.spec.loader import LoadedSpec
from slurm_jobs.spec.model import RunSpec

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


def submit(loaded: LoadedSpec, *, on_job: OnJob = lambda _job: None) -> Submission:
    """Create a run and submit all its jobs.

    Raises:
        SpecError: the cluster could never run it; nothing was made or queued.
        InputError: the code cannot be copied; nothing was made or queued.
        SchedulerError: the scheduler cannot be reached, then nothing was made; or a job was
            refused.
    """
    profile = profile_of(loaded)
    limits = limits_of(profile)
    refuse_unreachable(limits)
    refuse_impossible(loaded, make_plan(loaded.spec, profile, limits=limits), limits)
    spec_dir = Path(loaded.spec_dir)
    sources = code_sources(loaded.spec, spec_dir)
    refuse_uncopyable(sources)
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
        record_provenance(context, number, loaded.overrides)
        jobs = submit_plan(context, plan, Connections(), turn=turn, on_job=on_job)
    notes = (
        *map(str, loaded.notes),
        *dependency_notes(plan),
        *limits.problems,
        *shell_notes(plan, profile),
    )
    return Submission(paths=paths, plan=plan, jobs=tuple(jobs), notes=notes)


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
