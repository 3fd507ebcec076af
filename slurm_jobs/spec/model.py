"""What a spec and a cluster profile may say: the one place of their keys and defaults. PURE.

The models take plain values, as `yaml_values` reads them. Built-in stages'
configs are the dataclasses of `slurm_jobs.common.stage_config`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
)

from slurm_jobs.common.config_values import PathMarker
from slurm_jobs.common.records import DependencyKind
from slurm_jobs.spec.markers import NodePathMarker, ProgramMarker

BUILTIN_STAGES = ("preprocess", "consolidate", "train", "report")

MAX_STAGES = 500

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
_ENTRY_POINT = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SLURM_KEY = re.compile(r"[a-z][a-z0-9_-]+", re.ASCII)
_GPU_TYPE = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_NOT_IN_A_LINE = re.compile(r"[\x00-\x1f\x7f\\]")

OWN_SLURM_KEYS = {
    "array": "array.num_slices and array.max_running",
    "chdir": "nothing: jobs start in the spec's folder",
    "clusters": "nothing: the jobs of a run depend on each other, so they share one cluster",
    "cpus-per-task": "resources.cpus_per_task",
    "dependency": "after",
    "error": "nothing: logs go to the run folder",
    "gpus": "resources.gpus_per_node and resources.gpu",
    "gpus-per-node": "resources.gpus_per_node and resources.gpu",
    "gpus-per-task": "resources.gpus_per_node and resources.gpu",
    "help": "nothing: see `sbatch --help`",
    "job-name": "nothing: the job's name carries the run's token",
    "kill-on-invalid-dep": "nothing: stranded jobs are found by status",
    "mem": "resources.mem_gb",
    "nodes": "resources.nodes",
    "ntasks": "resources.tasks_per_node",
    "ntasks-per-node": "resources.tasks_per_node",
    "open-mode": "nothing: logs are appended to",
    "output": "nothing: logs go to the run folder",
    "parsable": "nothing: slurm-jobs reads sbatch's answer itself",
    "signal": "resources.signal_lead_s",
    "test-only": "the verb `plan`, which submits nothing",
    "time": "resources.timeout_min",
    "wait": "the verb `run`, which follows the jobs to the end",
    "wrap": "shell",
}
"""Options of sbatch that have a key of their own, and which."""


class Values(BaseModel):
    """Base: unknown keys refused, no silent conversions, docstrings as descriptions."""

    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, use_attribute_docstrings=True
    )


def check_name(value: str) -> str:
    """A name fit for job names, folders and references.

    Raises:
        ValueError: it is not.
    """
    if not _NAME.fullmatch(value):
        message = f"`{value}` is no name: a letter, then at most 39 letters, digits, - and _"
        raise ValueError(message)
    return value


def check_slurm_key(key: str) -> str:
    """The long name of an sbatch option that slurm-jobs does not set itself.

    Raises:
        ValueError: it is none, or has a key of its own.
    """
    if not _SLURM_KEY.fullmatch(key):
        message = f"`{key}` is no long name of an sbatch option (small letters, digits, - and _)"
        raise ValueError(message)
    own = OWN_SLURM_KEYS.get(key.replace("_", "-"))
    if own is not None:
        message = f"`{key}` has a key of its own: {own}"
        raise ValueError(message)
    return key


def check_one_line(value: SlurmValue) -> SlurmValue:
    """Text that cannot leave its line of the batch script, and that sbatch reads as bash does.

    Raises:
        ValueError: it holds a line break, another control character, or a backslash.
    """
    if isinstance(value, str) and _NOT_IN_A_LINE.search(value):
        message = f"`{value}` holds a line break, control character or backslash"
        raise ValueError(message)
    return value


def check_environment_name(name: str) -> str:
    """A name that a shell can export.

    Raises:
        ValueError: it is none, or slurm-jobs sets it.
    """
    if not _ENVIRONMENT_NAME.fullmatch(name):
        message = f"`{name}` is no name of an environment variable (letters, digits and _)"
        raise ValueError(message)
    if name.startswith("SLURM_JOBS_"):
        message = f"`{name}` is set by slurm-jobs itself (SLURM_JOBS_...)"
        raise ValueError(message)
    return name


def check_gpu_type(name: str) -> str:
    """The name of a type of GPU.

    Raises:
        ValueError: it is none.
    """
    if not _GPU_TYPE.fullmatch(name):
        message = f"`{name}` is no type of GPU (letters, digits, _ . and -)"
        raise ValueError(message)
    return name


def _named(pattern: re.Pattern[str]) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern.pattern}$"})


SlurmValue = str | bool | int | float
SlurmOptions = dict[
    Annotated[str, AfterValidator(check_slurm_key), _named(_SLURM_KEY)],
    Annotated[SlurmValue, AfterValidator(check_one_line)],
]
Environment = dict[
    Annotated[str, AfterValidator(check_environment_name), _named(_ENVIRONMENT_NAME)], str
]
SetupLine = Annotated[str, Field(min_length=1)]
Name = Annotated[str, AfterValidator(check_name), _named(_NAME)]
GpuType = Annotated[str, AfterValidator(check_gpu_type), _named(_GPU_TYPE)]
CodePath = Annotated[str, PathMarker(must_exist=True), AfterValidator(check_one_line)]
RunsPath = Annotated[str, PathMarker(), Field(min_length=1), AfterValidator(check_one_line)]
NodePath = Annotated[str, NodePathMarker(), Field(min_length=1), AfterValidator(check_one_line)]
Program = Annotated[str, ProgramMarker(), Field(min_length=1), AfterValidator(check_one_line)]


class Resources(Values):
    """What one job, or one array task, asks of Slurm, in submitit's words."""

    nodes: Annotated[int, Field(ge=1, le=100_000)] = 1
    """Number of nodes."""
    tasks_per_node: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Ranks on each node; the stage's function runs once a rank."""
    cpus_per_task: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Processor cores of each rank."""
    gpus_per_node: Annotated[int, Field(ge=0, le=1_000)] = 0
    """GPUs on each node."""
    gpu: list[GpuType] = []
    """Types of GPU that will do, one or several; all nodes of a job are of one type."""
    mem_gb: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Memory of each node in GB; Slurm's default where it is left out."""
    timeout_min: Annotated[float, Field(gt=0, le=1e6)] = 60
    """Time limit in minutes."""
    signal_lead_s: Annotated[int, Field(ge=0, le=65535)] = 120
    """Seconds before the time limit at which the ranks are told to save and stop."""
    slurm: SlurmOptions = {}
    """Further options of sbatch under Slurm's own names, such as `partition` or `qos`."""

    @field_validator("gpu", mode="before", json_schema_input_type=GpuType | list[GpuType])
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value


class Array(Values):
    """How a stage is divided over a job array."""

    num_slices: Annotated[int, Field(ge=1, le=1_000_000)]
    """Number of slices; each is one array task."""
    max_running: Annotated[int, Field(ge=1)] | None = None
    """How many array tasks may run at once; no limit where it is left out."""


class Stage(Values):
    """One unit of the spec."""

    run: str | None = None
    """A built-in stage (preprocess, consolidate, train, report), or `package.module:function`."""
    shell: Annotated[str, Field(min_length=1)] | None = None
    """A shell command, instead of `run`."""
    after: dict[str, DependencyKind] = {}
    """Stages that come before this one: a name, a list of names, or names with afterok (the
    default), afterany or afternotok."""
    array: Array | None = None
    """Divides the stage into slices; without it the stage is one job."""
    retries: Annotated[int, Field(ge=0, le=100)] = 0
    """How often a failing task is started again in its allocation."""
    python: Program | None = None
    """Python of the compute nodes for this stage; the profile's where it is left out."""
    setup: list[SetupLine] = []
    """Lines of shell that run in the job before the stage (`module load ...`)."""
    environment: Environment = {}
    """Environment variables of the job; values are quoted."""
    node_local_dir: NodePath | None = None
    """Folder on each node's own fast storage; the profile's where it is left out."""
    resources: Resources = Resources()
    """What each job or array task asks for."""
    config: dict[str, Any] = {}
    """The stage's own settings."""

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

    @field_validator("run")
    @classmethod
    def _entry_point(cls, value: str | None) -> str | None:
        if value is None or value in BUILTIN_STAGES or _ENTRY_POINT.fullmatch(value):
            return value
        message = (
            f"`{value}` is neither a built-in stage ({', '.join(BUILTIN_STAGES)}) "
            "nor `package.module:function`"
        )
        raise ValueError(message)


class RunSpec(Values):
    """A whole spec."""

    name: Name
    """Name of the run's kind; each submit makes a run folder whose name begins with it."""
    cluster: str = "auto"
    """File of a cluster profile; `local` runs on this machine; `auto` asks Slurm."""
    runs_dir: RunsPath = "runs"
    """Where run folders are made; a file system that all nodes share."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """Take only the first so many samples of the manifest, through the whole chain."""
    code: list[CodePath] = []
    """Files and folders whose state at submit the jobs use, besides the modules named in `run`."""
    setup: list[SetupLine] = []
    """Set-up lines of every stage, before the stage's own."""
    environment: Environment = {}
    """Environment variables of every stage."""
    stages: Annotated[dict[Name, Stage], Field(min_length=1, max_length=MAX_STAGES)]
    """The stages by name, in any order."""
