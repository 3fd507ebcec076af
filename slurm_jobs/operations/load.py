"""Loader of a spec from disk, its profile and its code; read-only."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from slurm_jobs.cluster.profile import ClusterProfile
from slurm_jobs.common.stage_config.tune import TUNE_RUN
from slurm_jobs.doctor.model import DRILL_RUN, NODE_RUN
from slurm_jobs.operations.disk import disk_files
from slurm_jobs.run.snapshot import user_sources
from slurm_jobs.spec.loader import LoadedSpec, load_spec
from slurm_jobs.spec.model import RunSpec

_OURS = frozenset({TUNE_RUN, NODE_RUN, DRILL_RUN})
"""Entry points that are in every snapshot."""


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
    return load_spec(str(file.absolute()), files, overrides=overrides, limit=limit, earlier=earlier)


def profile_of(loaded: LoadedSpec) -> ClusterProfile:
    """Return the spec's cluster profile; `auto` detects that of this machine.

    Raises:
        SchedulerError: `auto`, and there is no Slurm here.
    """
    if loaded.profile is not None:
        return loaded.profile
    from slurm_jobs.cluster.probe import probe_profile

    return probe_profile()


def profile_anywhere(loaded: LoadedSpec) -> ClusterProfile:
    """Return the profile for planning: `auto` is Slurm, even where there is none."""
    return loaded.profile if loaded.profile is not None else ClusterProfile()


def code_sources(spec: RunSpec, spec_dir: Path) -> list[Path]:
    """Return the user's files that the jobs run."""
    return user_sources(own_functions(spec), spec.code, spec_dir)


def own_functions(spec: RunSpec) -> list[str]:
    """Return `package.module:function` of every stage that runs the user's code."""
    runs = [stage.run for stage in spec.stages.values() if stage.run and ":" in stage.run]
    return [run for run in runs if run not in _OURS]
