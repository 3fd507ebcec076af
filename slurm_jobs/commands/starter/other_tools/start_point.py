"""Model, data and name with which a training of another tool begins, as `init` takes them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from slurm_jobs.base.errors import InputError
from slurm_jobs.base.regular_files import read_bytes, read_text
from slurm_jobs.commands.starter.other_tools.foreign_training import ForeignTraining
from slurm_jobs.commands.starter.other_tools.mixed_sets import with_weights
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
class StartData:
    """Data set of another tool's training that is here."""

    path: Path
    """As `--data` takes it."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Names of columns by our keys, where the file gives them."""
    proportion: Mapping[str, Any] = field(default_factory=dict)
    """Share of all samples that the file gives it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AwaitedData:
    """Data set of another tool's training that is not here yet."""

    path: Path
    """Place where it is expected."""
    download: str = ""
    """Command that brings it there; empty if it is on no hub."""
    proportion: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class StartPoint:
    """Model, data and name of another tool's file, with which `init` begins."""

    training: ForeignTraining
    model: str | None
    """Folder, or name on a hub."""
    data: tuple[StartData, ...] = ()
    """Data sets that are here, and trained on together."""
    awaited: AwaitedData | None = None
    """The data set to bring here, if none is."""
    left_out: tuple[str, ...] = ()
    """Further data sets that the file names, with the reason in brackets."""
    image_root: Path | None = None
    held_out: tuple[Path, ...] = ()
    """Held-out rows that are here."""
    name: str | None = None


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
        return StartPoint(training=training, model=model, name=name)
    values = {setting.key: setting.value for setting in training.settings}
    references = training.tool.data_sets(values)
    if not references:
        message = (
            f"{training.file} names no data set that can be read here: give one with `--data PATH`"
        )
        raise InputError(message)
    references = with_weights(references, training)
    places = [place for each in references for place in _places(each, training)]
    data = _start_data(places)
    problems = [place for place in places if place.problem]
    if len(problems) == len(places):
        first = problems[0]
        message = (
            f"{training.file}: data set {first.reference.name} cannot be read: {first.problem}; "
            "name other data with `--data PATH`"
        )
        raise InputError(message)
    awaited = None if data else next(place for place in places if not place.problem)
    folder = training.text("image_folder")
    images = None if folder is None else near_path(Path(folder), training.file)
    return StartPoint(
        training=training,
        model=model,
        data=data,
        awaited=None if awaited is None else _awaited_data(awaited.reference, training),
        left_out=tuple(
            _left_out(place, training)
            for place in places
            if place.path is None and place is not awaited
        ),
        image_root=images,
        held_out=_held_out(training),
        name=name,
    )


def _start_data(places: Sequence[_Place]) -> tuple[StartData, ...]:
    """Return the data sets that are here; a single one needs no weight."""
    here = []
    for place in places:
        if place.path is not None:
            reference = place.reference
            here.append(
                StartData(
                    path=place.path, columns=reference.columns, proportion=reference.proportion
                )
            )
    if len(here) == 1 and "weight" in here[0].proportion:
        here = [replace(here[0], proportion={})]
    return tuple(here)


def _awaited_data(reference: DataReference, training: ForeignTraining) -> AwaitedData:
    path, download = _awaited(reference), ""
    if reference.hub_name is not None and _ON_HUB.fullmatch(reference.hub_name):
        command = reference.download or training.tool.download
        download = command.format(name=reference.hub_name, folder=path.relative_to(Path.cwd()))
    proportion = {} if "weight" in reference.proportion else reference.proportion
    return AwaitedData(path=path, download=download, proportion=proportion)


def _left_out(place: _Place, training: ForeignTraining) -> str:
    reason = place.problem
    if not reason:
        download = _awaited_data(place.reference, training).download
        reason = f"not here; `{download}`" if download else "not here"
    return f"{place.reference.name} ({reason})"


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
                key=reference.key,
                name=str(name),
                path=path_or_name,
                hub_name=path_or_name,
                proportion=_drawn(entry),
            )
            places += _places(each, training)
    if not places:
        problem = f"{path} lists no data set with a `path`"
        return [_Place(reference=reference, path=None, problem=problem)]
    return places


def _drawn(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the share of a data set of version 1: `size` rows are drawn, `weight` times."""
    size, weight = entry.get("size"), entry.get("weight")
    copies = weight if isinstance(weight, int | float) and weight > 0 else 1
    if isinstance(size, int) and size > 0:
        return {"num_samples": max(1, int(size * copies))}
    return {} if copies == 1 else {"repeat": copies}


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


def _held_out(training: ForeignTraining) -> tuple[Path, ...]:
    folder = training.text("data_folder") or "data"
    found = []
    for name in training.words("held_out_data"):
        path = near_path(Path(name), training.file)
        if path is None:
            reference = DataReference(key="", name=name, path=f"{folder}::{name}", is_in_list=True)
            path = _listed_place(reference, training).path
        if path is not None:
            found.append(path)
    return tuple(found)


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
