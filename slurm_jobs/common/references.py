"""`${stage.output_dir}` in a config, its one form, and the folder put in its place. PURE.

And the variable that holds the same folder for a shell.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from slurm_jobs.common.errors import StageConfigError

REFERENCE = re.compile(r"\$\{([^}]*)\}")
"""Whatever looks like a reference; its group is what the braces hold."""
UNESCAPED_REFERENCE = re.compile(r"(?<!\\)\$\{([^}]*)\}")
"""The same where a shell reads it: after a backslash it is plain text there."""
_OUTPUT_OF = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)\.output_dir")


def referenced_stage(inner: str) -> str | None:
    """The stage that `${stage.output_dir}` names; None if the reference is of no known form."""
    match = _OUTPUT_OF.fullmatch(inner)
    return match[1] if match else None


def stage_that_begins(inner: str) -> str | None:
    """The stage of what begins as a reference, such as `stage.output_dir/file`; None if none."""
    match = re.match(rf"{_OUTPUT_OF.pattern}\b", inner)
    return match[1] if match else None


def output_dir_variable(stage: str) -> str:
    """The environment variable that holds the output folder of a stage in `after`."""
    return f"SLURM_JOBS_{stage.upper().replace('-', '_')}_OUTPUT_DIR"


def substitute_references(value: Any, output_dirs: Mapping[str, str]) -> Any:
    """`value` with every reference in its strings replaced; new containers, same shape.

    What is of no known form is left as it is.

    Raises:
        StageConfigError: a reference to a stage that does not come before this one.
    """

    def folder(match: re.Match[str]) -> str:
        stage = referenced_stage(match[1])
        if stage is None:
            return match[0]
        if stage not in output_dirs:
            known = ", ".join(sorted(output_dirs)) or "none"
            message = f"`{match[0]}` names no stage that comes before this one (those: {known})"
            raise StageConfigError(message)
        return output_dirs[stage]

    if isinstance(value, str):
        return REFERENCE.sub(folder, value)
    if isinstance(value, Mapping):
        return {key: substitute_references(item, output_dirs) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [substitute_references(item, output_dirs) for item in value]
    return value
