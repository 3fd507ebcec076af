"""Who starts the jobs: Slurm through submitit, or this machine with the same meaning."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from slurm_jobs.schedulers.protocol import Scheduler

if TYPE_CHECKING:
    from slurm_jobs.cluster.profile import ClusterProfile


def scheduler_named(name: str, run_dir: Path, *, max_cpus: int | None = None) -> Scheduler:
    """The scheduler of a run; only the one that is asked for is imported."""
    if name == "local":
        from slurm_jobs.schedulers.local import LocalScheduler

        return LocalScheduler(run_dir=run_dir, max_cpus=max_cpus)
    assert name == "slurm", name
    from slurm_jobs.schedulers.slurm import SlurmScheduler

    return SlurmScheduler()


def scheduler_for(profile: ClusterProfile, run_dir: Path) -> Scheduler:
    """The scheduler that a profile names."""
    return scheduler_named(profile.scheduler, run_dir, max_cpus=profile.max_cpus)
