"""Model of specs: all keys and defaults. PURE.

The models take plain values, as `slurm_jobs.spec.yaml` reads them. Built-in stages' configs are the
dataclasses of `slurm_jobs.formats.configs`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from slurm_jobs.formats.config import DependencyKind
from slurm_jobs.spec.value_types import (
    AxisName,
    CodePath,
    EntryPoint,
    Environment,
    GpuType,
    Name,
    NodePath,
    Program,
    RunName,
    RunsPath,
    SetupLine,
    SlurmOptions,
)

MAX_STAGES = 500


class Values(BaseModel):
    """Base of models: unknown keys refused, no silent conversions."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Resources(Values):
    """Resources of one job, or one array task, in submitit's terms."""

    nodes: Annotated[int, Field(ge=1, le=100_000)] = 1
    """Number of nodes."""
    tasks_per_node: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Ranks on each node. The stage's function runs once for each rank."""
    cpus_per_task: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Processor cores of each rank."""
    gpus_per_node: Annotated[int, Field(ge=0, le=1_000)] = 0
    """GPUs on each node."""
    gpu: list[GpuType] = []
    """Suitable GPU types, one or several. All nodes of a job are of one type."""
    mem_gb: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Memory of each node in GB of 1024 MB, as Slurm counts. If you leave it out, Slurm's own
    default applies."""
    timeout_min: Annotated[float, Field(gt=0, le=1e6)] = 60
    """Time limit in minutes."""
    signal_lead_s: Annotated[int, Field(ge=0, le=65535)] = 120
    """Seconds before the time limit at which the ranks are asked to save and stop. It may be at
    most half of the time limit."""
    slurm: SlurmOptions = {}
    """Further options of sbatch under Slurm's own names, such as `partition` or `qos`. `$NAME` and
    `${NAME}` are expanded on the login node."""

    @field_validator("gpu", mode="before", json_schema_input_type=GpuType | list[GpuType])
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        if isinstance(value, int):
            message = (
                f"names the type of GPU, such as a100, or a list of types, found `{value}`; set "
                "the number of GPUs in gpus_per_node"
            )
            raise ValueError(message)  # noqa: TRY004 - pydantic reports ValueError
        return [value] if isinstance(value, str) else value


class Array(Values):
    """Division of a stage over a job array."""

    num_slices: Annotated[int, Field(ge=1, le=1_000_000)]
    """Number of slices. Each slice is one array task, unless `slices_per_task` is higher."""
    max_running: Annotated[int, Field(ge=1)] | None = None
    """Number of array tasks that may run at once. There is no limit if you leave it out."""
    slices_per_task: Annotated[int, Field(ge=1, le=100_000)] = 1
    """Number of slices that one array task processes, one after the other. Its time limit is that
    many times `timeout_min`. If the array would exceed the site's limit of jobs, the program raises
    this number."""


class OnResume(Values):
    """Resources that a resume changes after slices of a stage have failed."""

    raise_mem_gb: Annotated[float, Field(gt=1, le=10)] | None = None
    """Factor by which mem_gb grows each time that slices ran out of memory."""
    raise_timeout_min: Annotated[float, Field(gt=1, le=10)] | None = None
    """Factor by which timeout_min grows each time that slices reached the time limit."""
    exclude_failed_nodes: bool = False
    """Excludes the nodes on which slices have failed (sbatch's `exclude`)."""


class Stage(Values):
    """Unit of the spec."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["run"]}, {"required": ["shell"]}]}
    )

    run: EntryPoint | None = None
    """Built-in stage (download, preprocess, consolidate, train, report, probe), or
    `package.module:function`."""
    shell: Annotated[str, Field(min_length=1)] | None = None
    """Shell command, instead of `run`."""
    after: dict[str, DependencyKind] = {}
    """Stages that come before this one: a name, a list of names, or names with afterok (the
    default), afterany, afternotok, or aftercorr (each slice waits for the slice of the same
    number)."""
    matrix: (
        dict[AxisName, Annotated[list[Any], Field(min_length=1)]]
        | Annotated[list[dict[AxisName, Any]], Field(min_length=1)]
        | Name
        | None
    ) = None
    """Runs the stage once for each combination of values. The value is a mapping of axes to lists,
    a list of combinations, or the name of a stage whose matrix it shares. `${matrix.AXIS}` is
    replaced by a value."""
    array: Array | None = None
    """Divides the stage into slices. Without it the stage is one job."""
    retries: Annotated[int, Field(ge=0, le=100)] = 0
    """Number of times that a failing task is started again in its allocation."""
    python: Program | None = None
    """Python of the compute nodes for this stage; by default the profile's."""
    setup: list[SetupLine] = []
    """Shell lines that run in the job before the stage (`module load ...`)."""
    environment: Environment = {}
    """Environment variables of the job; values are quoted."""
    node_local_dir: NodePath | None = None
    """Folder on each node's own fast storage; by default the profile's."""
    resources: Resources = Resources()
    """Resources that each job or array task requests."""
    nsight: bool = False
    """Runs each rank under Nsight Systems, `nsys profile`, which must be on the nodes' PATH. Not
    together with `profile.steps` of a training on GPUs."""
    on_resume: OnResume = OnResume()
    """Changes that a resume makes after failures. There are none by default."""
    mixed_code: Literal["allow", "forbid"] = "allow"
    """Whether different versions of your code may make the slices of this stage. With `forbid`, a
    resume with `--keep-complete` nevertheless runs complete and running slices again if the code
    that they use has changed. With `allow`, it keeps them."""
    config: dict[str, Any] = {}
    """Settings of the stage."""

    @field_validator(
        "after",
        mode="before",
        json_schema_input_type=str | list[str] | dict[str, DependencyKind],
    )
    @classmethod
    def _names_mean_afterok(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {value: "afterok"}
        if isinstance(value, list) and all(isinstance(name, str) for name in value):
            return dict.fromkeys(value, "afterok")
        if isinstance(value, list):
            message = "a list holds names of stages only; for kinds write {stage: afterany}"
            raise ValueError(message)  # noqa: TRY004 - pydantic reports ValueError
        return value


class RunSpec(Values):
    """Complete spec."""

    name: RunName
    """Name of the spec, with which the name of each run folder begins."""
    cluster: str = "auto"
    """File of a cluster profile. `local` runs on this machine, and `auto` asks Slurm."""
    runs_dir: RunsPath = "runs"
    """Folder of run folders. It must be on a file system that all nodes share."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """Number of samples to take from the start of the manifest, in all stages."""
    code: list[CodePath] = []
    """Files and folders that are copied into the run at submit, in addition to the modules named in
    `run`. The jobs use this copy."""
    setup: list[SetupLine] = []
    """Set-up lines of every stage, before the stage's own."""
    environment: Environment = {}
    """Environment variables of every stage."""
    stages: Annotated[dict[Name, Stage], Field(min_length=1, max_length=MAX_STAGES)]
    """Stages by name, in any order."""
