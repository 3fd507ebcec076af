"""The cluster profile: what is true of a cluster whatever the run. PURE.

A profile is a YAML file that a group writes once; a spec names it as
`cluster:`. What a spec's stage says wins over the profile.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from slurm_jobs.spec.model import Values
from slurm_jobs.spec.value_types import Environment, NodePath, Program, SetupLine, SlurmOptions

SchedulerName = Literal["slurm", "local"]


class ClusterProfile(Values):
    """One cluster, or this machine."""

    scheduler: SchedulerName = "slurm"
    """`slurm`, or `local` to run the jobs on this machine."""
    slurm: SlurmOptions = Field(default={})
    """Options of sbatch for every job (`account`, `partition`, `qos`); a stage's own win."""
    gpu_slurm: SlurmOptions = Field(default={})
    """Options of sbatch for every job that asks for GPUs, over those of `slurm`."""
    python: Program | None = None
    """Python of the compute nodes; the login node's own where it is left out."""
    setup: list[SetupLine] = Field(default=[])
    """Set-up lines of every job, before the spec's."""
    environment: Environment = Field(default={})
    """Environment variables of every job."""
    node_local_dir: NodePath = "/tmp"  # noqa: S108 - the stage makes a private folder in it
    """Folder on each node's own fast storage. `$VARIABLES` are expanded on the node."""
    main_addr: str | None = None
    """Address at which ranks reach the first node, where its host name does not resolve."""
    max_cpus: Annotated[int, Field(ge=1)] | None = None
    """Local scheduler: cores that its tasks may use together; all of them where left out."""


LOCAL = ClusterProfile(scheduler="local")
"""The profile that `cluster: local` means."""
