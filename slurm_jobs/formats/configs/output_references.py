"""References to a stage's output folder in a config, and their replacement.

`${stage.output_dir}` is the only form. A shell gets the same folder in a variable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from slurm_jobs.base.errors import StageConfigError

REFERENCE = re.compile(r"\$\{([^{}]*)\}")
"""Pattern of everything that looks like a reference; its group is the text in the braces."""
UNESCAPED_REFERENCE = re.compile(r"(?<!\\)\$\{([^{}]*)\}")
"""Pattern of a reference in text for a shell: after a backslash it is plain text there."""
_OUTPUT_OF = re.compile(r"([A-Za-z][A-Za-z0-9_-]*)\.output_dir")


def referenced_stage(inner: str) -> str | None:
    """Return the stage that `${stage.output_dir}` names; None for a reference of another form."""
    match = _OUTPUT_OF.fullmatch(inner)
    return match[1] if match else None


def stage_that_begins(inner: str) -> str | None:
    """Return the stage of text that begins with a reference, such as `stage.output_dir/file`.

    None for other text.
    """
    match = re.match(rf"{_OUTPUT_OF.pattern}\b", inner)
    return match[1] if match else None


def output_dir_variable(stage: str) -> str:
    """Return the environment variable with the output folder of a stage in `after`."""
    return f"SLURM_JOBS_{stage.upper().replace('-', '_')}_OUTPUT_DIR"


def substitute_references(value: Any, output_dirs: Mapping[str, str]) -> Any:
    """Return `value` with every reference in its strings replaced; new containers, same shape.

    References of another form are kept.

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
