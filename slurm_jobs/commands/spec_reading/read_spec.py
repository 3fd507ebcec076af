"""Loader of a spec from disk, its profile and its code; read-only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from slurm_jobs.base.errors import SpecError
from slurm_jobs.commands.spec_reading.disk_files import disk_files
from slurm_jobs.commands.spec_reading.stage_packages import tracker_problems
from slurm_jobs.spec.checked_spec import LoadedSpec
from slurm_jobs.spec.load import load_spec
from slurm_jobs.spec.profile import ClusterProfile


def load(
    file: Path,
    *,
    overrides: Sequence[str] = (),
    limit: int | None = None,
    earlier: Sequence[str] = (),
    to_submit: bool = False,
) -> LoadedSpec:
    """Return the spec in `file`; with `to_submit`, also check that its run can be created.

    `earlier` are overrides of earlier commands for the same run; see `load_spec`.

    Raises:
        SpecError: with every problem found.
    """
    files = disk_files(to_write=to_submit)
    loaded = load_spec(
        str(file.absolute()), files, overrides=overrides, limit=limit, earlier=earlier
    )
    problems = tracker_problems(loaded) if to_submit else []
    if problems:
        raise SpecError(problems)
    return loaded


def profile_anywhere(loaded: LoadedSpec) -> ClusterProfile:
    """Return the profile for planning: `auto` is Slurm, even where there is none."""
    return loaded.profile if loaded.profile is not None else ClusterProfile()
