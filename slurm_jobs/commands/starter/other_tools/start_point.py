"""Model, data and name with which a training of another tool begins, as `init` takes them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.regular_files import read_bytes, read_text
from slurm_jobs.commands.starter.other_tools.foreign_training import ForeignTraining
from slurm_jobs.commands.starter.other_tools.settings_file import near_path
from slurm_jobs.commands.starter.other_tools.tool_table import DataReference
from slurm_jobs.formats.manifests.containers.data_set_lists import (
    NAME_OF_LIST,
    ListedSet,
    read_data_sets,
)
from slurm_jobs.formats.processors.model_types import SMALL_VLM, WHOLE_TYPES
from slurm_jobs.spec.value_types import check_run_name

_DOWNLOADS = Path("data")
"""Folder, below the working folder, where data sets of a hub are expected."""
_ON_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_NO_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_COMMON = frozenset({"saves", "save", "output", "outputs", "out", "results", "checkpoints", "runs"})
"""Words of a path that name no training."""
_MAX_NAME = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class StartPoint:
    """Model, data and name of another tool's file, with which `init` begins."""

    training: ForeignTraining
    model: str | None
    """Folder, or name on a hub."""
    data: Path | None
    """Data that are here, as `--data` takes them; None if they are not."""
    awaited: Path | None = None
    """Place where the data are expected, if they are not here."""
    download: str = ""
    """Command that brings them there."""
    reference: DataReference | None = None
    """Data set that is trained on."""
    left_out: tuple[str, ...] = ()
    """Further data sets that the file names."""
    image_root: Path | None = None
    held_out: Path | None = None
    """Held-out rows that are here."""
    name: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """Data set, and where it is."""

    reference: DataReference
    path: Path | None
    problem: str = ""
    """Reason why it cannot be read although it is here."""


def start_point(training: ForeignTraining, *, has_data: bool) -> StartPoint:
    """Find what a training names; `has_data` if the user names other data.

    Raises:
        InputError: the model cannot be trained here, no data are named, or none of those that are
            here can be read.
    """
    model = _model(training)
    name = run_name(training.text("output_dir"))
    if has_data:
        return StartPoint(training=training, model=model, data=None, name=name)
    values = {setting.key: setting.value for setting in training.settings}
    references = training.tool.data_sets(values)
    if not references:
        message = (
            f"{training.file} names no data set that can be read here: give one with `--data PATH`"
        )
        raise InputError(message)
    places = [place for each in references for place in _places(each, training)]
    chosen = next((place for place in places if place.path is not None), None)
    problems = [place for place in places if place.problem]
    if chosen is None and problems and len(problems) == len(places):
        first = problems[0]
        message = (
            f"{training.file}: data set {first.reference.name} cannot be read: {first.problem}; "
            "name other data with `--data PATH`"
        )
        raise InputError(message)
    if chosen is None:
        chosen = next(place for place in places if not place.problem)
    folder = training.text("image_folder")
    images = None if folder is None else near_path(Path(folder), training.file)
    awaited, download = None, ""
    if chosen.path is None:
        awaited, hub_name = _awaited(chosen.reference), chosen.reference.hub_name
        if hub_name is not None and _ON_HUB.fullmatch(hub_name):
            command = chosen.reference.download or training.tool.download
            download = command.format(name=hub_name, folder=awaited.relative_to(Path.cwd()))
    return StartPoint(
        training=training,
        model=model,
        data=chosen.path,
        awaited=awaited,
        download=download,
        reference=chosen.reference,
        left_out=tuple(place.reference.name for place in places if place is not chosen),
        image_root=images,
        held_out=_held_out(training),
        name=name,
        columns=chosen.reference.columns,
    )


def _model(training: ForeignTraining) -> str | None:
    """Return the folder or name of the model; raises InputError for a type that is not trained."""
    name = training.text("model")
    folder = None if name is None else near_path(Path(name), training.file)
    if folder is None:
        return name
    kind = model_type(folder)
    if kind not in {None, SMALL_VLM, *WHOLE_TYPES}:
        message = (
            f"{training.file}: the model {name} is of type {kind}, which cannot be trained here; "
            f"types that can are {', '.join(WHOLE_TYPES)}"
        )
        raise InputError(message)
    return name if Path(name or "").exists() else str(folder)


def model_type(folder: Path) -> str | None:
    """Return the type of a model by its config.json; None if it has none."""
    with suppress(OSError, ValueError, RecursionError):
        values = json.loads(read_bytes(folder / "config.json"))
        kind = values.get("model_type") if isinstance(values, dict) else None
        return None if kind is None else str(kind)
    return None


def _places(reference: DataReference, training: ForeignTraining) -> list[_Place]:
    """Return where a data set is, or those of a list that it names."""
    if reference.is_in_list:
        return [_listed_place(reference, training)]
    path = near_path(Path(reference.path), training.file)
    if path is not None and path.suffix in {".yaml", ".yml"}:
        return _yaml_places(reference, path, training)
    if path is None:
        return [_Place(reference=reference, path=_downloaded(reference))]
    return [_Place(reference=reference, path=path)]


def _listed_place(reference: DataReference, training: ForeignTraining) -> _Place:
    folder, _, name = reference.path.partition("::")
    place = near_path(Path(folder) / NAME_OF_LIST, training.file)
    listed: list[ListedSet] | None = None
    with suppress(OSError):
        listed = None if place is None else read_data_sets(place)
    found = next((each for each in listed or () if each.name == name), None)
    if found is None or place is None or found.manifest is None:
        reference = replace(reference, hub_name=_hub_name(place, name))
        return _Place(reference=reference, path=_downloaded(reference))
    if found.problem:
        return _Place(reference=reference, path=None, problem=found.problem)
    return _Place(reference=reference, path=Path(f"{place.parent}::{name}"))


def _yaml_places(reference: DataReference, path: Path, training: ForeignTraining) -> list[_Place]:
    """Return the data sets of a file of LLaMA-Factory's version 1: `path` by name."""
    values: Any = None
    with suppress(OSError, ValueError, yaml.YAMLError):
        values = yaml.safe_load(read_text(path))
    places = []
    for name, entry in (values if isinstance(values, dict) else {}).items():
        if isinstance(entry, dict) and entry.get("path"):
            path_or_name = str(entry["path"])
            each = DataReference(
                key=reference.key, name=str(name), path=path_or_name, hub_name=path_or_name
            )
            places += _places(each, training)
    if not places:
        problem = f"{path} lists no data set with a `path`"
        return [_Place(reference=reference, path=None, problem=problem)]
    return places


def _hub_name(list_of_sets: Path | None, name: str) -> str | None:
    """Return the name on the Hugging Face hub that a list gives for a data set."""
    with suppress(OSError, ValueError, RecursionError, TypeError, KeyError):
        if list_of_sets is not None:
            return str(json.loads(read_bytes(list_of_sets))[name]["hf_hub_url"])
    return None


def _awaited(reference: DataReference) -> Path:
    """Return where a data set is expected that is not here."""
    name = reference.hub_name or reference.path.rpartition("::")[2]
    return Path.cwd() / _DOWNLOADS / name.rstrip("/").rpartition("/")[2]


def _downloaded(reference: DataReference) -> Path | None:
    place = _awaited(reference)
    return place if place != Path.cwd() / _DOWNLOADS and place.exists() else None


def _held_out(training: ForeignTraining) -> Path | None:
    for name in training.words("held_out_data"):
        path = near_path(Path(name), training.file)
        if path is not None:
            return path
        folder = training.text("data_folder") or "data"
        reference = DataReference(key="", name=name, path=f"{folder}::{name}", is_in_list=True)
        found = _listed_place(reference, training).path
        if found is not None:
            return found
    return None


def run_name(output_dir: str | None) -> str | None:
    """Return a name for the spec from the folder that another tool writes to; None without one."""
    if output_dir is None:
        return None
    parts = [part for part in output_dir.split("/") if part not in {"", ".", ".."}]
    common = [place for place, part in enumerate(parts) if part.lower() in _COMMON]
    named = parts[common[-1] + 1 :] if common else parts[-1:]
    name = _NO_NAME.sub("-", "-".join(named))[:_MAX_NAME].strip("-.")
    with suppress(ValueError):
        check_run_name(name)
        return name
    return None
