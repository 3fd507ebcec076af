"""Schedulers that run the jobs: Slurm through submitit, or this machine with the same semantics."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.schedulers.protocol import Scheduler

if TYPE_CHECKING:
    from slurm_jobs.spec.profile import ClusterProfile


def scheduler_named(
    name: str,
    run_dir: Path,
    *,
    max_cpus: int | None = None,
    shell_variables: Mapping[str, str] | None = None,
) -> Scheduler:
    """Return the scheduler of a run; import only that one."""
    if name == "local":
        from slurm_jobs.schedulers.local import LocalScheduler

        return LocalScheduler(run_dir=run_dir, max_cpus=max_cpus)
    assert name == "slurm", name
    from slurm_jobs.schedulers.slurm import SlurmScheduler

    return SlurmScheduler(shell_variables)


def scheduler_for(
    profile: ClusterProfile, run_dir: Path, shell_variables: Mapping[str, str] | None = None
) -> Scheduler:
    """Return the scheduler of a profile, with the shell variables of the run's submission."""
    return scheduler_named(
        profile.scheduler,
        run_dir,
        max_cpus=profile.max_cpus,
        shell_variables=shell_variables,
    )
