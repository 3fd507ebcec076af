"""Types of the text in a spec or profile (names, paths, options), and their checks. PURE."""

from __future__ import annotations

import dataclasses
import re
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

from slurm_jobs.base.texts.did_you_mean import did_you_mean
from slurm_jobs.formats.config import PathMarker
from slurm_jobs.spec.sbatch_options import OWN_SLURM_KEYS, is_resource, near_option, own_key

BUILTIN_STAGES = ("download", "preprocess", "consolidate", "train", "report", "probe")

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,39}")
_RUN_NAME = re.compile(r"[A-Za-z]([A-Za-z0-9._-]{0,38}[A-Za-z0-9_-])?")
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
    """Check the name of a stage; raises ValueError for an invalid one.

    It has no dot, because dots separate the parts of a reference (`${STAGE.output_dir}`).
    """
    return _require(_NAME, value, "name: a letter, then at most 39 letters, digits, - and _")


def check_run_name(value: str) -> str:
    """Check the name of a spec and its runs (`qwen2.5`); raises ValueError for an invalid one."""
    known = "name: a letter, then at most 39 letters, digits, -, _ and dots, the last no dot"
    return _require(_RUN_NAME, value, known)


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
    hint = did_you_mean(value, BUILTIN_STAGES)
    module, _, function = value.rpartition(".")
    if not hint and function == "py":
        hint = f"; write `{module.replace('/', '.')}:FUNCTION`"
    elif not hint and _ENTRY_POINT.fullmatch(f"{module}:{function}"):
        hint = f"; did you mean `{module}:{function}`?"
    message = (
        f"`{value}` is neither a built-in stage ({', '.join(BUILTIN_STAGES)}) "
        f"nor `package.module:function`{hint}"
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
RunName = Annotated[str, AfterValidator(check_run_name), _named(_RUN_NAME)]
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
