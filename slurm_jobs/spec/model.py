"""What a spec and a cluster profile may say: the one place of their keys and defaults. PURE.

The models take plain values, as `yaml_values` reads them. Built-in stages'
configs are the dataclasses of `slurm_jobs.common.stage_config`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from slurm_jobs.common.config_values import InputPath, OutputPath
from slurm_jobs.common.records import DependencyKind

BUILTIN_STAGES = ("preprocess", "consolidate", "train", "report")

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
_ENTRY_POINT = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SLURM_KEY = re.compile(r"[a-z][a-z0-9_-]*", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

OWN_SLURM_KEYS = {
    "array": "array.num_slices and array.max_running",
    "cpus-per-task": "resources.cpus_per_task",
    "dependency": "after",
    "error": "nothing: logs go to the run folder",
    "gpus-per-node": "resources.gpus_per_node and resources.gpu",
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


SlurmValue = str | bool | int | float
SetupLine = Annotated[str, Field(min_length=1)]


def check_slurm_options(options: dict[str, SlurmValue]) -> dict[str, SlurmValue]:
    """Options of sbatch that slurm-jobs does not set itself.

    Raises:
        ValueError: an option with a key of its own, or text that could leave its line.
    """
    for key, value in options.items():
        if not _SLURM_KEY.fullmatch(key):
            raise ValueError(f"`{key}` is no option of sbatch (small letters, digits, - and _)")
        own = OWN_SLURM_KEYS.get(key.replace("_", "-"))
        if own is not None:
            raise ValueError(f"`{key}` has a key of its own: {own}")
        if isinstance(value, str) and _CONTROL.search(value):
            raise ValueError(f"`{key}` holds a line break or control character")
    return options


def check_environment(environment: dict[str, str]) -> dict[str, str]:
    """Environment variables that a shell can export.

    Raises:
        ValueError: a name that is none, or a value with a NUL character.
    """
    for name, value in environment.items():
        if not _ENVIRONMENT_NAME.fullmatch(name):
            raise ValueError(f"`{name}` is no name of an environment variable")
        if "\x00" in value:
            raise ValueError(f"the value of `{name}` holds a NUL character")
    return environment


class Resources(Values):
    """What one job, or one array task, asks of Slurm, in submitit's words."""

    nodes: Annotated[int, Field(ge=1)] = 1
    """Number of nodes."""
    tasks_per_node: Annotated[int, Field(ge=1)] = 1
    """Ranks on each node; the stage's function runs once a rank."""
    cpus_per_task: Annotated[int, Field(ge=1)] = 1
    """Processor cores of each rank."""
    gpus_per_node: Annotated[int, Field(ge=0)] = 0
    """GPUs on each node."""
    gpu: list[str] = []
    """Types of GPU that will do, one or several; all nodes of a job are of one type."""
    mem_gb: Annotated[float, Field(gt=0)] | None = None
    """Memory of each node in GB; Slurm's default where it is left out."""
    timeout_min: Annotated[float, Field(gt=0)] = 60
    """Time limit in minutes."""
    signal_lead_s: Annotated[int, Field(ge=0, le=65535)] = 120
    """Seconds before the time limit at which the ranks are told to save and stop."""
    slurm: dict[str, SlurmValue] = {}
    """Further options of sbatch under Slurm's own names, such as `partition` or `qos`."""

    @field_validator("gpu", mode="before", json_schema_input_type=str | list[str])
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return [value] if isinstance(value, str) else value

    @field_validator("gpu")
    @classmethod
    def _gpu_names(cls, value: list[str]) -> list[str]:
        for name in value:
            if not re.fullmatch(r"[A-Za-z0-9_.-]+", name, re.ASCII):
                raise ValueError(f"`{name}` is no type of GPU (letters, digits, _ . and -)")
        return value

    @field_validator("slurm")
    @classmethod
    def _slurm_options(cls, value: dict[str, SlurmValue]) -> dict[str, SlurmValue]:
        return check_slurm_options(value)

    @model_validator(mode="after")
    def _gpu_needs_a_number(self) -> Resources:
        if self.gpu and not self.gpus_per_node:
            raise ValueError("`gpu` names a type, but gpus_per_node is 0; say how many")
        return self


class Array(Values):
    """How a stage is divided over a job array."""

    num_slices: Annotated[int, Field(ge=1)]
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
    python: Annotated[str, Field(min_length=1)] | None = None
    """Python of the compute nodes for this stage; the profile's where it is left out."""
    setup: list[SetupLine] = []
    """Lines of shell that run in the job before the stage (`module load ...`)."""
    environment: dict[str, str] = {}
    """Environment variables of the job; values are quoted."""
    node_local_dir: OutputPath | None = None
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
            raise ValueError("a list holds names of stages only; for kinds write {stage: afterany}")
        return value

    @field_validator("run")
    @classmethod
    def _entry_point(cls, value: str | None) -> str | None:
        if value is None or value in BUILTIN_STAGES or _ENTRY_POINT.fullmatch(value):
            return value
        raise ValueError(
            f"`{value}` is neither a built-in stage ({', '.join(BUILTIN_STAGES)}) "
            "nor `package.module:function`"
        )

    @field_validator("environment")
    @classmethod
    def _environment(cls, value: dict[str, str]) -> dict[str, str]:
        return check_environment(value)

    @model_validator(mode="after")
    def _run_or_shell(self) -> Stage:
        if (self.run is None) == (self.shell is None):
            raise ValueError("a stage has either `run` or `shell`")
        return self


class RunSpec(Values):
    """A whole spec."""

    name: str
    """Name of the run's kind; each submit makes a run folder whose name begins with it."""
    cluster: str = "auto"
    """File of a cluster profile; `local` runs on this machine; `auto` asks Slurm."""
    runs_dir: OutputPath = "runs"
    """Where run folders are made; a file system that all nodes share."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """Take only the first so many samples of the manifest, through the whole chain."""
    code: list[InputPath] = []
    """Files and folders whose state at submit the jobs use, besides the modules named in `run`."""
    setup: list[SetupLine] = []
    """Set-up lines of every stage, before the stage's own."""
    environment: dict[str, str] = {}
    """Environment variables of every stage."""
    stages: Annotated[dict[str, Stage], Field(min_length=1)]
    """The stages by name, in any order."""

    @field_validator("name")
    @classmethod
    def _name(cls, value: str) -> str:
        return check_name(value)

    @field_validator("stages")
    @classmethod
    def _stage_names(cls, value: dict[str, Stage]) -> dict[str, Stage]:
        for name in value:
            check_name(name)
        return value

    @field_validator("environment")
    @classmethod
    def _environment(cls, value: dict[str, str]) -> dict[str, str]:
        return check_environment(value)


def check_name(value: str) -> str:
    """A name fit for job names, folders and references.

    Raises:
        ValueError: it is not.
    """
    if not _NAME.fullmatch(value):
        raise ValueError(
            f"`{value}` is no name: a letter, then at most 39 letters, digits, - and _"
        )
    return value
