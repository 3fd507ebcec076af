"""Verbs check, plan and schema."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slurm_jobs.cli.options import add_spec, duration_text, print_json, shown_path, with_short_path
from slurm_jobs.shared.files import ranges_text
from slurm_jobs.shared.redact import looks_secret

if TYPE_CHECKING:
    from slurm_jobs.plan.planned import Plan, PlannedJob
    from slurm_jobs.spec.checked_spec import LoadedSpec


# `slurm-jobs check SPEC`: find everything wrong with a spec, in one pass.


def add_check_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_spec(parser)
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="also query the cluster's limits, and find jobs that it would never run",
    )


def run_check(options: argparse.Namespace) -> int:
    """Check, and print that all is valid; problems are raised as one error."""
    from slurm_jobs.commands.read_spec import load, table_notes
    from slurm_jobs.commands.stage_packages import package_notes
    from slurm_jobs.dependencies import stage_dependencies
    from slurm_jobs.run.code_files import private_files_note
    from slurm_jobs.run.snapshot import code_sources, refuse_uncopyable
    from slurm_jobs.shared.units import number_of

    loaded = load(options.spec, overrides=options.overrides, limit=options.limit, to_submit=True)
    sources = code_sources(loaded.spec, Path(loaded.spec_dir))
    refuse_uncopyable(sources)
    private = private_files_note(sources)
    stages = loaded.spec.stages
    notes = [*(check_cluster(loaded) if options.cluster else ()), *secret_notes(loaded)]
    notes += [str(with_short_path(note)) for note in loaded.notes]
    notes += [d.instead for s in stages for d in stage_dependencies(s, loaded.spec) if d.instead]
    notes += [*module_notes(loaded), *package_notes(loaded), *table_notes(loaded.spec)]
    notes += [] if private is None else [private]
    if options.json:
        values = {"name": loaded.spec.name, "stages": list(stages), "notes": notes}
        print_json({"problems": [], **values})
        return 0
    tasks = sum(stage.array.num_slices if stage.array else 1 for stage in stages.values())
    print(
        f"{shown_path(options.spec.absolute())}: no problems found "
        f"({number_of('stage', len(stages))}, {number_of('task', tasks)}: {' '.join(stages)})"
    )
    for note in notes:
        print(f"note: {note}")
    return 0


def check_cluster(loaded: LoadedSpec) -> tuple[str, ...]:
    """Refuse jobs that the spec's cluster would never run, and return notes.

    They say what could not be queried, and what the shell's variables do.

    Raises:
        SpecError: with every limit that the spec breaks.
        SchedulerError: Slurm answered nothing at all.
    """
    from slurm_jobs.commands.limit_checks import limit_notes
    from slurm_jobs.commands.submit import (
        limits_of,
        profile_of,
        refuse_impossible,
        refuse_unreachable,
        shell_notes,
    )
    from slurm_jobs.plan.make_plan import make_plan

    profile = profile_of(loaded)
    limits = limits_of(profile)
    refuse_unreachable(limits)
    plan = make_plan(loaded.spec, profile, limits=limits)
    refuse_impossible(loaded, plan, limits)
    return (*limit_notes(plan, limits), *shell_notes(plan, profile))


def secret_notes(loaded: LoadedSpec) -> list[str]:
    """Return advice on secrets in the spec, which a run folder will contain."""
    profile = loaded.profile.environment if loaded.profile else {}
    places = {"the cluster profile": profile, "the spec": loaded.spec.environment}
    places |= {f"stage `{name}`": stage.environment for name, stage in loaded.spec.stages.items()}
    return [
        f"`{name}` in the `environment:` of {place} looks like a secret; its value will be written "
        "into the run folder (spec and batch script, readable only by you). Better remove it "
        "and `export` it before submit and resume (Slurm passes your environment on), or read it "
        f'in `setup:` from a file of yours: export {name}="$(cat ~/.{name.lower()})"'
        for place, environment in places.items()
        for name in sorted(environment)
        if looks_secret(name)
    ]


def module_notes(loaded: LoadedSpec) -> list[str]:
    """Return notes on modules of the user's stages that the run's snapshot will not contain."""
    from slurm_jobs.commands.read_spec import disk_files
    from slurm_jobs.run.snapshot import own_functions, top_module
    from slurm_jobs.shared.errors import did_you_mean
    from slurm_jobs.spec.checks.entry_points import modules_of_spec

    named = {top_module(run) for run in own_functions(loaded.spec)}
    copied = modules_of_spec(loaded.document.value, loaded.spec_dir, disk_files())
    return [
        f"the module `{module}` is not next to the spec; it must be installed in the stage's "
        f"Python{did_you_mean(module, copied)}"
        for module in sorted(named - copied)
    ]


# `slurm-jobs plan SPEC`: print the graph, resources and sbatch texts, and submit nothing.


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
    from slurm_jobs.commands.limit_checks import limit_notes
    from slurm_jobs.commands.read_spec import load, profile_anywhere
    from slurm_jobs.commands.submit import (
        limits_if_near,
        plan_spec,
        refuse_impossible,
        render_scripts,
        shell_notes,
    )
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
    from slurm_jobs.cli.resume import print_stages, resumption_values
    from slurm_jobs.commands.find_run import find_run
    from slurm_jobs.commands.resume import ResumeRequest, resume

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
        print(f"a resume of {run_dir.name} as {shown_path(options.spec)} is now:\n")
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
    from slurm_jobs.cli.options import console, fits_screen, table_of
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

    from slurm_jobs.schedulers.slurm_environment import default_variables
    from slurm_jobs.shared.records import near_gpus

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


# `slurm-jobs schema`: print the JSON Schema of specs, or of cluster profiles.


def add_schema_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--profile", action="store_true", help="the schema of cluster profiles instead"
    )


def run_schema(options: argparse.Namespace) -> int:
    """Print it."""
    from slurm_jobs.commands.schema import profile_schema, spec_schema

    print_json(profile_schema() if options.profile else spec_schema())
    return 0
