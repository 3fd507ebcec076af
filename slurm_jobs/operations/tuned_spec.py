"""New spec of a tuning: the user's text with the values that were kept.

It is made on the login node and not by the stage: the loader reads the files that the spec names,
and the stage's Python may lack a YAML library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from slurm_jobs.common.errors import SpecError
from slurm_jobs.common.files import read_json, write_text_atomic
from slurm_jobs.common.hidden import hidden_values
from slurm_jobs.common.path_expansion import literal_path
from slurm_jobs.common.stage_config.tune import SPEC_NAME
from slurm_jobs.operations.disk import disk_files
from slurm_jobs.operations.tune import TuneRun, place_of
from slurm_jobs.spec.editing import EditError, edit_text
from slurm_jobs.spec.files import Files
from slurm_jobs.spec.loader import LoadedSpec, load_spec
from slurm_jobs.spec.markers import Surroundings, resolve_marked
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.overrides import sets_value
from slurm_jobs.spec.stage_configs import config_class
from slurm_jobs.spec.value_types import BUILTIN_STAGES
from slurm_jobs.spec.yaml_values import read_yaml

_ALIKE = "the text means the same, with the changes"


@dataclass(frozen=True, kw_only=True, slots=True)
class TunedSpec:
    """New spec, and how it was made."""

    path: Path
    is_whole: bool
    """True if it was dumped with all values filled in, because the text could not be edited."""
    why: str
    overrides: tuple[str, ...]
    """`--set` options of the old spec that it does not contain, and that still apply."""


Place = tuple[str | int, ...]


def write_tuned_spec(run: TuneRun, kept: Sequence[Mapping[str, Any]]) -> TunedSpec:
    """Write the spec with `kept` (`key` and `value` each) into the stage's output folder.

    Raises:
        SpecError: the spec as it was given cannot be loaded any more.
    """
    origin = read_json(run.paths.spec_origin)
    text = run.paths.given_spec.read_bytes().decode()  # keeps line ends
    changes = [(place_of(run, one["key"]), one["value"]) for one in kept]
    names = [[str(step) for step in place] for place, _ in changes]
    overrides = tuple(o for o in run.overrides if not any(sets_value(o, name) for name in names))
    wanted = _wanted(_load(origin["spec_file"], text, run.overrides), changes)
    try:
        new = _edited(run, text, changes)
        found = _load(origin["spec_file"], new, overrides)
        why = _ALIKE if _values(found) == wanted else "its values would be others"
    except (EditError, SpecError) as error:
        new, why = text, " ".join(str(error).split())
    is_whole = why != _ALIKE
    if is_whole:
        new = _dumped(wanted)
    path = run.paths.output_dir(run.stage) / SPEC_NAME
    write_text_atomic(path, new)
    return TunedSpec(
        path=path,
        is_whole=is_whole,
        why=why if is_whole else "",
        overrides=() if is_whole else overrides,
    )


def _edited(run: TuneRun, text: str, changes: Sequence[tuple[Place, Any]]) -> str:
    if changes and run.stage not in read_yaml(text, "").value["stages"]:
        message = f"{run.stage} is one combination of a stage's matrix, which has one text"
        raise EditError(message)
    return edit_text(text, changes)


def _load(file: str, text: str, overrides: Sequence[str]) -> LoadedSpec:
    """Load the spec as if `text` were in `file`: paths are relative to its folder."""
    disk = disk_files()

    def read_text(name: str) -> str:
        return text if name == file else disk.read_text(name)

    files: Files = replace(disk, read_text=read_text)
    return load_spec(file, files, overrides=overrides)


def _values(loaded: LoadedSpec) -> Any:
    return json.loads(loaded.spec.model_dump_json())


def _wanted(loaded: LoadedSpec, changes: Sequence[tuple[Place, Any]]) -> Any:
    """Return the resolved spec with the changes; missing keys have their defaults."""
    values = _values(loaded)
    for place, value in changes:
        *parents, last = place
        found = values
        for step in parents:
            if isinstance(found, dict) and found.get(step) is None:
                found[step] = {}
            found = found[step]
        found[last] = _complete(last, value)
    return values


def _complete(key: str | int, value: Any) -> Any:
    """Complete a mapping as the loader does."""
    if key != "compile" or not isinstance(value, Mapping):
        return value
    from dataclasses import asdict

    from slurm_jobs.common.config_values import build_config
    from slurm_jobs.common.stage_config.compile import CompileConfig

    return json.loads(json.dumps(asdict(build_config(CompileConfig, value))))


def _with_literal_paths(values: Any) -> Any:
    """Return the values with their paths written as a spec must name them."""
    around = Surroundings(base_dir="/", expand=literal_path)
    written, _ = resolve_marked(RunSpec, values, around)
    for stage in written["stages"].values():
        if stage["run"] in BUILTIN_STAGES:
            stage["config"], _ = resolve_marked(config_class(stage["run"]), stage["config"], around)
    return written


def _dumped(values: Any) -> str:
    """Return the text; each combination of a matrix becomes a stage with its values filled in."""
    values = _with_literal_paths(values)
    head = "# The whole spec with everything filled in: the text could not be edited in place.\n"
    for stage in values["stages"].values():
        shown = hidden_values({"environment": stage.get("environment") or {}})["environment"]
        if shown != (stage.get("environment") or {}):
            stage["environment"] = shown
            head += (
                "# Secrets of `environment` are not in it: give them with --set, or write them.\n"
            )
    matrices = [stage.pop("matrix", None) for stage in values["stages"].values()]
    if any(matrices):
        head += "# Combinations of a matrix are separate stages: no SLURM_JOBS_MATRIX_... is set.\n"
    return head + yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100)
