"""Model of specs and cluster profiles: all keys and defaults. PURE.

The models take plain values, as `yaml` reads them. Built-in stages' configs are the
dataclasses of `slurm_jobs.shared.configs`.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import re
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    field_validator,
)

from slurm_jobs.shared.config import DependencyKind, PathMarker, SomeKeysOf
from slurm_jobs.shared.errors import did_you_mean
from slurm_jobs.spec.sbatch_options import OWN_SLURM_KEYS, is_resource, near_option, own_key
from slurm_jobs.spec.yaml import KeyPath

# Kinds of text in a spec or profile, and checks of their values.


BUILTIN_STAGES = ("preprocess", "consolidate", "train", "report", "probe")

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
_AXIS = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,39}", re.ASCII)
_ENTRY_POINT = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SLURM_KEY = re.compile(r"[a-z][a-z0-9_-]+", re.ASCII)
_GPU_TYPE = re.compile(r"[A-Za-z0-9_.+-]+", re.ASCII)
_NOT_IN_A_LINE = re.compile(r"[\x00-\x1f\x7f\\]")


def is_name(value: str) -> bool:
    """Check whether a stage may have this name."""
    return _NAME.fullmatch(value) is not None


def _require(pattern: re.Pattern[str], value: str, what: str) -> str:
    if not pattern.fullmatch(value):
        message = f"`{value}` is not a valid {what}"
        raise ValueError(message)
    return value


def check_name(value: str) -> str:
    """Check a name for jobs, folders and references; raises ValueError for an invalid one."""
    return _require(_NAME, value, "name: a letter, then at most 39 letters, digits, - and _")


def check_axis(value: str) -> str:
    """Check the name of an axis of a matrix; raises ValueError for an invalid one."""
    return _require(_AXIS, value, "axis: a letter, then at most 39 letters, digits and _")


def check_slurm_key(key: str) -> str:
    """Check the long name of an sbatch option that slurm-jobs does not set itself.

    Raises:
        ValueError: it is none, a misspelt one, or has another key in the spec.
    """
    _require(_SLURM_KEY, key, "long name of an sbatch option (small letters, digits, - and _)")
    key_here, near, message = own_key(key), near_option(key), ""
    if key_here is not None:
        message = f"`{key}` has a key of its own: {key_here}"
    elif is_resource(key):
        message = (
            f"`{key}` is a key of `resources`, not an option of sbatch; write it next to slurm"
        )
    elif near:
        key_here = own_key(near)
        more = f" It has a key of its own: {key_here}" if key_here else ""
        message = f"`{key}` is not an option of sbatch; did you mean `{near}`?{more}"
    if message:
        raise ValueError(message)
    return key


def check_one_line(value: SlurmValue) -> SlurmValue:
    """Check text that must stay on its line of the batch script, and that sbatch reads as bash.

    Raises:
        ValueError: it holds a line break, another control character, or a backslash.
    """
    if isinstance(value, str) and _NOT_IN_A_LINE.search(value):
        message = f"`{value}` holds a line break, control character or backslash"
        raise ValueError(message)
    return value


def check_environment_name(name: str) -> str:
    """Check a name that a shell can export.

    Raises:
        ValueError: it is invalid, or slurm-jobs sets it.
    """
    _require(_ENVIRONMENT_NAME, name, "name of an environment variable (letters, digits and _)")
    if name.startswith("SLURM_JOBS_"):
        message = f"`{name}` is set by slurm-jobs itself (SLURM_JOBS_...)"
        raise ValueError(message)
    return name


def check_gpu_type(name: str) -> str:
    """Check the name of a GPU type; raises ValueError for an invalid one."""
    return _require(_GPU_TYPE, name, "type of GPU (letters, digits, _ . + and -)")


def check_entry_point(value: str) -> str:
    """Check the name of a built-in stage, or of a function of the user.

    Raises:
        ValueError: it is neither.
    """
    if value in BUILTIN_STAGES or _ENTRY_POINT.fullmatch(value):
        return value
    message = (
        f"`{value}` is neither a built-in stage ({', '.join(BUILTIN_STAGES)}) "
        f"nor `package.module:function`{did_you_mean(value, BUILTIN_STAGES)}"
    )
    raise ValueError(message)


@dataclasses.dataclass(frozen=True, slots=True)
class NodePathMarker(PathMarker):
    """Mark of a path whose `$VARIABLES` and `~` are those of the compute node."""


@dataclasses.dataclass(frozen=True, slots=True)
class TextMarker(PathMarker):
    """Mark of text that is no path, but whose `$VARIABLES` are those of the login node, too."""


@dataclasses.dataclass(frozen=True, slots=True)
class ProgramMarker(PathMarker):
    """Mark of a program: looked up on PATH if it has no slash, else a path."""


def _named(pattern: re.Pattern[str]) -> WithJsonSchema:
    return WithJsonSchema({"type": "string", "pattern": f"^{pattern.pattern}$"})


SlurmValue = str | bool | int | float
SlurmOptions = Annotated[
    dict[
        Annotated[str, AfterValidator(check_slurm_key), _named(_SLURM_KEY)],
        Annotated[SlurmValue, TextMarker(), AfterValidator(check_one_line)],
    ],
    Field(
        json_schema_extra={
            "propertyNames": {
                "not": {
                    "enum": sorted(
                        {*OWN_SLURM_KEYS, *(k.replace("-", "_") for k in OWN_SLURM_KEYS)}
                    )
                }
            }
        }
    ),
]
Environment = dict[
    Annotated[str, AfterValidator(check_environment_name), _named(_ENVIRONMENT_NAME)], str
]
SetupLine = Annotated[str, Field(min_length=1)]
AxisName = Annotated[str, AfterValidator(check_axis), _named(_AXIS)]
Name = Annotated[str, AfterValidator(check_name), _named(_NAME)]
EntryPoint = Annotated[
    str,
    AfterValidator(check_entry_point),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": list(BUILTIN_STAGES)},
                {"type": "string", "pattern": f"^{_ENTRY_POINT.pattern}$"},
            ]
        }
    ),
]
GpuType = Annotated[str, AfterValidator(check_gpu_type), _named(_GPU_TYPE)]
CodePath = Annotated[str, PathMarker(must_exist=True), AfterValidator(check_one_line)]
RunsPath = Annotated[str, PathMarker(), Field(min_length=1), AfterValidator(check_one_line)]
NodePath = Annotated[str, NodePathMarker(), Field(min_length=1), AfterValidator(check_one_line)]
Program = Annotated[str, ProgramMarker(), Field(min_length=1), AfterValidator(check_one_line)]


MAX_STAGES = 500


class Values(BaseModel):
    """Base of models: unknown keys refused, no silent conversions."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Resources(Values):
    """Resources of one job, or one array task, in submitit's terms."""

    nodes: Annotated[int, Field(ge=1, le=100_000)] = 1
    """Number of nodes."""
    tasks_per_node: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Ranks on each node; the stage's function runs once for each rank."""
    cpus_per_task: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Processor cores of each rank."""
    gpus_per_node: Annotated[int, Field(ge=0, le=1_000)] = 0
    """GPUs on each node."""
    gpu: list[GpuType] = []
    """Suitable GPU types, one or several; all nodes of a job are of one type."""
    mem_gb: Annotated[float, Field(gt=0, le=1e6)] | None = None
    """Memory of each node in GB of 1024 MB, as Slurm counts; by default Slurm's own default."""
    timeout_min: Annotated[float, Field(gt=0, le=1e6)] = 60
    """Time limit in minutes."""
    signal_lead_s: Annotated[int, Field(ge=0, le=65535)] = 120
    """Seconds before the time limit at which the ranks are asked to save and stop; at most half of
    the time limit."""
    slurm: SlurmOptions = {}
    """Further options of sbatch under Slurm's own names, such as `partition` or `qos`. `$NAME` and
    `${NAME}` are expanded on the login node."""

    @field_validator("gpu", mode="before", json_schema_input_type=GpuType | list[GpuType])
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        if isinstance(value, int):
            message = (
                f"names the type of GPU, such as a100, or a list of types, found `{value}`; how "
                "many is said by gpus_per_node"
            )
            raise ValueError(message)  # noqa: TRY004 - pydantic reports ValueError
        return [value] if isinstance(value, str) else value


class Array(Values):
    """Division of a stage over a job array."""

    num_slices: Annotated[int, Field(ge=1, le=1_000_000)]
    """Number of slices; each is one array task."""
    max_running: Annotated[int, Field(ge=1)] | None = None
    """Number of array tasks that may run at once; no limit by default."""
    slices_per_task: Annotated[int, Field(ge=1, le=100_000)] = 1
    """Number of slices that one array task processes, one after the other; its time limit is that
    many times timeout_min. If the site allows fewer jobs at once, a higher number is used."""


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
    """Built-in stage (preprocess, consolidate, train, report, probe), or `package.module:function`.
    """
    shell: Annotated[str, Field(min_length=1)] | None = None
    """Shell command, instead of `run`."""
    after: dict[str, DependencyKind] = {}
    """Stages that come before this one: a name, a list of names, or names with afterok (the
    default), afterany, afternotok, or aftercorr (slice after slice of two arrays)."""
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
    """Divides the stage into slices; without it the stage is one job."""
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
    """Changes that a resume makes after failures; none by default."""
    mixed_code: Literal["allow", "forbid"] = "allow"
    """`forbid`: a resume with `--keep-complete` repeats complete slices of this stage all the same
    if the code that they used has changed."""
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

    name: Name
    """Name of the spec; the name of each run folder begins with it."""
    cluster: str = "auto"
    """File of a cluster profile; `local` runs on this machine; `auto` asks Slurm."""
    runs_dir: RunsPath = "runs"
    """Folder of run folders; it must be on a file system that all nodes share."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """Number of samples to take from the start of the manifest, in all stages."""
    code: list[CodePath] = []
    """Files and folders whose state at submit the jobs use, in addition to the modules named in
    `run`."""
    setup: list[SetupLine] = []
    """Set-up lines of every stage, before the stage's own."""
    environment: Environment = {}
    """Environment variables of every stage."""
    stages: Annotated[dict[Name, Stage], Field(min_length=1, max_length=MAX_STAGES)]
    """Stages by name, in any order."""


# Keys of a model and their types, below any path; whether a type accepts a value.


def known_keys(target: Any, location: KeyPath) -> list[str]:
    """Return the keys of the model at `location` below `target`."""
    return list(fields_of(type_at(target, location)))


def type_at(target: Any, location: KeyPath) -> Any:
    """Return the declared type of the value at `location` below `target`."""
    for step in location:
        target = with_keys(target)
        fields, arguments = fields_of(target), typing.get_args(target) or (Any,)
        if fields:
            target = fields[str(step)]
        else:
            target = arguments[-1] if typing.get_origin(target) is dict else arguments[0]
    return target


def fields_of(target: Any) -> Mapping[str, Any]:
    """Return the keys of a model and their types; empty for other types."""
    target = with_keys(target)
    return _fields(target) if is_model(target) else {}


@cache
def _fields(model: Any) -> Mapping[str, Any]:
    hints = typing.get_type_hints(model, include_extras=True)
    is_pydantic = issubclass(model, BaseModel)
    names = model.model_fields if is_pydantic else [f.name for f in dataclasses.fields(model)]
    return {name: hints[name] for name in names}


def places_of(target: Any, key: str) -> list[KeyPath]:
    """Return the places below `target` with this key, except in lists and user mappings."""
    places: list[KeyPath] = []
    for known, inner in fields_of(target).items():
        places += [(known,)] if known == key else []
        places += [(known, *below) for below in places_of(inner, key)]
    return places


def with_keys(target: Any) -> Any:
    """Return a type without its wrappers; of a union the branch that has keys, else the first."""
    if typing.get_origin(target) is typing.Annotated:
        bare, *marks = typing.get_args(target)
        part = next((mark for mark in marks if isinstance(mark, SomeKeysOf)), None)
        return with_keys(bare) if part is None else part.whole
    if typing.get_origin(target) not in {typing.Union, types.UnionType}:
        return target
    branches = [with_keys(a) for a in typing.get_args(target) if a is not type(None)]
    return next((b for b in branches if is_model(b)), branches[0])


def is_model(target: Any) -> bool:
    """Check whether a type has known keys."""
    is_pydantic = isinstance(target, type) and issubclass(target, BaseModel)
    return is_pydantic or dataclasses.is_dataclass(target)


def refusal(target: Any, location: KeyPath, value: Any) -> str | None:
    """Return why `target` refuses `value` at `location`; None if it accepts it.

    It is empty for a wrong kind of value, else the remedy from the model's own check.
    """
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(type_at(target, location))
        valid = adapter.validate_json(json.dumps(value), strict=True)
    except ValidationError:
        return ""
    holder, key = with_keys(type_at(target, location[:-1])), str(location[-1])
    if dataclasses.is_dataclass(holder):
        try:
            typing.cast("type[Any]", holder)(**{key: valid})
        except (TypeError, ValueError) as error:  # others may be missing, or wrong without others
            _, _, remedy = str(error).partition(": ")
            return remedy if str(error).startswith(f"{key} ") else None
    return None


# Stages and shell variables of the combinations of a `matrix:`.


def origin_of(name: str, matrix: Any) -> str:
    """Return the file's name of the stage that became `name`; empty without a matrix."""
    if not is_member({"matrix": matrix}):
        return ""
    suffix = "-" + slug(matrix[0])
    return name.removesuffix(suffix) if name.endswith(suffix) else name.rpartition("-")[0]


def is_member(stage: Mapping[str, Any]) -> bool:
    """Check whether the raw values are those of one combination."""
    matrix = stage.get("matrix")
    return isinstance(matrix, list) and len(matrix) == 1 and isinstance(matrix[0], dict)


def axis_variable(axis: str) -> str:
    """Return the environment variable that holds the value of an axis."""
    return f"SLURM_JOBS_MATRIX_{axis.upper()}"


def matrix_variables(matrix: Any) -> dict[str, str]:
    """Return the variables of a stage that is one combination; none for any other."""
    combination = matrix[0] if is_member({"matrix": matrix}) else {}
    return {axis_variable(axis): value_text(value) for axis, value in combination.items()}


def value_text(value: Any) -> str:
    """Return a value as text: unchanged, or as JSON."""
    return value if isinstance(value, str) else json.dumps(value)


def slug(combination: Mapping[str, Any]) -> str:
    """Return the values of a combination as a part of a stage's name."""
    texts = (
        format(v, "g") if isinstance(v, float) else value_text(v) for v in combination.values()
    )
    return "-".join(re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_") for text in texts)


# Config dataclasses of the built-in stages.


@cache
def config_class(builtin: str) -> type[Any]:
    """Return the config dataclass of a built-in stage, ready for validation.

    Only this one is imported, so that `check` stays fast.
    """
    assert builtin in BUILTIN_STAGES
    module = importlib.import_module(
        f"slurm_jobs.shared.configs.{'train' if builtin == 'train' else 'stages'}"
    )
    config: type[Any] = getattr(module, f"{builtin.capitalize()}Config")
    _forbid_unknown_keys(config)
    return config


def _forbid_unknown_keys(cls: Any) -> None:
    """Set pydantic's options on a plain dataclass and those inside it, without an import there."""
    cls.__pydantic_config__ = {"extra": "forbid"}
    for hint in typing.get_type_hints(cls).values():
        is_union = typing.get_origin(hint) in {typing.Union, types.UnionType}
        for inner in typing.get_args(hint) if is_union else (hint,):
            if dataclasses.is_dataclass(inner):
                _forbid_unknown_keys(inner)
