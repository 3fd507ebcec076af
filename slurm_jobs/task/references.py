"""Puts the folders of earlier stages in place of `${stage.output_dir}`. PURE."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from slurm_jobs.common.errors import StageConfigError

_REFERENCE = re.compile(r"\$\{([A-Za-z][A-Za-z0-9_-]*)\.output_dir\}")


def substitute_references(value: Any, output_dirs: Mapping[str, str]) -> Any:
    """`value` with every reference in its strings replaced; new containers, same shape.

    Raises:
        StageConfigError: a reference to a stage that does not come before this one.
    """

    def folder(match: re.Match[str]) -> str:
        if match[1] not in output_dirs:
            known = ", ".join(sorted(output_dirs)) or "none"
            message = f"`{match[0]}` names no stage that comes before this one (those: {known})"
            raise StageConfigError(message)
        return output_dirs[match[1]]

    if isinstance(value, str):
        return _REFERENCE.sub(folder, value)
    if isinstance(value, Mapping):
        return {key: substitute_references(item, output_dirs) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [substitute_references(item, output_dirs) for item in value]
    return value
