"""Writer of a first spec and a cluster profile, from facts about cluster, data and model."""

from __future__ import annotations

import itertools
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import yaml

from slurm_jobs.base.errors import FileError, InputError
from slurm_jobs.base.files import write_bytes_atomic
from slurm_jobs.base.regular_files import read_bytes, read_text
from slurm_jobs.base.shipped_files import shipped_path, shipped_text
from slurm_jobs.base.units import number_of
from slurm_jobs.base.written_values import printable
from slurm_jobs.commands.spec_reading import header_sizes
from slurm_jobs.commands.spec_reading.disk_files import disk_files
from slurm_jobs.commands.starter import data_inspection as data_files
from slurm_jobs.commands.starter import model_inspection
from slurm_jobs.commands.starter.commented_profile import profile_text
from slurm_jobs.commands.starter.gpu_choice import gpu_lines
from slurm_jobs.commands.starter.images import image_folder
from slurm_jobs.commands.starter.images.archive_members import archive_note
from slurm_jobs.commands.starter.images.image_root import find_image_root
from slurm_jobs.commands.starter.sample_lengths import choose_lengths
from slurm_jobs.commands.starter.shipped_recipes import ALL, helper_files, recipe_text, stages_of
from slurm_jobs.commands.starter.spec_changes import (
    fitting_changes,
    own_changes,
    with_download,
    with_few_rows,
    with_lengths,
)
from slurm_jobs.commands.starter.starter_facts import Data, JobPlace
from slurm_jobs.formats.expand import literal_path
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.row_sizes import RowSize, measure, pick_rows, spread
from slurm_jobs.spec.checks.data.manifests import unreadable
from slurm_jobs.spec.overrides.text_edits import edit_text

_CLUSTER = re.compile(r"^cluster:.*$", re.MULTILINE)


_Inspected = tuple[Data, dict[str, bytes], list[RowSize], list[str]]
_NO_PILLOW = "image sizes were not read: this Python has no Pillow (slurm-jobs[train] brings it)"
_ONLY_NAMED = "other files there are read only if a row names them"
_MEASURED = frozenset({".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff"})
"""Suffixes of formats whose header has the size; the job measures others."""
_MOST_CLASSES = 3
"""Names of folders that are shown."""
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
    image_root: Path | None = None
    """Folder that the paths of images in the manifest start from; None: `init` searches for it."""
    is_replacing: bool = False
    """True if files with other content are moved aside instead of being an error."""
    model: str = model_inspection.DEFAULT_MODEL
    recipe: str | None = None
    named: Mapping[str, str] = field(default_factory=dict)
    """Values of the options that are for the profile."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenSpec:
    """Written files."""

    spec: Path
    files: tuple[Path, ...]
    """All files, including the spec."""
    kept: tuple[Path, ...] = ()
    """Files that existed and are kept, because they are correct."""
    said: tuple[str, ...] = ()
    """Messages about findings, choices and changes."""


def begin(request: Request, place: JobPlace) -> WrittenSpec:
    """Write the files; never replace one with other content.

    Raises:
        InputError: such a file exists, or data, model or recipe cannot be used.
        FileError: something cannot be written.
    """
    profile = f"clusters/{_NO_NAME.sub('-', place.name) or 'cluster'}.yaml"
    texts: dict[str, bytes] = {}
    notes: list[str] = []
    if request.recipe == ALL:  # everything that ships: profiles, modules, accelerate configs
        spec = "demo.yaml"
        accelerate = shipped_path("templates", "accelerate")
        for source, prefix in ((shipped_path("configs"), ""), (accelerate, "accelerate/")):
            for path in source.rglob("*"):
                if path.suffix in {".yaml", ".py"}:
                    texts[f"{prefix}{path.relative_to(source)}"] = path.read_bytes()
        for name, content in texts.items():
            if name.endswith(".yaml") and "/" not in name:
                text, changes = _fitted(content.decode(), place, profile)
                texts[name] = text.encode()
                notes += [f"{name}: {change}" for change in changes]
    else:
        if request.recipe is not None or request.data is None:
            recipe = request.recipe or "demo"
            spec = f"{request.name or recipe}.yaml"
            text, notes = _fitted(recipe_text(recipe), place, profile)
            if request.name is not None:
                text = edit_text(text, [(("name",), request.name)])
        else:
            spec = f"{request.name or 'finetune'}.yaml"
            path = data_files.expanded(request.data)
            text, texts, notes = _own(request, path, place, profile)
        modules = {name: path.read_bytes() for name, path in helper_files(text).items()}
        texts = {**modules, **texts, spec: text.encode()}
    profile_file = request.folder / profile
    if profile_file.exists():  # may contain the group's additions
        _refuse_without_effect(request.named, profile_file)
        texts.pop(profile, None)
        notes.append(f"{profile} exists, and is kept")
    elif profile not in texts:
        now = time.strftime("%Y-%m-%d")
        texts[profile] = profile_text(place, date=now, python=sys.executable).encode()
    written, kept, moved = _write(request.folder, texts, is_replacing=request.is_replacing)
    notes += [f"kept the old {path.name} as {old.name}" for path, old in moved.items()]
    return WrittenSpec(
        spec=request.folder / spec, files=written, kept=kept, said=(*gpu_lines(place), *notes)
    )


def _refuse_without_effect(named: Mapping[str, str], profile: Path) -> None:
    """Raise if the user sets an option that the existing profile does not have."""
    try:
        values = yaml.safe_load(read_text(profile, errors="replace"))
    except (yaml.YAMLError, ValueError, RecursionError):  # a date that is invalid, too
        values = None
    mapping = values if isinstance(values, dict) else {}
    sections = [mapping.get(key) for key in ("slurm", "gpu_slurm")]
    lost = []
    for option, value in named.items():
        key = option.removeprefix("--")
        if not any(isinstance(s, dict) and str(s.get(key)) == value for s in sections):
            lost.append(f"{option} {value}")
    if lost:
        message = (
            f"{profile} exists already, and is not replaced: {', '.join(lost)} would have no "
            "effect. Add it to the file yourself, or move the file away"
        )
        raise InputError(message)


def _own(
    request: Request, path: Path, place: JobPlace, profile: str
) -> tuple[str, dict[str, bytes], list[str]]:
    """Return a spec for a user's data, the manifests to write, and notes."""
    text = shipped_text("templates", "starter", "finetune.yaml")
    name = request.name or "finetune"
    data, manifests, rows, notes = _inspect_data(path, request, name)
    model = model_inspection.inspect_weights(
        request.model, as_named=_as_named(Path(request.model), request.folder)
    )
    lengths = choose_lengths(rows, model_inspection.image_rules(request.model))
    text = with_few_rows(with_lengths(text, lengths), data)
    notes += lengths.notes
    if model.is_on_hub:
        text = with_download(text)
        notes.append(f"model: {model.name}, which the stage `models` downloads on a node")
        if model.name != model_inspection.DEFAULT_MODEL:
            notes.append(f"note: {model_inspection.hub_note(model.name)}")
    if place.gpu is None:
        notes.append(f"{_without_gpus('train', place)}, so the spec trains on CPU cores")
    text = edit_text(text, own_changes(name, profile, data, model, place))
    text, changes = _with_fitting_resources(text, place)
    return text, manifests, [*notes, *changes]


def _fitted(text: str, place: JobPlace, profile: str) -> tuple[str, list[str]]:
    """Return a recipe with this cluster's profile, and resources within what it has."""
    text = _CLUSTER.sub(lambda _line: f"cluster: {profile}", text, count=1)
    stages = stages_of(text)
    text, notes = _with_fitting_resources(text, place)
    on_gpus = [n for n, stage in stages.items() if stage.get("resources", {}).get("gpus_per_node")]
    if on_gpus and place.gpu is None:
        notes.append(_without_gpus(", ".join(on_gpus), place))
    return text, notes


def _without_gpus(stages: str, place: JobPlace) -> str:
    none = (
        "you have none here (`sinfo -o '%P %G'`)" if place.is_slurm else "this machine shows none"
    )
    return f"{stages} is meant for GPUs, and {none}"


def _with_fitting_resources(text: str, place: JobPlace) -> tuple[str, list[str]]:
    changes = list(fitting_changes(stages_of(text), place))
    notes = []
    for path, resources in changes:
        resources_text = ", ".join(f"{key} {value}" for key, value in resources.items())
        notes.append(f"{path[1]} asks for what this cluster has: {resources_text}")
    return edit_text(text, changes), notes


def _inspect_data(path: Path, request: Request, name: str) -> _Inspected:
    """Return the data, manifests to write, sizes, and notes on them."""
    folder, image_root = request.folder, request.image_root
    if data_files.is_image_folder(path):
        manifest, held_out = image_folder.metadata_files(path)
        if manifest is None or data_files.captions_win(path, manifest):
            if image_root is not None:
                message = f"--image-root is for a manifest, and {path} is a folder of images"
                raise InputError(message)
            image_data = image_folder.read_image_folder(path)
            num_rows = len(image_data.train.files)
            data = Data(
                manifest=f"{name}.jsonl", image_root=_as_named(path, folder), num_rows=num_rows
            )
            texts = {f"{name}.jsonl": image_data.train.manifest(path).encode()}
            texts_of = _texts_of(image_data.classes)
            lines = [f"data: {number_of('image', num_rows)} of {path}{texts_of}"]
            if image_data.evaluation is not None:
                data = replace(data, evaluation=f"{name}-heldout.jsonl")
                texts[f"{name}-heldout.jsonl"] = image_data.evaluation.manifest(path).encode()
                lines.append(f"evaluation: {number_of('image', len(image_data.evaluation.files))}")
            rows, unread = _row_sizes(image_data.train)
            return data, texts, rows, [*lines, *image_data.notes, *unread]
        data = data_files.inspect_data(manifest, as_named=_as_named(manifest, folder))
        _refuse_unreadable(manifest, "train on")
        lines = [f"data: {manifest}, the list of {path}; {_ONLY_NAMED}"]
        if held_out is not None:
            _refuse_unreadable(held_out, "evaluate on")
            lines.append(f"evaluation: {held_out}")
            data = replace(data, evaluation=_as_named(held_out, folder))
        data, rows, unread = _listed_sizes(manifest, data, image_root, folder)
        return data, {}, rows, [*lines, *unread]
    data = data_files.inspect_data(path, as_named=_as_named(path, folder))
    _refuse_unreadable(path, "train on")
    data, rows, unread = _listed_sizes(path, data, image_root, folder)
    column = data_files.class_column_of(path)
    if column is not None:
        data = replace(data, text_column=column)
        unread.append(f"the names of the classes in `{column}` are the answers")
    held_out = data_files.held_out_split(path)
    if held_out is not None:
        _refuse_unreadable(held_out, "evaluate on")
        data = replace(data, evaluation=_as_named(held_out, folder))
        unread.insert(0, f"evaluation: {held_out}")
    line = f"data: {path}; its rows were not counted"
    if data.num_rows is not None:
        about = "" if data.is_exact or data.num_rows == 1 else "about "
        line = f"data: {path}, {about}{number_of('row', data.num_rows)}"
    if path.is_dir():
        line += f", from its table; {_ONLY_NAMED}"
        note = archive_note(path)
        unread += [] if note is None else [note]
    return data, {}, rows, [line, *unread]


def _texts_of(classes: Sequence[str]) -> str:
    """Return what the texts of a folder's images are."""
    if not classes:
        return " with their words"
    names = ", ".join(printable(name) for name in classes[:_MOST_CLASSES])
    more = ", ..." if len(classes) > _MOST_CLASSES else ""
    return f"; their texts are the names of their folders ({names}{more})"


def _refuse_unreadable(manifest: Path, verb: str) -> None:
    """Raise InputError for content that no change of the spec makes readable."""
    problem = unreadable(str(manifest.absolute()), verb, disk_files(), RowOptions())
    if problem:
        message = f"{manifest}{problem}"
        raise InputError(message)


def _listed_sizes(
    manifest: Path, data: Data, image_root: Path | None, folder: Path
) -> tuple[Data, list[RowSize], list[str]]:
    """Return the data with its image_root, the sizes of the first rows of a manifest, and notes."""
    files, manifest = disk_files(), data_files.expanded(manifest).absolute()
    rows = [row for row in files.first_rows(str(manifest), RowOptions()) if not row.problem]
    has_images = any(row.images for row in rows)
    root, notes = files.image_root_of(str(manifest)), []
    if image_root is None:
        image_root = find_image_root(Path(root), rows)
        if image_root is not None:
            as_named = printable(str(image_root))
            notes.append(f"image_root: {as_named}, where the images of the rows are")
    if image_root is not None:
        data = replace(data, image_root=_as_named(image_root, folder))
        root = str(data_files.expanded(image_root).absolute())
    if has_images and not header_sizes.can_read_sizes():
        return data, [], [*notes, _NO_PILLOW]
    most = header_sizes.MAX_HEADERS
    picked = pick_rows(rows, most)
    measured: list[RowSize] = []
    unread = []
    for row in picked:
        size = measure(row, lambda image: header_sizes.size_of(image, root), most=most)
        if size is None:
            unread.append(row)
        else:
            measured.append(size)
    if unread:
        notes.append(
            f"the images of {len(unread):,} of {len(picked):,} rows could not be measured; the "
            f"first is {unread[0].origin}: {printable(unread[0].images[0].value)}"
        )
    is_known = not has_images or any(row.images for row in measured)
    return data, measured if is_known else [], notes


def _row_sizes(rows: image_folder.Rows) -> tuple[list[RowSize], list[str]]:
    """Return the sizes of at most 1,000 rows, and notes on unreadable images."""
    if not header_sizes.can_read_sizes():
        return [], [_NO_PILLOW]
    measured, unread = [], []
    places = spread(len(rows.files), header_sizes.MAX_HEADERS)
    for file, words in ((rows.files[place], rows.words[place]) for place in places):
        size = header_sizes.read_size(file)
        if size is None:
            unread.append(file)
        else:
            measured.append(RowSize(images=(size,), num_text_bytes=len(words.encode())))
    if not unread:
        return measured, []
    first = printable(str(unread[0]))
    if not measured and all(file.suffix.lower() in _MEASURED for file in unread):
        note = (
            f"no image could be opened: {number_of('file', len(unread))} tried, the first is "
            f"{first}; a run would reject these rows, so check the files first"
        )
        return [], [note]
    tried = len(measured) + len(unread)
    note = f"{len(unread):,} of {tried:,} images could not be measured; the first is {first}"
    return measured, [note]


def _as_named(path: Path, folder: Path) -> str:
    """Return the path relative to the spec's folder if both are below the working folder.

    Otherwise it is absolute.
    """
    whole = data_files.expanded(path).absolute()
    here = Path.cwd()
    if whole.is_relative_to(here) and folder.absolute().is_relative_to(here):
        return literal_path(os.path.relpath(whole, folder.absolute()))
    return literal_path(str(whole))


def _write(
    folder: Path, texts: dict[str, bytes], *, is_replacing: bool
) -> tuple[tuple[Path, ...], tuple[Path, ...], dict[Path, Path]]:
    """Write the missing files, after checking all.

    Returns:
        The written files, those that were right already, and the new names of those moved aside.
    """
    moved: dict[Path, Path] = {}
    try:
        present: dict[str, bytes] = {}
        for name in sorted(texts):
            with suppress(FileNotFoundError):
                present[name] = read_bytes(folder / name)
        other = [name for name, content in present.items() if content != texts[name]]
        if other and not is_replacing:
            message = (
                f"{folder} has other files of these names: {', '.join(other)}. Give --replace to "
                "write new ones, which keeps the old ones under another name; or name another "
                "folder, or another spec with --name"
            )
            raise InputError(message)
        for name in other:
            old = _free_name(folder / name)
            (folder / name).rename(old)
            moved[folder / name] = old
            del present[name]
        new = [name for name in sorted(texts) if name not in present]
        for name in new:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_bytes_atomic(folder / name, texts[name])
    except OSError as error:
        message = f"cannot write {error.filename or folder}: {error.strerror}"
        raise FileError(message) from error
    return tuple(folder / name for name in new), tuple(folder / name for name in present), moved


def _free_name(path: Path) -> Path:
    """Return the first of `NAME.old`, `NAME.old2`, ... that does not exist."""
    for number in itertools.count(1):
        old = path.with_name(f"{path.name}.old{number if number > 1 else ''}")
        if not os.path.lexists(old):
            return old
    raise AssertionError
