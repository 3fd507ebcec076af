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


class Price(Values):
    """What a site charges, or what machines cost it."""

    gpu_hour: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """An hour of one GPU."""
    cpu_hour: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """An hour of one core, also beside a GPU; 0 where GPUs' hours include them."""
    currency: Annotated[str, Field(min_length=1, max_length=8)] = "EUR"
    """What it is counted in, such as `EUR` or the site's own units."""


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
    """Folder on each node's own fast storage. `$NAME`, `${NAME}` and `~` are expanded on the
    node."""
    main_addr: str | None = None
    """Address at which ranks reach the first node, where its host name does not resolve."""
    price: Price | None = None
    """What an hour of a GPU and of a core costs; the report then tells money beside hours."""
    max_cpus: Annotated[int, Field(ge=1)] | None = None
    """Local scheduler: cores that its tasks may use together; all of them where left out."""


LOCAL = ClusterProfile(scheduler="local")
"""The profile that `cluster: local` means."""
