"""Plan of a spec and its batch scripts; nothing is written or submitted."""

from __future__ import annotations

from pathlib import Path

from slurm_jobs.cluster.limits import ClusterLimits
from slurm_jobs.commands.submit import run_context
from slurm_jobs.formats.records.job_key import JobKey
from slurm_jobs.plan.make_plan import make_plan
from slurm_jobs.plan.planned import Plan
from slurm_jobs.run.parents import SubmittedJob
from slurm_jobs.run.snapshot import CodeSnapshot, code_sources, refuse_uncopyable, tree_fingerprint
from slurm_jobs.run.submission import Connections, job_dependencies, make_order
from slurm_jobs.run_folder.paths import RunPaths
from slurm_jobs.spec.checked_spec import LoadedSpec
from slurm_jobs.spec.profile import ClusterProfile


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
