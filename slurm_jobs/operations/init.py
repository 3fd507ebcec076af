"""Writes a first spec and a cluster profile, from what can be seen of cluster, data and model."""

from __future__ import annotations

import grp
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from slurm_jobs.cluster.profile import ClusterProfile
from slurm_jobs.common.errors import FileError, InputError, SchedulerError
from slurm_jobs.common.files import write_bytes_atomic
from slurm_jobs.operations.disk import disk_files
from slurm_jobs.operations.limits import limits_of
from slurm_jobs.report.words import number_of
from slurm_jobs.shipped import shipped_path
from slurm_jobs.spec.editing import edit_text
from slurm_jobs.spec.first_images import images_outside
from slurm_jobs.starter import data as data_files
from slurm_jobs.starter import recipes, weights
from slurm_jobs.starter.changes import (
    Change,
    fitting_changes,
    gpu_stages,
    own_changes,
    with_download,
)
from slurm_jobs.starter.choices import choose_place
from slurm_jobs.starter.model import Data, Place, Room
from slurm_jobs.starter.profile_text import profile_text

LOCAL = "local"
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]+")
_GPUS_DIR = Path("/proc/driver/nvidia/gpus")
"""Where NVIDIA's driver lists its cards."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What a user wants to begin with: data of their own, or a recipe."""

    folder: Path
    """Where the files go."""
    name: str | None = None
    """Of the spec and its runs; that of the recipe, or `finetune`, where it is left out."""
    data: Path | None = None
    """A manifest, or a folder of images."""
    model: str = weights.DEFAULT_MODEL
    recipe: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Begun:
    """What was written."""

    spec: Path
    files: tuple[Path, ...]
    """All of them, the spec among them."""
    kept: tuple[Path, ...] = ()
    """That were there already, and are as they should be."""
    said: tuple[str, ...] = ()
    """What was seen, chosen and changed, for people."""


def look_at_cluster(
    *, account: str | None = None, partition: str | None = None, is_local: bool = False
) -> Place:
    """The cluster that this machine is a login node of, or this machine itself.

    Raises:
        SchedulerError: there is a Slurm here, and it does not answer.
        InputError: it has no such account for this user, or no such partition with GPUs.
    """
    if is_local or shutil.which("sbatch") is None:
        if account or partition:
            why = "--local is this machine alone" if is_local else "there is no sbatch here"
            message = f"--account and --partition are for Slurm, and {why}"
            raise InputError(message)
        return _this_machine()
    limits = limits_of(ClusterProfile())
    if limits.unreachable:
        message = (
            f"Slurm cannot be reached, and nothing was written: {limits.unreachable}; type the "
            "same again once `sinfo` answers here, or add --local to run the jobs on this machine"
        )
        raise SchedulerError(message)
    groups = [grp.getgrgid(number).gr_name for number in os.getgroups() if _has_name(number)]
    place = choose_place(
        limits,
        groups=groups,
        node_local_dir=limits.tmp_dir or "/tmp",  # noqa: S108 - as the profile's default
        account=account,
        partition=partition,
    )
    _refuse_unknown("--account", account, place.accounts)
    _refuse_unknown("--partition", partition, [room.partition or "" for room in place.gpu_rooms])
    return place


def _has_name(number: int) -> bool:
    try:
        grp.getgrgid(number)
    except KeyError:
        return False
    return True


def _refuse_unknown(option: str, given: str | None, known: Iterable[str]) -> None:
    """Raise where what the user named is not there; what nobody knows is left to Slurm."""
    names = sorted(set(known))
    if given is not None and names and given not in names:
        message = f"{option} {given}: not here, or not yours (you have: {', '.join(names)})"
        raise InputError(message)


def _this_machine() -> Place:
    """As one node, whose cores the run may have."""
    cores = len(os.sched_getaffinity(0))
    mem_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cpu = Room(partition=None, num_nodes=1, cpus=cores, mem_gb=mem_gb)
    cards = len(list(_GPUS_DIR.iterdir())) if _GPUS_DIR.is_dir() else 0
    gpu = replace(cpu, gpus=cards) if cards else None
    return Place(name=LOCAL, is_slurm=False, cpu=cpu, gpu=gpu)


def begin(request: Request, place: Place) -> Begun:
    """Write the files; one that is there with other words is never replaced.

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
        texts, said = _own(request, request.data, place, profile)
    now = time.strftime("%Y-%m-%d")
    kept_profile = (request.folder / profile).exists()
    texts.setdefault(profile, profile_text(place, date=now, python=sys.executable).encode())
    if kept_profile:  # with the group's own lines in it, maybe
        texts.pop(profile)
        said.append(f"{profile} is there already, and stays as it is")
    written, kept = _write(request.folder, texts)
    return Begun(spec=request.folder / spec, files=written, kept=kept, said=tuple(said))


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
    """A recipe with this cluster's profile, and no resource above what there is."""
    text = recipes.on_cluster(text, profile)
    stages = recipes.stages_of(text)
    changes = list(fitting_changes(stages, place))
    said = [_change_text(change) for change in changes]
    needing = gpu_stages(stages)
    if needing and place.gpu is None:
        said.append(
            f"{', '.join(needing)} asks for GPUs, and you have none here: see `sinfo -o '%P %G'`"
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
    data, manifest, said = _look_at_data(path, request.folder, name)
    model = weights.look_at(request.model, as_named=_as_named(Path(request.model), request.folder))
    if model.is_on_hub:
        text = with_download(text)
        said.append(f"model: {model.name}, which the stage `models` downloads on a node")
    text = edit_text(text, own_changes(name, profile, data, model, place))
    modules = {file: p.read_bytes() for file, p in recipes.helper_files(text).items()}
    return {**modules, **manifest, f"{name}.yaml": text.encode()}, said


def _look_at_data(path: Path, folder: Path, name: str) -> tuple[Data, dict[str, bytes], list[str]]:
    """The data, a manifest where one must be written, and what is to be said of both."""
    if data_files.is_image_folder(path):
        text, num_images, num_left = data_files.captions_of(path)
        root = _as_named(path, folder)
        data = Data(manifest=f"{name}.csv", image_root=root, num_rows=num_images)
        left = f"; {num_left} without words are left out" if num_left else ""
        said = [f"data: {number_of('image', num_images)} of {path} with their words{left}"]
        return data, {f"{name}.csv": text.encode()}, said
    data = data_files.look_at(path, as_named=_as_named(path, folder))
    about = "" if data.is_exact else "about "
    rows = "; its rows were not counted"
    if data.num_rows is not None:
        rows = f", {about}{data.num_rows:,} rows"
    said, within = [f"data: {path}{rows}"], _images_elsewhere(path)
    if within is not None:
        said.append(f"images: of {within}, which is not the manifest's folder (images_within)")
        data = replace(data, images_within=_as_named(within, folder))
    return data, {}, said


def _images_elsewhere(manifest: Path) -> Path | None:
    """A folder of the images that the first rows name, where one lies outside the manifest's."""
    path = manifest.expanduser().absolute()
    root = str(path.parent)
    found = images_outside(str(path), disk_files().beginning(str(path)), root, root)
    return None if found is None else Path(found[1])


def _as_named(path: Path, folder: Path) -> str:
    """Relative to the spec's folder where both lie below the working folder, else absolute."""
    whole = path.expanduser().absolute()
    here = Path.cwd()
    if whole.is_relative_to(here) and folder.absolute().is_relative_to(here):
        return os.path.relpath(whole, folder.absolute())
    return str(whole)


def _write(folder: Path, texts: dict[str, bytes]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Write what is not there, after a look at all."""
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
    """`partition gpu: 2 nodes of 8 cores, 15 GB, 4 x a100, at most 24 h a job`."""
    where = f"partition {room.partition}: " if room.partition else "this machine: "
    nodes = (
        f"{room.num_nodes} node{'' if room.num_nodes == 1 else 's'} of " if room.partition else ""
    )
    mem = "" if math.isinf(room.mem_gb) else f", {room.mem_gb:.0f} GB"
    gpus = f", {room.gpus} x {room.gpu_type or 'GPU'}" if room.gpus else ""
    limit = f", at most {room.max_time_min / 60:g} h a job" if room.max_time_min else ""
    return f"{where}{nodes}{room.cpus} core{'' if room.cpus == 1 else 's'}{mem}{gpus}{limit}"
