"""Cluster profile: facts about a cluster that hold for every run. PURE.

A profile is a YAML file that a group writes once; a spec names it as `cluster:`. Values of a stage
in the spec override the profile.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from slurm_jobs.spec.model import Values
from slurm_jobs.spec.value_types import (
    Environment,
    NodePath,
    Program,
    SetupLine,
    SlurmOptions,
    TextMarker,
)

SchedulerName = Literal["slurm", "local"]


class Price(Values):
    """Prices that a site charges, or costs of its machines."""

    gpu_hour: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Price of one GPU hour."""
    cpu_hour: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Price of one core hour, also on GPU jobs; 0 if the GPU price includes cores."""
    currency: Annotated[str, Field(min_length=1, max_length=8)] = "EUR"
    """Unit of the prices, such as `EUR` or the site's billing units."""


class ClusterProfile(Values):
    """Profile of one cluster, or of this machine."""

    scheduler: SchedulerName = "slurm"
    """`slurm`, or `local` to run the jobs on this machine."""
    slurm: SlurmOptions = Field(default={})
    """Options of sbatch for every job (`account`, `partition`, `qos`); options of a stage override
    them. `$NAME` and `${NAME}` are expanded on the login node."""
    gpu_slurm: SlurmOptions = Field(default={})
    """Options of sbatch for every job that requests GPUs; they override those of `slurm`."""
    python: Program | None = None
    """Python on the compute nodes; by default that of the login node."""
    setup: list[SetupLine] = Field(default=[])
    """Set-up lines of every job, before the spec's."""
    environment: Environment = Field(default={})
    """Environment variables of every job."""
    node_local_dir: NodePath = "/tmp"  # noqa: S108 - the stage makes a private folder in it
    """Folder on each node's fast local storage. `$NAME`, `${NAME}` and `~` are expanded on the
    node."""
    main_addr: Annotated[str, TextMarker()] | None = None
    """Address at which ranks reach the first node, if its host name does not resolve."""
    price: Price | None = None
    """Prices of a GPU hour and of a core hour; with them the report shows costs next to hours."""
    max_cpus: Annotated[int, Field(ge=1)] | None = None
    """Local scheduler: cores that its tasks may use together; by default all cores."""


LOCAL = ClusterProfile(scheduler="local")
"""Profile of `cluster: local`."""
