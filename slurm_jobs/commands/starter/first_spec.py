"""Writer of a first spec and a cluster profile, from facts about cluster, data and model."""

from __future__ import annotations

import itertools
import os
import re
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from slurm_jobs.base.errors import FileError, InputError
from slurm_jobs.base.files import write_bytes_atomic
from slurm_jobs.base.regular_files import read_bytes, read_text
from slurm_jobs.base.shipped_files import shipped_path, shipped_text
from slurm_jobs.commands.starter import data_inspection as data_files
from slurm_jobs.commands.starter import model_inspection
from slurm_jobs.commands.starter.commented_profile import profile_text
from slurm_jobs.commands.starter.gpu_choice import gpu_lines
from slurm_jobs.commands.starter.joined_data import joined_data
from slurm_jobs.commands.starter.listed_data import all_listed
from slurm_jobs.commands.starter.other_tools.account import AccountRow, markdown
from slurm_jobs.commands.starter.other_tools.start_point import StartPoint, model_type
from slurm_jobs.commands.starter.sample_lengths import choose_lengths
from slurm_jobs.commands.starter.shipped_recipes import ALL, helper_files, recipe_text, stages_of
from slurm_jobs.commands.starter.spec_changes import (
    fitting_changes,
    own_changes,
    with_download,
    with_few_rows,
    with_lengths,
    without_share,
)
from slurm_jobs.commands.starter.starter_facts import JobPlace
from slurm_jobs.commands.starter.training_data import FoundData, TrainingDataSearch, as_named
from slurm_jobs.commands.starter.translation.translated_data import find_translated_data
from slurm_jobs.commands.starter.translation.translated_spec import (
    keys_file,
    translate,
    translated_text,
)
from slurm_jobs.commands.starter.translation.translation import StartFacts
from slurm_jobs.spec.overrides.text_edits import edit_text

_CLUSTER = re.compile(r"^cluster:.*$", re.MULTILINE)


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
    more_data: tuple[Path, ...] = ()
    """Others that are mixed with it."""
    image_root: Path | None = None
    """Folder that the paths of images in the manifest start from; None: `init` searches for it."""
    is_replacing: bool = False
    """True if files with other content are moved aside instead of being an error."""
    model: str = model_inspection.DEFAULT_MODEL
    recipe: str | None = None
    start: StartPoint | None = None
    """Training of another tool that is translated."""
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
    account: tuple[AccountRow, ...] = ()
    """What became of each key of another tool's file."""


def begin(request: Request, place: JobPlace) -> WrittenSpec:
    """Write the files; never replace one with other content.

    Raises:
        InputError: such a file exists, or data, model or recipe cannot be used.
        FileError: something cannot be written.
    """
    profile = f"clusters/{_NO_NAME.sub('-', place.name) or 'cluster'}.yaml"
    texts: dict[str, bytes] = {}
    notes: list[str] = []
    account: tuple[AccountRow, ...] = ()
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
        if request.recipe is not None or (request.data is None and request.start is None):
            recipe = request.recipe or "demo"
            spec = f"{request.name or recipe}.yaml"
            text, notes = _fitted(recipe_text(recipe), place, profile)
            if request.name is not None:
                text = edit_text(text, [(("name",), request.name)])
        else:
            spec = f"{request.name or 'finetune'}.yaml"
            own = _own(request, place, profile)
            text, texts, notes, account = own.text, own.texts, own.notes, own.account
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
        spec=request.folder / spec,
        files=written,
        kept=kept,
        said=(*gpu_lines(place), *notes),
        account=account,
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


@dataclass(frozen=True, kw_only=True, slots=True)
class _OwnSpec:
    """Spec for a user's data."""

    text: str
    texts: dict[str, bytes]
    """Other files to write, by name."""
    notes: list[str]
    account: tuple[AccountRow, ...]


def _own(request: Request, place: JobPlace, profile: str) -> _OwnSpec:
    """Return a spec for a user's data, as another tool's training if one is translated."""
    text = shipped_text("templates", "starter", "finetune.yaml")
    name = request.name or "finetune"
    found = _find_data(request, name)
    data, notes, texts = found.data, found.notes, found.texts
    model = model_inspection.inspect_weights(
        request.model, as_named=as_named(Path(request.model), request.folder)
    )
    rules = model_inspection.image_rules(request.model)
    lengths = choose_lengths(found.sizes, rules)
    translation = None
    if request.start is None:
        text = with_few_rows(with_lengths(without_share(text, data), lengths), data)
        notes += lengths.notes
    else:
        folder = data_files.expanded(Path(request.model))
        facts = StartFacts(
            place=place,
            data=data,
            model=model,
            kind=f"{model.name} {model_type(folder) or ''}",
            rules=rules,
            name=name,
        )
        translation = translate(request.start, facts, lengths)
        text = with_lengths(text, translation.limits)
        notes += lengths.notes[:1] if found.sizes else ()
    if model.is_on_hub:
        text = with_download(text)
        notes.append(f"model: {model.name}, which the stage `models` downloads on a node")
        if model.name != model_inspection.DEFAULT_MODEL:
            notes.append(f"note: {model_inspection.hub_note(model.name)}")
    if place.gpu is None:
        notes.append(f"{_without_gpus('train', place)}, so the spec trains on CPU cores")
    text = edit_text(text, own_changes(name, profile, data, model, place))
    rows: tuple[AccountRow, ...] = ()
    if translation is not None:
        text = translated_text(text, translation)
        rows = tuple(translation.rows())
        training = translation.training
        page = markdown(rows, file=training.file.name, tool=training.tool.name, spec=f"{name}.yaml")
        texts[keys_file(name)] = page.encode()
    text, changes = _with_fitting_resources(text, place)
    return _OwnSpec(text=text, texts=texts, notes=[*notes, *changes], account=rows)


def _find_data(request: Request, name: str) -> FoundData:
    """Return the data that the user or another tool's file names, also if they are not here yet."""
    if request.data is None:
        assert request.start is not None
        return find_translated_data(
            request.start, folder=request.folder, name=name, image_root=request.image_root
        )
    paths = [data_files.expanded(path) for path in (request.data, *request.more_data)]
    each = [one for path in paths for one in all_listed(path)]
    names = [name, *(f"{name}-{number}" for number in range(2, len(each) + 1))]
    return joined_data(
        [
            TrainingDataSearch(request.folder, own_name, request.image_root).search(path)
            for own_name, path in zip(names, each, strict=True)
        ]
    )


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
