"""`slurm-jobs plan SPEC`: print the graph, resources and sbatch texts, and submit nothing."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from slurm_jobs.base.index_ranges import ranges_text
from slurm_jobs.cli.arguments import add_spec
from slurm_jobs.cli.terminal.console import print_json
from slurm_jobs.cli.terminal.numbers_in_words import duration_text
from slurm_jobs.cli.terminal.shown_paths import shown_path, with_short_path

if TYPE_CHECKING:
    from slurm_jobs.plan.planned import Plan, PlannedJob


_FLOW = ("stage", "runs", "after", "tasks")
_ASKED = "each asks for"


def add_plan_arguments(parser: argparse.ArgumentParser) -> None:
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


def run_plan(options: argparse.Namespace) -> int:
    """Plan and print; limits of the cluster are one error, in JSON the only answer."""
    from slurm_jobs.commands.cluster_limits import limits_if_near, refuse_impossible
    from slurm_jobs.commands.limit_checks import limit_notes
    from slurm_jobs.commands.plan_preview import plan_spec, render_scripts
    from slurm_jobs.commands.shell_variables import shell_notes
    from slurm_jobs.commands.spec_reading.read_spec import load, profile_anywhere
    from slurm_jobs.run.submission import dependency_notes

    if options.explain is not None:
        _explain(options)
        return 0
    loaded = load(options.spec, overrides=options.overrides, limit=options.limit)
    profile = profile_anywhere(loaded)
    limits = limits_if_near(profile)
    plan = plan_spec(loaded, profile, limits)
    scripts = render_scripts(loaded, profile, plan)
    notes = [str(with_short_path(note)) for note in loaded.notes]
    notes += [*dependency_notes(plan), *limit_notes(plan, limits), *shell_notes(plan, profile)]
    if options.json:
        refuse_impossible(loaded, plan, limits)
        print_json(_plan_values(plan, scripts, notes))
        return 0
    _print_plan(plan, profile.scheduler)
    for note in notes:
        print(f"note: {note}")
    if not options.no_scripts:
        for job, script in zip(plan.jobs, scripts, strict=True):
            name = f"{job.stage}{_which(plan, job)}"
            print(f"\n--- {name}: what sbatch will be given (ids in capitals come at submit)\n")
            print(script.rstrip())
        print(flush=True)
    refuse_impossible(loaded, plan, limits)
    return 0


def _explain(options: argparse.Namespace) -> None:
    from slurm_jobs.cli.runs.resume import print_stages, resumption_values
    from slurm_jobs.commands.resume import ResumeRequest, resume
    from slurm_jobs.commands.run_search.find_run import find_run

    limit = [] if options.limit is None else [f"limit={options.limit}"]
    request = ResumeRequest(
        overrides=[*options.overrides, *limit],
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
        spec = shown_path(options.spec)
        print(f"a resume of {run_dir.name} with {spec} and your code as they are now:\n")
        print_stages(resumption)


def _which(plan: Plan, job: PlannedJob) -> str:
    """Return ` 2 of 3` if a stage has several jobs."""
    jobs = [other for other in plan.jobs if other.stage == job.stage]
    return f" {jobs.index(job) + 1} of {len(jobs)}" if len(jobs) > 1 else ""


def _resources(job: PlannedJob) -> list[str]:
    """Return what one job or array task requests, in parts of a line."""
    resources = job.resources
    parts = [f"{resources.nodes} node{'s' if resources.nodes > 1 else ''}"]
    cores = f"{resources.cpus_per_task} core{'s' if resources.cpus_per_task > 1 else ''}"
    ranks = f"{resources.tasks_per_node} ranks a node with {cores} each"
    parts.append(ranks if resources.num_ranks > 1 else cores)
    if resources.gpus_per_node:
        kind = " or ".join(resources.gpu_choice)
        parts.append(f"{resources.gpus_per_node} {kind + ' ' if kind else ''}GPUs a node")
    if resources.mem_gb is not None:
        parts.append(f"{resources.mem_gb:g} GB a node")
    parts.append(f"at most {duration_text(resources.timeout_min * 60)}")
    parts += [f"{key}={value}" for key, value in resources.slurm.items()]
    return parts


def _print_plan(plan: Plan, scheduler: str) -> None:
    """Print the graph and the resources; in two tables on a narrow screen."""
    from slurm_jobs.cli.terminal.console import console, fits_screen, table_of
    from slurm_jobs.plan.make_plan import gpu_hours_asked

    flow = []
    for job in plan.jobs:
        stage = plan.stage(job.stage)
        after = ", ".join(
            d.stage if d.kind == "afterok" else f"{d.stage} ({d.kind})" for d in stage.after
        )
        tasks = f"{job.num_tasks:,}"
        if job.slices_per_task not in {None, 1}:
            tasks += f" ({job.slices_per_task} slices each)"
        if job.max_running is not None:
            tasks += f", {job.max_running} at once"
        flow.append([f"{job.stage}{_which(plan, job)}", stage.run, after or "-", tasks])
    print(f"{plan.name} on {scheduler}\n")
    screen = console()
    requests = [_resources(job) for job in plan.jobs]
    rows = [[*cells, ", ".join(parts)] for cells, parts in zip(flow, requests, strict=True)]
    whole = table_of((*_FLOW, _ASKED), rows)
    if fits_screen(whole, screen):
        screen.print(whole)
    else:
        width = screen.width - max(len(row[0]) for row in flow) - 2
        screen.print(table_of(_FLOW, flow), "")
        rows = []
        for cells, parts in zip(flow, requests, strict=True):
            lines = [parts[0]]  # no line breaks a part
            for part in parts[1:]:
                if len(f"{lines[-1]}, {part},") <= width:
                    lines[-1] += f", {part}"
                else:
                    lines[-1] += ","
                    lines.append(part)
            rows.append([cells[0], "\n".join(lines)])
        screen.print(table_of((_FLOW[0], _ASKED), rows))
    for name, settings in _rank_settings(plan).items():
        if len(settings) > 1:  # besides the number of threads, which every stage gets
            print(f"\nset for the ranks of {name}:")
            print("\n".join(f"  {variable}={value}" for variable, value in settings.items()))
    total = sum(gpu_hours_asked(job) for job in plan.jobs)
    jobs = "1 job" if len(plan.jobs) == 1 else f"{len(plan.jobs)} jobs"
    print(f"\n{jobs}; GPU-hours requested, up to the time limits: {total:.1f}")


def _rank_settings(plan: Plan) -> dict[str, dict[str, str]]:
    """Return what is set for the ranks of each stage because its environment leaves it open.

    These are environment variables and srun's `--distribution`.
    """
    import os

    from slurm_jobs.formats.records.job_resources import near_gpus
    from slurm_jobs.schedulers.rank_variables import default_variables

    settings = {}
    for job in plan.jobs:
        resources = job.resources
        options = near_gpus(resources) if resources.num_ranks > 1 else []
        settings[job.stage] = default_variables(
            {*os.environ, *plan.stage(job.stage).environment},
            num_threads=resources.cpus_per_task,
            num_ranks=resources.num_ranks,
            num_gpus=resources.num_gpus,
            flight_prefix="(the attempt's folder)/flight-",
            interface="(that of the route to the first node)",
        ) | dict(option.split("=", 1) for option in options)
    return settings


def _plan_values(plan: Plan, scripts: Sequence[str], notes: Sequence[str]) -> dict[str, Any]:
    """Return the plan as JSON values."""
    import dataclasses

    from slurm_jobs.plan.make_plan import gpu_hours_asked

    settings = _rank_settings(plan)
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
