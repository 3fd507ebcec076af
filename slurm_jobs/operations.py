"""What the verbs do, as functions: load, plan, submit, look, resume, cancel."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from slurm_jobs.cluster.profile import ClusterProfile
from slurm_jobs.common.errors import InputError, SchedulerError
from slurm_jobs.common.files import read_json
from slurm_jobs.plan import Done, Plan, make_plan
from slurm_jobs.run.create import create_run
from slurm_jobs.run.intents import latest_intents
from slurm_jobs.run.ledger import append_entry
from slurm_jobs.run.observe import scheduler_of, status_of
from slurm_jobs.run.paths import RunPaths
from slurm_jobs.run.resume import Preparation, prepare_resume
from slurm_jobs.run.snapshot import take_snapshot, tree_fingerprint, user_sources
from slurm_jobs.run.store import read_meta, read_run
from slurm_jobs.run.submission import (
    RunContext,
    SubmittedJob,
    submit_plan,
    submitting,
    write_plan,
)
from slurm_jobs.schedulers import scheduler_for
from slurm_jobs.spec.loader import Files, LoadedSpec, load_spec
from slurm_jobs.spec.model import RunSpec

OnJob = Callable[[SubmittedJob], None]


def disk_files() -> Files:
    """The loader's view of the real file system."""
    return Files(
        read_text=lambda file: Path(file).read_text(encoding="utf-8"),
        exists=lambda file: Path(file).exists(),
        variables=os.environ,
    )


def load(file: Path, *, overrides: Sequence[str] = (), limit: int | None = None) -> LoadedSpec:
    """The spec in `file`.

    Raises:
        SpecError: with every problem found.
    """
    return load_spec(str(file.absolute()), disk_files(), overrides=overrides, limit=limit)


def profile_of(loaded: LoadedSpec) -> ClusterProfile:
    """The spec's cluster profile; `auto` asks this machine.

    Raises:
        SchedulerError: `auto`, and there is no Slurm here.
    """
    if loaded.profile is not None:
        return loaded.profile
    from slurm_jobs.cluster.probe import probe_profile

    return probe_profile()


def code_sources(spec: RunSpec, spec_dir: Path) -> list[Path]:
    """The user's files that the jobs run."""
    names = [stage.run for stage in spec.stages.values() if stage.run and ":" in stage.run]
    return user_sources(names, spec.code, spec_dir)


def plan_spec(loaded: LoadedSpec, profile: ClusterProfile) -> Plan:
    """The plan of a first submit; touches nothing."""
    code = tree_fingerprint(code_sources(loaded.spec, Path(loaded.spec_dir)))
    return make_plan(loaded.spec, profile, code_fingerprint=code)


@dataclass(frozen=True, kw_only=True, slots=True)
class Submission:
    """What a submit or resume did."""

    paths: RunPaths
    plan: Plan
    jobs: tuple[SubmittedJob, ...]
    preparation: Preparation | None = None


def submit(loaded: LoadedSpec, *, on_job: OnJob = lambda _job: None) -> Submission:
    """Make a run and submit all its jobs.

    Raises:
        SchedulerError: a job was refused, or the scheduler could not be asked.
    """
    profile = profile_of(loaded)
    paths = create_run(loaded, profile)
    with submitting(paths):
        context = _context(paths, loaded.spec, profile, Path(loaded.spec_dir))
        plan = make_plan(loaded.spec, profile, code_fingerprint=context.snapshot.user_fingerprint)
        write_plan(paths, plan)
        jobs = submit_plan(context, plan, {}, on_job=on_job)
    return Submission(paths=paths, plan=plan, jobs=tuple(jobs))


def _context(paths: RunPaths, spec: RunSpec, profile: ClusterProfile, spec_dir: Path) -> RunContext:
    return RunContext(
        paths=paths,
        run_id=paths.run_dir.name,
        scheduler=scheduler_for(profile, paths.run_dir),
        snapshot=take_snapshot(paths.code_dir, code_sources(spec, spec_dir)),
        spec_dir=str(spec_dir),
        limit=spec.limit,
        main_addr=profile.main_addr,
    )


def resume(run_dir: Path, *, on_job: OnJob = lambda _job: None) -> Submission:
    """Submit what is missing of a run, and nothing else.

    Raises:
        RunFailedError: another command is submitting for this run.
        SchedulerError: the scheduler could not be asked, or refused a job.
    """
    paths = RunPaths(run_dir)
    read_meta(paths)
    spec = RunSpec.model_validate(read_json(paths.resolved_spec))
    origin = read_json(paths.spec_origin)
    profile = ClusterProfile.model_validate(origin["profile"])
    with submitting(paths):
        context = _context(paths, spec, profile, Path(origin["spec_dir"]))
        preparation = prepare_resume(paths, context.scheduler)
        plan = make_plan(
            spec,
            profile,
            code_fingerprint=context.snapshot.user_fingerprint,
            done=Done(completed=preparation.done.completed, active=preparation.done.active),
        )
        write_plan(paths, plan)
        jobs = submit_plan(context, plan, preparation.active, on_job=on_job)
    return Submission(paths=paths, plan=plan, jobs=tuple(jobs), preparation=preparation)


def cancel(run_dir: Path, *, stage: str | None = None) -> list[str]:
    """Cancel all jobs of a run, or of one stage, that have not ended.

    Returns:
        The ids that the scheduler was asked to cancel.

    Raises:
        SchedulerError: the scheduler could not be asked.
    """
    paths = RunPaths(run_dir)
    run = read_run(run_dir)
    names = [s.name for s in run.stages]
    if stage is not None and stage not in names:
        message = f"run {run.meta.run_id} has no stage `{stage}` (stages: {', '.join(names)})"
        raise InputError(message)
    status = status_of(run_dir)
    tokens = {}
    for name in names if stage is None else [stage]:
        newest = latest_intents(run.intents, name)
        for part in status.stage(name).slices:
            if part.status in {"running", "waiting", "stranded", "unknown"} and part.job_id:
                tokens[newest[part.slice_index].token] = newest[part.slice_index]
    ids = [i.job_id for i in tokens.values() if i.job_id is not None]
    if status.problems and not ids:
        raise SchedulerError("; ".join(status.problems))
    for token in tokens:
        append_entry(paths.ledger_dir, "cancelled", token, {})
    if ids:
        scheduler_of(paths).cancel(ids)
    return ids
