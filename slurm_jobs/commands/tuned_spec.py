"""New spec of a tuning: the user's text with the values that were kept.

It is made on the login node and not by the stage: the loader reads the files that the spec
names, and the stage's Python may lack a YAML library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from slurm_jobs.base.errors import SpecError
from slurm_jobs.base.files import read_json, write_text_atomic
from slurm_jobs.base.redact import hidden_values
from slurm_jobs.base.regular_files import read_text
from slurm_jobs.commands.spec_reading.disk_files import disk_files
from slurm_jobs.commands.tuning_spec import TuneRun, place_of
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.command_stages import SPEC_NAME
from slurm_jobs.formats.configs.training_parts import CompileConfig
from slurm_jobs.formats.expand import literal_path, literal_text
from slurm_jobs.spec.builtin_configs import config_class
from slurm_jobs.spec.load import load_spec
from slurm_jobs.spec.marked_paths import Surroundings, resolve_marked
from slurm_jobs.spec.model import RunSpec
from slurm_jobs.spec.overrides.apply import sets_value
from slurm_jobs.spec.overrides.text_edits import EditError, edit_text
from slurm_jobs.spec.value_types import BUILTIN_STAGES
from slurm_jobs.spec.yaml.reader import read_yaml


@dataclass(frozen=True, kw_only=True, slots=True)
class TunedSpec:
    """New spec, and how it was made."""

    path: Path
    is_whole: bool
    """True if it was dumped with all values filled in, because the text could not be edited."""
    why: str
    overrides: tuple[str, ...]
    """`--set` options of the old spec that it does not contain, and that still apply."""


def write_tuned_spec(run: TuneRun, kept: Sequence[Mapping[str, Any]]) -> TunedSpec:
    """Write the spec with `kept` (`key` and `value` each) into the stage's output folder.

    Raises:
        SpecError: the spec as it was given cannot be loaded any more.
    """
    file: str = read_json(run.paths.spec_origin)["spec_file"]
    text = read_text(run.paths.given_spec)
    changes = [(place_of(run, change["key"]), change["value"]) for change in kept]
    names = [[str(step) for step in place] for place, _ in changes]
    overrides = tuple(o for o in run.overrides if not any(sets_value(o, name) for name in names))
    disk = disk_files()

    def values_of(text: str, overrides: Sequence[str]) -> Any:
        """Load the spec as if `text` were in its file: paths are relative to its folder."""
        files = replace(disk, read_text=lambda name: text if name == file else disk.read_text(name))
        return json.loads(load_spec(file, files, overrides=overrides).spec.model_dump_json())

    wanted = values_of(text, run.overrides)
    for (*parents, last), value in changes:
        section = wanted
        for step in parents:
            if isinstance(section, dict) and section.get(step) is None:
                section[step] = {}  # the default
            section = section[step]
        section[last] = value
        if last == "compile" and isinstance(value, Mapping):  # as the loader completes it
            section[last] = json.loads(json.dumps(asdict(build_config(CompileConfig, value))))
    why = ""
    try:
        if changes and run.stage not in read_yaml(text, "").value["stages"]:
            message = f"{run.stage} is one combination of a stage's matrix, which has one text"
            raise EditError(message)
        new = edit_text(text, changes)
        if values_of(new, overrides) != wanted:
            why = "its values would be others"
    except (EditError, SpecError) as error:
        why = " ".join(str(error).split())
    if why:
        new, overrides = _dumped(wanted), ()
    path = run.paths.output_dir(run.stage) / SPEC_NAME
    write_text_atomic(path, new)
    return TunedSpec(path=path, is_whole=bool(why), why=why, overrides=overrides)


def _dumped(values: Any) -> str:
    """Return the text, with paths written as a spec must name them.

    Each combination of a matrix becomes a stage with its values filled in.
    """
    around = Surroundings(base_dir="/", expand=literal_path, expand_text=literal_text)
    values, _ = resolve_marked(RunSpec, values, around)
    stages = values["stages"].values()
    head = "# The whole spec with everything filled in: the text could not be edited in place.\n"
    for stage in stages:
        if stage["run"] in BUILTIN_STAGES:
            stage["config"], _ = resolve_marked(config_class(stage["run"]), stage["config"], around)
        shown = hidden_values({"environment": stage.get("environment") or {}})["environment"]
        if shown != (stage.get("environment") or {}):
            stage["environment"] = shown
            head += (
                "# Secrets of `environment` are not in it: give them with --set, or write them.\n"
            )
    matrices = [stage.pop("matrix", None) for stage in stages]
    if any(matrices):
        head += "# Combinations of a matrix are separate stages: no SLURM_JOBS_MATRIX_... is set.\n"
    return head + yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=100)
