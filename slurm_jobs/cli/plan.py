"""`slurm-jobs plan SPEC`: print the graph, resources and sbatch texts, and submit nothing."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from slurm_jobs.cli.arguments import (
    add_json,
    add_spec,
    duration_text,
    print_json,
    shown_path,
    with_short_path,
)
from slurm_jobs.common.ranges import ranges_text

if TYPE_CHECKING:
    from slurm_jobs.plan import Plan, PlannedJob


_FLOW = ("stage", "runs", "after", "tasks")
_ASKED = "each asks for"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_spec(parser)
    parser.add_argument("--no-scripts", action="store_true", help="leave the sbatch texts out")
    parser.add_argument(
        "--explain",
        nargs="?",
        const="",
        metavar="RUN",
        help="say, stage by stage, what a resume of RUN (left out: the spec's newest run) would "
        "run again with the file and the code as they are now, and because of which field",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Plan and print; limits of the cluster are one error, in JSON the only answer."""
    from slurm_jobs.operations.limits import limits_if_near, refuse_impossible, shell_notes
    from slurm_jobs.operations.load import load, profile_anywhere
    from slurm_jobs.operations.plan import plan_spec, render_scripts
    from slurm_jobs.run.connections import dependency_notes

    if options.explain is not None:
        return _explain(options)
    loaded = load(options.spec, overrides=options.overrides, limit=options.limit)
    profile = profile_anywhere(loaded)
    limits = limits_if_near(profile)
    plan = plan_spec(loaded, profile, limits)
    scripts = render_scripts(loaded, profile, plan)
    notes = [str(with_short_path(note)) for note in loaded.notes]
    notes += [*dependency_notes(plan), *limits.problems, *shell_notes(plan, profile)]
    if options.json:
        refuse_impossible(loaded, plan, limits)
        print_json(plan_values(plan, scripts, notes))
        return 0
    print_plan(plan, profile.scheduler)
    for note in notes:
        print(f"note: {note}")
    if not options.no_scripts:
        _print_scripts(plan, scripts)
    refuse_impossible(loaded, plan, limits)
    return 0


def _print_scripts(plan: Plan, scripts: Sequence[str]) -> None:
    for job, script in zip(plan.jobs, scripts, strict=True):
        name = f"{job.stage}{_which(plan, job)}"
        print(f"\n--- {name}: what sbatch will be given (ids in capitals come at submit)\n")
        print(script.rstrip())
    print(flush=True)


def _explain(options: argparse.Namespace) -> int:
    from slurm_jobs.cli.resume import print_stages, resumption_values
    from slurm_jobs.operations.resume import ResumeRequest, resume
    from slurm_jobs.run.find import find_run

    if options.limit is not None:
        options.overrides.append(f"limit={options.limit}")
    request = ResumeRequest(
        overrides=options.overrides,
        update_code=True,
        update_spec=True,
        spec_file=options.spec,
        dry_run=True,
    )
    run_dir = find_run(options.explain or str(options.spec))
    resumption = resume(run_dir, request)
    if options.json:
        print_json(resumption_values(resumption))
    else:
        print(f"a resume of {run_dir.name} as {shown_path(options.spec)} is now:\n")
        print_stages(resumption)
    return 0


def _which(plan: Plan, job: PlannedJob) -> str:
    """Return ` 2 of 3` if a stage has several jobs."""
    jobs = [other for other in plan.jobs if other.stage == job.stage]
    return f" {jobs.index(job) + 1} of {len(jobs)}" if len(jobs) > 1 else ""


def resources_text(job: PlannedJob) -> str:
    """Return what one job or array task requests, in a line."""
    return ", ".join(_resources(job))


def _resources(job: PlannedJob) -> list[str]:
    asked = job.resources
    parts = [f"{asked.nodes} node{'s' if asked.nodes > 1 else ''}"]
    cores = f"{asked.cpus_per_task} core{'s' if asked.cpus_per_task > 1 else ''}"
    ranks = f"{asked.tasks_per_node} ranks a node with {cores} each"
    parts.append(ranks if asked.num_ranks > 1 else cores)
    if asked.gpus_per_node:
        kind = " or ".join(asked.gpu_choice)
        parts.append(f"{asked.gpus_per_node} {kind + ' ' if kind else ''}GPUs a node")
    if asked.mem_gb is not None:
        parts.append(f"{asked.mem_gb:g} GB a node")
    parts.append(f"at most {duration_text(asked.timeout_min * 60)}")
    parts += [f"{key}={value}" for key, value in asked.slurm.items()]
    return parts


def tasks_text(job: PlannedJob) -> str:
    """Return `400, 64 at once`, `100 (10 slices each)`."""
    text = f"{job.num_tasks:,}"
    if job.slices_per_task not in {None, 1}:
        text += f" ({job.slices_per_task} slices each)"
    return text if job.max_running is None else f"{text}, {job.max_running} at once"


def print_plan(plan: Plan, scheduler: str) -> None:
    """Print the graph and the resources."""
    from slurm_jobs.cli.output import console, is_room_for, table_of
    from slurm_jobs.plan import gpu_hours_asked

    print(f"{plan.name} on {scheduler}\n")
    screen = console()
    flow, asked = _flow_rows(plan), [[resources_text(job)] for job in plan.jobs]
    whole = table_of((*_FLOW, _ASKED), [[*a, *b] for a, b in zip(flow, asked, strict=True)])
    if is_room_for(whole, screen):
        screen.print(whole)
    else:
        room = screen.width - max(len(row[0]) for row in flow) - 2
        screen.print(table_of(_FLOW, flow), "")
        packed = [_packed(_resources(job), room) for job in plan.jobs]
        rows = [[cells[0], lines] for cells, lines in zip(flow, packed, strict=True)]
        screen.print(table_of((_FLOW[0], _ASKED), rows))
    for stage, settings in rank_settings(plan).items():
        if len(settings) > 1:  # besides the number of threads, which every stage gets
            print(f"\nset for the ranks of {stage}:")
            print("\n".join(f"  {name}={value}" for name, value in settings.items()))
    total = sum(gpu_hours_asked(job) for job in plan.jobs)
    jobs = "1 job" if len(plan.jobs) == 1 else f"{len(plan.jobs)} jobs"
    print(f"\n{jobs}; GPU-hours requested, up to the time limits: {total:.1f}")


def rank_settings(plan: Plan) -> dict[str, dict[str, str]]:
    """Return what is set for the ranks of each stage because its environment leaves it open.

    These are environment variables and srun's `--distribution`.
    """
    import os

    from slurm_jobs.common.resources import near_gpus
    from slurm_jobs.schedulers.surrounding_job import default_variables

    settings = {}
    for job in plan.jobs:
        asked = job.resources
        options = near_gpus(asked) if asked.num_ranks > 1 else []
        settings[job.stage] = default_variables(
            {*os.environ, *plan.stage(job.stage).environment},
            num_threads=asked.cpus_per_task,
            num_ranks=asked.num_ranks,
            num_gpus=asked.num_gpus,
            flight_prefix="(the attempt's folder)/flight-",
            interface="(that of the route to the first node)",
        ) | dict(option.split("=", 1) for option in options)
    return settings


def _flow_rows(plan: Plan) -> list[list[str]]:
    """Return one row per job under `_FLOW`."""
    rows = []
    for job in plan.jobs:
        stage = plan.stage(job.stage)
        after = ", ".join(
            d.stage if d.kind == "afterok" else f"{d.stage} ({d.kind})" for d in stage.after
        )
        name = f"{job.stage}{_which(plan, job)}"
        rows.append([name, stage.run, after or "-", tasks_text(job)])
    return rows


def _packed(parts: Sequence[str], width: int) -> str:
    """Join the parts by commas, in lines that break none of them."""
    lines = [parts[0]]
    for part in parts[1:]:
        if len(f"{lines[-1]}, {part},") <= width:
            lines[-1] += f", {part}"
        else:
            lines[-1] += ","
            lines.append(part)
    return "\n".join(lines)


def plan_values(plan: Plan, scripts: Sequence[str], notes: Sequence[str]) -> dict[str, Any]:
    """Return the plan as JSON values."""
    import dataclasses

    from slurm_jobs.plan import gpu_hours_asked

    settings = rank_settings(plan)
    return {
        "name": plan.name,
        "gpu_hours_asked": sum(gpu_hours_asked(job) for job in plan.jobs),
        "notes": list(notes),
        "jobs": [
            {
                "stage": job.stage,
                "run": plan.stage(job.stage).run,
                "slices": ranges_text(job.slices),
                "slices_per_task": job.slices_per_task,
                "num_tasks": job.num_tasks,
                "max_running": job.max_running,
                "after": {d.stage: d.kind for d in plan.stage(job.stage).after},
                "resources": dataclasses.asdict(job.resources),
                "gpu_hours_asked": gpu_hours_asked(job),
                "rank_settings": settings[job.stage],
                "fingerprint": plan.stage(job.stage).fingerprint,
                "script": script,
            }
            for job, script in zip(plan.jobs, scripts, strict=True)
        ],
    }
