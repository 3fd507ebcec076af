"""The complete spec of a run, `spec/resolved.json`: written by us, read with distrust.

The file may be damaged, of another version, or forged by a colleague who shares the run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Any

from slurm_jobs.base.errors import DamagedFileError
from slurm_jobs.base.files import damaged, read_json, write_text_atomic
from slurm_jobs.base.json_values import is_count
from slurm_jobs.run_folder.orders import MOST_SLICES
from slurm_jobs.run_folder.paths import RunPaths

if TYPE_CHECKING:
    from slurm_jobs.spec.model import RunSpec


def write_resolved_spec(paths: RunPaths, spec: RunSpec) -> None:
    """Write the complete spec; its stages keep the file's order, which status uses."""
    write_text_atomic(paths.resolved_spec, spec.model_dump_json(indent=1) + "\n")


def read_resolved_values(paths: RunPaths) -> dict[str, Any]:
    """Read the complete spec as JSON values, of which `stages` can be put in order.

    Raises:
        DamagedFileError: its stages are none that a submit writes.
        OSError: it cannot be read.
    """
    values: dict[str, Any] = read_json(paths.resolved_spec)
    problem = _spec_problem(values)
    if problem is not None:
        raise damaged(paths.resolved_spec, ValueError(problem))
    return values


def _spec_problem(values: Any) -> str | None:
    stages = values.get("stages") if isinstance(values, Mapping) else None
    if not isinstance(stages, Mapping):
        return "it has no mapping `stages`"
    for name, stage in stages.items():
        problem = _stage_problem(stage, stages)
        if problem is not None:
            return f"its stage {name!r:.60} {problem}"
    try:
        TopologicalSorter({n: stage.get("after") or {} for n, stage in stages.items()}).prepare()
    except CycleError as error:
        return f"its stages wait for each other: {' before '.join(error.args[1])}"
    return None


def _stage_problem(stage: Any, stages: Mapping[str, Any]) -> str | None:
    if not isinstance(stage, Mapping):
        return "is no mapping"
    for key in ("after", "array", "config"):
        if not isinstance(stage.get(key) or {}, Mapping):
            return f"has no mapping as its `{key}`"
    unknown = next((parent for parent in stage.get("after") or {} if parent not in stages), None)
    if unknown is not None:
        return f"comes after {unknown!r:.60}, which is none of them"
    num_slices: Any = (stage.get("array") or {"num_slices": 1}).get("num_slices")
    if not is_count(num_slices) or num_slices > MOST_SLICES:
        return f"has no whole number up to {MOST_SLICES} as `num_slices` of its `array`"
    return None


def read_resolved_spec(paths: RunPaths) -> RunSpec:
    """Read the complete spec.

    Raises:
        DamagedFileError: it is no spec of this version.
        OSError: it cannot be read.
    """
    from pydantic import ValidationError

    from slurm_jobs.spec.model import RunSpec

    values = read_resolved_values(paths)
    try:
        return RunSpec.model_validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        message = (
            f"{paths.resolved_spec} is not a spec that this version of slurm-jobs can read "
            f"({place}: {first['msg']}). If another version has written it, use that version; "
            "otherwise restore the file from a backup or snapshot of its file system"
        )
        raise DamagedFileError(message) from error
