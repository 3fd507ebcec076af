"""The cluster profile: what is true of a cluster whatever the run. PURE.

A profile is a YAML file that a group writes once; a spec names it as
`cluster:`. What a spec's stage says wins over the profile.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator

from slurm_jobs.common.config_values import OutputPath
from slurm_jobs.spec.model import (
    SetupLine,
    SlurmValue,
    Values,
    check_environment,
    check_slurm_options,
)

SchedulerName = Literal["slurm", "local"]


class ClusterProfile(Values):
    """One cluster, or this machine."""

    scheduler: SchedulerName = "slurm"
    """`slurm`, or `local` to run the jobs on this machine."""
    slurm: dict[str, SlurmValue] = {}
    """Options of sbatch for every job (`account`, `partition`, `qos`); a stage's own win."""
    gpu_slurm: dict[str, SlurmValue] = {}
    """Options of sbatch for every job that asks for GPUs, over those of `slurm`."""
    python: Annotated[str, Field(min_length=1)] | None = None
    """Python of the compute nodes; the login node's own where it is left out."""
    setup: list[SetupLine] = []
    """Set-up lines of every job, before the spec's."""
    environment: dict[str, str] = {}
    """Environment variables of every job."""
    node_local_dir: OutputPath = "/tmp"
    """Folder on each node's own fast storage. `$VARIABLES` are expanded on the node."""
    main_addr: str | None = None
    """Address at which ranks reach the first node, where its host name does not resolve."""
    max_cpus: Annotated[int, Field(ge=1)] | None = None
    """Local scheduler: cores that its tasks may use together; all of them where left out."""

    @field_validator("slurm", "gpu_slurm")
    @classmethod
    def _slurm_options(cls, value: dict[str, SlurmValue]) -> dict[str, SlurmValue]:
        return check_slurm_options(value)

    @field_validator("environment")
    @classmethod
    def _environment(cls, value: dict[str, str]) -> dict[str, str]:
        return check_environment(value)


LOCAL = ClusterProfile(scheduler="local")
"""The profile that `cluster: local` means."""
