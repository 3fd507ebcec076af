"""Writer of a first spec and a cluster profile, from facts about cluster, data and model."""

from __future__ import annotations

import math
import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from slurm_jobs.common.errors import FileError, InputError
from slurm_jobs.common.files import write_bytes_atomic
from slurm_jobs.common.manifests.values import RowOptions
from slurm_jobs.common.path_expansion import literal_path
from slurm_jobs.common.row_sizes import RowSize, measure, pick_rows, spread
from slurm_jobs.operations import image_sizes
from slurm_jobs.operations.disk import disk_files
from slurm_jobs.report.words import number_of
from slurm_jobs.shipped import shipped_path
from slurm_jobs.spec.editing import edit_text
from slurm_jobs.spec.plain_text import printable
from slurm_jobs.starter import data as data_files
from slurm_jobs.starter import image_folder, recipes, weights
from slurm_jobs.starter.changes import (
    Change,
    fitting_changes,
    gpu_stages,
    own_changes,
    with_download,
    with_lengths,
)
from slurm_jobs.starter.lengths import choose_lengths
from slurm_jobs.starter.model import Data, Place, Room
from slurm_jobs.starter.profile_text import profile_options, profile_text

_Seen = tuple[Data, dict[str, bytes], list[RowSize], list[str]]
_NO_PILLOW = "image sizes were not read: this Python has no Pillow (slurm-jobs[train] brings it)"
NONE_READ = "no image could be opened"
"""Prefix of the note that no image could be read, which is printed last."""
_MEASURED = frozenset({".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"})
"""Suffixes of formats whose header has the size; the job measures others."""
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """User's choice of a start: own data, or a recipe."""

    folder: Path
    """Folder for the files."""
    name: str | None = None
    """Name of the spec and its runs; without it, the recipe's name or `finetune`."""
    data: Path | None = None
    """A manifest, or a folder of images."""
    model: str = weights.DEFAULT_MODEL
    recipe: str | None = None
    named: Mapping[str, str] = field(default_factory=dict)
    """Values of the options that are for the profile."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Begun:
    """Written files."""

    spec: Path
    files: tuple[Path, ...]
    """All files, including the spec."""
    kept: tuple[Path, ...] = ()
    """Files that existed and are kept, because they are correct."""
    said: tuple[str, ...] = ()
    """Messages about findings, choices and changes."""


def begin(request: Request, place: Place) -> Begun:
    """Write the files; never replace one with other content.

    Raises:
        InputError: such a file is there, or data, model or recipe are none.
        FileError: something cannot be written.
    """
    profile = f"clusters/{_NO_NAME.sub('-', place.name) or 'cluster'}.yaml"
    if request.recipe == recipes.ALL:
        texts, said = _everything(place, profile)
        spec = "demo.yaml"
    elif request.recipe is not None or request.data is None:
        name = request.recipe or "demo"
        spec = f"{request.name or name}.yaml"
        texts, said = _recipe(name, spec, request.name, place, profile)
    else:
        spec = f"{request.name or 'finetune'}.yaml"
        texts, said = _own(request, data_files.expanded(request.data), place, profile)
    now = time.strftime("%Y-%m-%d")
    kept_profile = (request.folder / profile).exists()
    if kept_profile:
        _refuse_without_effect(request.named, request.folder / profile)
    texts.setdefault(profile, profile_text(place, date=now, python=sys.executable).encode())
    if kept_profile:  # may contain the group's additions
        texts.pop(profile)
        said.append(f"{profile} exists, and is kept")
    written, kept = _write(request.folder, texts)
    return Begun(spec=request.folder / spec, files=written, kept=kept, said=tuple(said))


def _refuse_without_effect(named: Mapping[str, str], profile: Path) -> None:
    """Raise if the user sets an option that the existing profile does not have."""
    text = profile.read_text(encoding="utf-8", errors="replace")
    has = profile_options(text)
    lost = [f"{option} {value}" for option, value in named.items() if value not in has[option]]
    if lost:
        message = (
            f"{profile} is there already, and is not replaced: {', '.join(lost)} would have no "
            "effect. Write it there yourself, or move the file away"
        )
        raise InputError(message)


def _everything(place: Place, profile: str) -> tuple[dict[str, bytes], list[str]]:
    texts: dict[str, bytes] = {}
    said: list[str] = []
    for name, path in recipes.everything().items():
        texts[name] = path.read_bytes()
        if path.suffix == ".yaml" and "/" not in name:
            text, changed = _fitted(texts[name].decode(), place, profile)
            texts[name] = text.encode()
            said += [f"{name}: {one}" for one in changed]
    return texts, said


def _recipe(
    recipe: str, spec: str, name: str | None, place: Place, profile: str
) -> tuple[dict[str, bytes], list[str]]:
    text, said = _fitted(recipes.recipe_text(recipe), place, profile)
    if name is not None:
        text = edit_text(text, [(("name",), name)])
    modules = {file: path.read_bytes() for file, path in recipes.helper_files(text).items()}
    return {**modules, spec: text.encode()}, said


def _fitted(text: str, place: Place, profile: str) -> tuple[str, list[str]]:
    """Return a recipe with this cluster's profile, and resources within what it has."""
    text = recipes.on_cluster(text, profile)
    stages = recipes.stages_of(text)
    changes = list(fitting_changes(stages, place))
    said = [_change_text(change) for change in changes]
    needing = gpu_stages(stages)
    if needing and place.gpu is None:
        said.append(
            f"{', '.join(needing)} asks for GPUs, but you have none here: see `sinfo -o '%P %G'`"
            if place.is_slurm
            else f"{', '.join(needing)} is meant for GPUs, and this machine shows none"
        )
    return edit_text(text, changes), said


def _change_text(change: Change) -> str:
    path, value = change
    asked = ", ".join(f"{key} {item}" for key, item in value.items())
    return f"{path[1]} asks for what this cluster has: {asked}"


def _own(
    request: Request, path: Path, place: Place, profile: str
) -> tuple[dict[str, bytes], list[str]]:
    text = shipped_path("templates", "starter", "finetune.yaml").read_text(encoding="utf-8")
    name = request.name or "finetune"
    data, manifest, rows, said = _look_at_data(path, request.folder, name)
    model = weights.look_at(request.model, as_named=_as_named(Path(request.model), request.folder))
    lengths = choose_lengths(rows, weights.image_rules(request.model))
    said += lengths.notes
    text = with_lengths(text, lengths)
    if model.is_on_hub:
        text = with_download(text)
        said.append(f"model: {model.name}, which the stage `models` downloads on a node")
    text = edit_text(text, own_changes(name, profile, data, model, place))
    changes = list(fitting_changes(recipes.stages_of(text), place))
    said += [_change_text(change) for change in changes]
    text = edit_text(text, changes)
    modules = {file: p.read_bytes() for file, p in recipes.helper_files(text).items()}
    return {**modules, **manifest, f"{name}.yaml": text.encode()}, said


def _look_at_data(path: Path, folder: Path, name: str) -> _Seen:
    """Return the data, manifests to write, sizes, and notes on them."""
    if data_files.is_image_folder(path):
        manifest, held_out = image_folder.metadata_files(path)
        if manifest is None:
            return _captioned(path, folder, name)
        data = data_files.look_at(manifest, as_named=_as_named(manifest, folder))
        said = [f"data: {manifest}, the list of {path}; other files there are not read"]
        if held_out is not None:
            said.append(f"evaluation: {held_out}")
            data = replace(data, evaluation=_as_named(held_out, folder))
        rows, unread = _listed_sizes(manifest)
        return data, {}, rows, [*said, *unread]
    data = data_files.look_at(path, as_named=_as_named(path, folder))
    rows, unread = _listed_sizes(path)
    if data.num_rows is None:
        return data, {}, rows, [f"data: {path}; its rows were not counted", *unread]
    about = "" if data.is_exact else "about "
    return data, {}, rows, [f"data: {path}, {about}{data.num_rows:,} rows", *unread]


def _captioned(path: Path, folder: Path, name: str) -> _Seen:
    """Return the data of a folder of images, and a manifest of those trained on and evaluated."""
    found = image_folder.read_image_folder(path)
    num_rows = len(found.train.files)
    data = Data(manifest=f"{name}.csv", image_root=_as_named(path, folder), num_rows=num_rows)
    texts = {f"{name}.csv": found.train.manifest(path).encode()}
    said = [f"data: {number_of('image', num_rows)} of {path} with their words"]
    if found.evaluation is not None:
        data = replace(data, evaluation=f"{name}-heldout.csv")
        texts[f"{name}-heldout.csv"] = found.evaluation.manifest(path).encode()
        said.append(f"evaluation: {number_of('image', len(found.evaluation.files))}")
    rows, unread = _row_sizes(found.train)
    return data, texts, rows, [*said, *found.notes, *unread]


def _listed_sizes(manifest: Path) -> tuple[list[RowSize], list[str]]:
    """Return the sizes of the first rows of a manifest, and notes on those not measured."""
    files, manifest = disk_files(), data_files.expanded(manifest).absolute()
    rows = [row for row in files.first_rows(str(manifest), RowOptions()) if not row.problem]
    if not any(row.images for row in rows):
        return [], []
    if not image_sizes.can_read_sizes():
        return [], [_NO_PILLOW]
    picked = pick_rows(rows, image_sizes.MAX_HEADERS)
    sizes = [
        measure(
            row,
            lambda image: image_sizes.size_of(image, files.image_root_of(str(manifest))),
            most=image_sizes.MAX_HEADERS,
        )
        for row in picked
    ]
    measured = [size for size in sizes if size is not None]
    unread = [row for row, size in zip(picked, sizes, strict=True) if size is None]
    notes = []
    if unread:
        notes.append(
            f"the images of {len(unread):,} of {len(sizes):,} rows could not be measured; the "
            f"first is {unread[0].origin}: {printable(unread[0].images[0].value)}"
        )
    return measured if any(row.images for row in measured) else [], notes


def _row_sizes(rows: image_folder.Rows) -> tuple[list[RowSize], list[str]]:
    """Return the sizes of at most 1,000 rows, and notes on unreadable images."""
    if not image_sizes.can_read_sizes():
        return [], [_NO_PILLOW]
    places = spread(len(rows.files), image_sizes.MAX_HEADERS)
    sizes = [image_sizes.read_size(rows.files[place]) for place in places]
    measured = [
        RowSize(images=(size,), num_text_bytes=len(rows.words[place].encode()))
        for place, size in zip(places, sizes, strict=True)
        if size is not None
    ]
    unread = [rows.files[place] for place, size in zip(places, sizes, strict=True) if size is None]
    if not unread:
        return measured, []
    first = printable(str(unread[0]))
    if not measured and all(file.suffix.lower() in _MEASURED for file in unread):
        return [], [f"{NONE_READ}: {number_of('file', len(sizes))} tried, the first is {first}"]
    return measured, [
        f"{len(unread):,} of {len(sizes):,} images could not be measured; the first is {first}"
    ]


def _as_named(path: Path, folder: Path) -> str:
    """Return the path relative to the spec's folder if both are below the working folder.

    Otherwise it is absolute.
    """
    whole = data_files.expanded(path).absolute()
    here = Path.cwd()
    if whole.is_relative_to(here) and folder.absolute().is_relative_to(here):
        return literal_path(os.path.relpath(whole, folder.absolute()))
    return literal_path(str(whole))


def _write(folder: Path, texts: dict[str, bytes]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Write the missing files, after checking all."""
    try:
        present = {name: _content(folder / name) for name in sorted(texts)}
        other = [name for name, found in present.items() if found not in {None, texts[name]}]
        if other:
            message = (
                f"{folder} holds {', '.join(other)} already; name another folder, or another spec "
                "by --name, or move them away"
            )
            raise InputError(message)
        for name in (name for name, found in present.items() if found is None):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_bytes_atomic(folder / name, texts[name])
    except OSError as error:
        message = f"cannot write {error.filename or folder}: {error.strerror}"
        raise FileError(message) from error
    new = tuple(folder / name for name, found in present.items() if found is None)
    return new, tuple(folder / name for name, found in present.items() if found is not None)


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None


def room_text(room: Room) -> str:
    """Return `partition gpu: 2 nodes of 8 cores, 15 GB, 4 x a100, at most 24 h a job`."""
    where = f"partition {room.partition}: " if room.partition else "this machine: "
    nodes = (
        f"{room.num_nodes} node{'' if room.num_nodes == 1 else 's'} of " if room.partition else ""
    )
    mem = "" if math.isinf(room.mem_gb) else f", {room.mem_gb:.0f} GB"
    gpus = f", {room.gpus} x {room.gpu_type or 'GPU'}" if room.gpus else ""
    limit = f", at most {room.max_time_min / 60:g} h a job" if room.max_time_min else ""
    return f"{where}{nodes}{room.cpus} core{'' if room.cpus == 1 else 's'}{mem}{gpus}{limit}"
