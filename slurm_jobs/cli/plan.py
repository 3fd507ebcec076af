"""`slurm-jobs plan SPEC`: the graph, each job's resources, the sbatch texts; submits nothing."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.cli.arguments import add_json, add_spec, duration_text, print_json
from slurm_jobs.common.ranges import ranges_text

if TYPE_CHECKING:
    from slurm_jobs.plan import Plan, PlannedJob
    from slurm_jobs.spec.loader import LoadedSpec


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    add_spec(parser)
    parser.add_argument("--no-scripts", action="store_true", help="leave the sbatch texts out")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Plan and print."""
    from slurm_jobs.operations.load import load, plan_spec, profile_of

    loaded = load(options.spec, overrides=options.overrides, limit=options.limit)
    profile = profile_of(loaded)
    plan = plan_spec(loaded, profile)
    scripts = render_scripts(loaded, plan)
    if options.json:
        print_json(plan_values(plan, scripts))
        return 0
    print_plan(plan, profile.scheduler)
    if not options.no_scripts:
        for stage, script in scripts.items():
            print(f"\n--- {stage}: what sbatch will be given (ids in capitals come at submit)\n")
            print(script.rstrip())
    return 0


def render_scripts(loaded: LoadedSpec, plan: Plan) -> dict[str, str]:
    """The text of each job's batch script, with words in place of what only a submit knows."""
    from slurm_jobs.operations.load import profile_of
    from slurm_jobs.run.paths import RunPaths
    from slurm_jobs.run.snapshot import CodeSnapshot
    from slurm_jobs.run.submission import (
        Connections,
        RunContext,
        SubmittedJob,
        job_dependencies,
        make_order,
    )
    from slurm_jobs.schedulers import scheduler_for

    profile = profile_of(loaded)
    paths = RunPaths(Path(loaded.spec.runs_dir) / f"{loaded.spec.name}-RUN")
    context = RunContext(
        paths=paths,
        run_id=paths.run_dir.name,
        scheduler=scheduler_for(profile, paths.run_dir),
        snapshot=CodeSnapshot(folder=paths.code_snapshot("CODE"), user_fingerprint=""),
        spec_dir=loaded.spec_dir,
        limit=loaded.spec.limit,
        main_addr=profile.main_addr,
    )
    scripts = {}
    planned: list[SubmittedJob] = []
    for job in plan.jobs:
        order = make_order(context, plan, job, "TOKEN")
        dependencies = job_dependencies(plan, job, planned, Connections())
        scripts[job.stage] = context.scheduler.render(order, dependencies)
        job_id = f"{job.stage.upper()}_ID"
        planned.append(SubmittedJob(stage=job.stage, token=order.token, job_id=job_id, num_tasks=1))
    return scripts


def resources_text(plan: Plan, job: PlannedJob) -> str:
    """What one job or array task asks for, in a line."""
    asked = plan.stage(job.stage).resources
    parts = [f"{asked.nodes} node{'s' if asked.nodes > 1 else ''}"]
    cores = f"{asked.cpus_per_task} core{'s' if asked.cpus_per_task > 1 else ''}"
    ranks = f"{asked.tasks_per_node} ranks a node with {cores} each"
    parts.append(ranks if asked.num_ranks > 1 else cores)
    if asked.gpus_per_node:
        kind = " or ".join(asked.gpu)
        parts.append(f"{asked.gpus_per_node} {kind + ' ' if kind else ''}GPUs a node")
    if asked.mem_gb is not None:
        parts.append(f"{asked.mem_gb:g} GB a node")
    parts.append(f"at most {duration_text(asked.timeout_min * 60)}")
    parts += [f"{key}={value}" for key, value in asked.slurm.items()]
    return ", ".join(parts)


def print_plan(plan: Plan, scheduler: str) -> None:
    """The graph and the resources."""
    from rich.markup import escape
    from rich.table import Table

    from slurm_jobs.cli.output import console
    from slurm_jobs.plan import gpu_hours_asked

    print(f"{plan.name} on {scheduler}\n")
    table = Table(box=None, padding=(0, 2, 0, 0))
    for column in ("stage", "runs", "after", "tasks", "each asks for"):
        table.add_column(column, overflow="fold")
    for job in plan.jobs:
        stage = plan.stage(job.stage)
        after = ", ".join(
            d.stage if d.kind == "afterok" else f"{d.stage} ({d.kind})" for d in stage.after
        )
        tasks = str(len(job.slices))
        if job.max_running is not None:
            tasks += f", {job.max_running} at once"
        row = (job.stage, stage.run, after or "-", tasks, resources_text(plan, job))
        table.add_row(*(escape(cell) for cell in row))
    console().print(table)
    total = sum(gpu_hours_asked(plan, job) for job in plan.jobs)
    print(f"\n{len(plan.jobs)} jobs; GPU-hours asked for, up to the time limits: {total:.1f}")


def plan_values(plan: Plan, scripts: dict[str, str]) -> dict[str, Any]:
    """The plan for programs."""
    import dataclasses

    from slurm_jobs.plan import gpu_hours_asked

    return {
        "name": plan.name,
        "gpu_hours_asked": sum(gpu_hours_asked(plan, job) for job in plan.jobs),
        "jobs": [
            {
                "stage": job.stage,
                "run": plan.stage(job.stage).run,
                "slices": ranges_text(job.slices),
                "max_running": job.max_running,
                "after": {d.stage: d.kind for d in plan.stage(job.stage).after},
                "resources": dataclasses.asdict(plan.stage(job.stage).resources),
                "gpu_hours_asked": gpu_hours_asked(plan, job),
                "fingerprint": plan.stage(job.stage).fingerprint,
                "script": scripts[job.stage],
            }
            for job in plan.jobs
        ],
    }
