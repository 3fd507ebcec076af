"""`slurm-jobs check SPEC`: find everything wrong with a spec, in one pass."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.cli.arguments import add_json, add_spec, print_json, shown_path

if TYPE_CHECKING:
    from slurm_jobs.spec.loader import LoadedSpec


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the verb takes."""
    add_spec(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Check, and say that all is well; what is not well is raised as one error."""
    from slurm_jobs.operations.load import load

    loaded = load(options.spec, overrides=options.overrides, limit=options.limit)
    stages = loaded.spec.stages
    if options.json:
        print_json({"problems": [], "name": loaded.spec.name, "stages": list(stages)})
        return 0
    tasks = sum(stage.array.num_slices if stage.array else 1 for stage in stages.values())
    print(
        f"{shown_path(options.spec.absolute())}: no problems found "
        f"({len(stages)} stages, {tasks} tasks: {' '.join(stages)})"
    )
    for module in modules_elsewhere(loaded):
        print(
            f"note: the module `{module}` does not lie beside the spec; it must be installed in "
            "the stage's Python"
        )
    return 0


def modules_elsewhere(loaded: LoadedSpec) -> list[str]:
    """Modules of the user's stages that the run's snapshot will not hold."""
    modules = {
        stage.run.partition(":")[0].partition(".")[0]
        for stage in loaded.spec.stages.values()
        if stage.run and ":" in stage.run
    }
    folder = Path(loaded.spec_dir)
    return sorted(
        module
        for module in modules
        if not (folder / f"{module}.py").is_file()
        and not (folder / module / "__init__.py").is_file()
    )
