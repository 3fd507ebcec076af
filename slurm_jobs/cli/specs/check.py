"""`slurm-jobs check SPEC`: find everything wrong with a spec, in one pass."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.base.redact import looks_secret
from slurm_jobs.cli.arguments import add_spec
from slurm_jobs.cli.terminal.console import print_json
from slurm_jobs.cli.terminal.shown_paths import shown_path, with_short_path

if TYPE_CHECKING:
    from slurm_jobs.spec.checked_spec import LoadedSpec


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
    from slurm_jobs.base.units import number_of
    from slurm_jobs.commands.spec_reading.manifest_tables import table_notes
    from slurm_jobs.commands.spec_reading.read_spec import load
    from slurm_jobs.commands.spec_reading.stage_packages import package_notes
    from slurm_jobs.plan.stage_dependencies import stage_dependencies
    from slurm_jobs.run.code_files import private_files_note
    from slurm_jobs.run.snapshot import code_sources, refuse_uncopyable

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
    from slurm_jobs.commands.cluster_limits import (
        limits_of,
        profile_of,
        refuse_impossible,
        refuse_unreachable,
    )
    from slurm_jobs.commands.limit_checks import limit_notes
    from slurm_jobs.commands.shell_variables import shell_notes
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
    from slurm_jobs.base.texts.did_you_mean import did_you_mean
    from slurm_jobs.commands.spec_reading.disk_files import disk_files
    from slurm_jobs.run.snapshot import own_functions, top_module
    from slurm_jobs.spec.checks.entry_points import modules_of_spec

    named = {top_module(run) for run in own_functions(loaded.spec)}
    copied = modules_of_spec(loaded.document.value, loaded.spec_dir, disk_files())
    return [
        f"the module `{module}` is not next to the spec; it must be installed in the stage's "
        f"Python{did_you_mean(module, copied)}"
        for module in sorted(named - copied)
    ]
