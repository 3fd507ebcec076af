"""Writer of a first spec and a cluster profile, from facts about cluster, data and model."""

from __future__ import annotations

import grp
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from slurm_jobs.cluster.limits import ClusterLimits, NodeKind, Partition
from slurm_jobs.commands import image_folder, read_spec, starter_data
from slurm_jobs.commands import starter_data as data_files
from slurm_jobs.commands.read_spec import disk_files
from slurm_jobs.commands.starter_data import Data, Lengths, Model, Place, Room, choose_lengths
from slurm_jobs.commands.submit import limits_of
from slurm_jobs.shared.configs.stages import DEFAULT_MAX_IMAGES, DEFAULT_MAX_TOKENS
from slurm_jobs.shared.configs.train import DEFAULT_NUM_LANES
from slurm_jobs.shared.errors import FileError, InputError, SchedulerError, did_you_mean
from slurm_jobs.shared.expand import literal_path, shipped_path
from slurm_jobs.shared.files import write_bytes_atomic
from slurm_jobs.shared.manifest_formats import SMALL_VLM, RowSize, measure, pick_rows, spread
from slurm_jobs.shared.manifests.values import RowOptions
from slurm_jobs.shared.redact import printable
from slurm_jobs.shared.units import number_of
from slurm_jobs.spec.overrides import edit_text, flow_text
from slurm_jobs.spec.profile import ClusterProfile
from slurm_jobs.spec.yaml import KeyPath, read_yaml

# Choice of partition, GPUs and share of a node, from the cluster's limits.
#
# The first choice is meant to run, not to be the fastest: one node, all of its GPUs.


_MOST_SLICES = 400
ROWS_A_SLICE = 2000
"""A slice of so many images takes minutes: long compared with a job's start, cheap to repeat."""
TRAIN_MIN = 720
"""First guess; the report shows how much of it was used."""
_CARD_GB = {"t4": 16, "v100": 16, "p100": 16, "a10": 24, "l4": 24, "a30": 24, "a40": 48}
_CARD_GB |= {"l40": 48, "l40s": 48, "a100": 40, "h100": 80, "h200": 141}
"""The smallest memory that NVIDIA sold a card of that name with, in GB; data sheets, 2025."""
_LEAST_MB = 1024
"""Lower bound: no node has less."""
_PROCESS_GB = 3
"""Host memory of a process with CUDA; the sums in the recipes use the same value."""


def choose_place(
    limits: ClusterLimits,
    *,
    groups: Collection[str] = (),
    node_local_dir: str = "/tmp",  # noqa: S108 - as the profile's default
    account: str | None = None,
    partition: str | None = None,
) -> Place:
    """Choose where jobs go on a cluster.

    Args:
        limits: Answers of Slurm.
        groups: Groups of the user, for partitions that require one.
        node_local_dir: Slurm's own `TmpFS`, which sites set to the nodes' disk.
        account: Account named by the user; otherwise Slurm's default.
        partition: Partition for GPUs named by the user; otherwise the one with most.
    """
    accounts = tuple(sorted({one.account for one in limits.associations}))
    usable = [
        p for p in limits.partitions.values() if _num_nodes(p) and _is_open(p, groups, accounts)
    ]
    rooms = sorted(_gpu_rooms(usable, limits), key=lambda room: -room.num_nodes * room.gpus)
    named = [room for room in rooms if partition in {None, room.partition}]
    return Place(
        name=limits.cluster_name or "cluster",
        is_slurm=True,
        cpu=_cpu_room(usable, limits),
        gpu=named[0] if named else None,
        gpu_rooms=tuple(rooms),
        accounts=accounts,
        account=account,
        node_local_dir=node_local_dir,
        limits=limits,
        notes=limits.problems,
    )


def _is_open(partition: Partition, groups: Collection[str], accounts: Collection[str]) -> bool:
    """Check whether this user's jobs may start in it, from the partition's own settings."""
    of_groups, of_accounts = partition.allow_groups, partition.allow_accounts
    return (
        partition.is_up
        and (of_groups is None or bool({*of_groups} & {*groups}))
        and (of_accounts is None or not accounts or bool({*of_accounts} & {*accounts}))
    )


def _gpu_rooms(partitions: Iterable[Partition], limits: ClusterLimits) -> Iterator[Room]:
    """Yield a room for each type of GPU in each partition: its nodes with the largest number."""
    for partition in partitions:
        types = dict.fromkeys(t for kind in partition.kinds for t, n in kind.gpus.items() if n)
        for gpu_type in types:
            kinds = [kind for kind in partition.kinds if kind.gpus.get(gpu_type)]
            most = max(kind.gpus[gpu_type] for kind in kinds)
            full = [kind for kind in kinds if kind.gpus[gpu_type] == most]
            yield _room(partition, full, limits, gpu_type=gpu_type, gpus=most)


def _cpu_room(partitions: list[Partition], limits: ClusterLimits) -> Room:
    """Return the default partition if it has nodes without GPUs, or the largest that has."""
    without = [p for p in partitions if any(not k.gpus for k in p.kinds)]
    best = sorted(without or partitions, key=lambda p: (not p.is_default, -_num_nodes(p)))
    if not best:
        return Room(partition=None, num_nodes=1, cpus=1, mem_gb=math.inf)
    kinds = [kind for kind in best[0].kinds if not kind.gpus] or list(best[0].kinds)
    return _room(best[0], kinds, limits)


def _num_nodes(partition: Partition) -> int:
    return sum(kind.num_nodes for kind in partition.kinds)


def _room(
    partition: Partition,
    kinds: list[NodeKind],
    limits: ClusterLimits,
    *,
    gpu_type: str = "",
    gpus: int = 0,
) -> Room:
    """Return the room of nodes of these kinds: the minimum of each resource."""
    qos = limits.qos.get(partition.qos or "")
    times = [partition.max_time_min, qos.max_wall_min if qos else None]
    mem_mb = min((kind.mem_mb for kind in kinds), default=0)
    return Room(
        partition=partition.name,
        num_nodes=sum(kind.num_nodes for kind in kinds),
        cpus=min((kind.cpus for kind in kinds), default=1),
        mem_gb=mem_mb / 1024 if mem_mb >= _LEAST_MB else math.inf,
        gpu_type=gpu_type,
        gpus=gpus,
        max_time_min=min((t for t in times if t is not None), default=None),
    )


def num_slices(data: Data, limits: ClusterLimits) -> int:
    """Return the number of preprocessing slices: one per 2,000 rows, within the site's limit."""
    num_rows = 8 * ROWS_A_SLICE if data.num_rows is None else data.num_rows
    wanted = math.ceil(num_rows / ROWS_A_SLICE)
    return max(1, min(wanted, _MOST_SLICES, limits.max_array_size or _MOST_SLICES))


def needs_4_bits(model: Model, room: Room | None) -> bool:
    """Check whether sharded weights in 16 bits leave too little memory of a GPU.

    They may take a third of it: gathered layers, activations and logits are added.
    """
    if room is None or model.weights_gb is None:
        return False
    card_gb = _CARD_GB.get(room.gpu_type.lower())
    return card_gb is not None and model.weights_gb / room.gpus > card_gb / 3


def train_mem_gb(model: Model, room: Room) -> int:
    """Return the memory of a node: the export's weights in fp32, once more merged, and processes.

    The recipes' comments add up the same. The maximum is nine tenths of the node.
    """
    weights_gb = 16.0 if model.weights_gb is None else 2 * model.weights_gb
    needed = 1.6 * weights_gb + _PROCESS_GB * max(1, room.gpus) + 2
    return max(1, math.floor(min(needed, 0.9 * room.mem_gb)))


def minutes(wanted: float, room: Room) -> int:
    """Return a time limit that the room allows."""
    return math.floor(wanted if room.max_time_min is None else min(wanted, room.max_time_min))


# Changes to a starter's text that fit it to data, model and cluster.


Change = tuple[KeyPath, Any]
_TRAIN: KeyPath = ("stages", "train")
_BATCH = 32
_PACK_TOKENS = 4096
"""Length of a row of packed samples in the starter."""
_STEPS = 20
"""Minimum steps of a training: fewer teach nothing and make no useful report."""
_LOADER_CORES = 8
"""Maximum cores per GPU that training requests for the loader; the report shows if they suffice."""
DOWNLOAD = """\
  # Downloads the model from the Hugging Face hub, once. Without internet on the nodes put the
  # model into FOLDER/vlm and say `config: {source: FOLDER}`. The function is in recipes.py next
  # to this spec: keep that file.
  models:
    run: "recipes:models"
    resources: {cpus_per_task: 2, mem_gb: 4, timeout_min: 120}
    config: {models: {vlm: OWNER/NAME}}
"""


def with_download(text: str) -> str:
    """Add a stage at the front that downloads the model."""
    before, line, after = text.partition("stages:\n")
    assert line, "a starter has stages"
    after = after.replace("    run: preprocess\n", "    run: preprocess\n    after: models\n", 1)
    return f"{before}{line}{DOWNLOAD}{after}"


def with_lengths(text: str, lengths: Lengths) -> str:
    """Set the length limits, and give the reason in a comment."""
    line = next(line for line in text.splitlines() if line.startswith("      max_tokens: "))
    new = line.replace(f"max_tokens: {DEFAULT_MAX_TOKENS}", f"max_tokens: {lengths.max_tokens}", 1)
    if lengths.image_pixels is not None:
        key = f"      image_pixels: {{max: {lengths.image_pixels}}}"
        new += f"\n{key:<39}# {lengths.reason}"
    elif lengths.reason:
        new += f"; {lengths.reason}"
    if lengths.max_images != DEFAULT_MAX_IMAGES:
        key = f"      max_images: {lengths.max_images}"
        new += f"\n{key:<39}# the largest number in a row that was read"
    text = text.replace(line, new, 1)
    packed = "batching: {kind: packed, max_tokens: "
    most = max(_PACK_TOKENS, lengths.max_tokens)
    return text.replace(f"{packed}{_PACK_TOKENS}}}", f"{packed}{most}}}", 1)


def own_changes(name: str, profile: str, data: Data, model: Model, place: Place) -> list[Change]:
    """Return the changes for a user's own data, after `with_download` for a model on the hub."""
    found: list[Change] = [(("name",), name), (("cluster",), profile)]
    folder = "${models.output_dir}/vlm" if model.is_on_hub else model.name
    slices = num_slices(data, place.limits)
    running = min(64, slices)
    found += [
        (("stages", "preprocess", "array"), {"num_slices": slices, "max_running": running}),
        (("stages", "preprocess", "config", "manifest"), data.manifest),
        (("stages", "preprocess", "config", "processor"), folder),
        ((*_TRAIN, "config", "model", "path"), folder),
        ((*_TRAIN, "resources"), _train_resources(model, place)),
        ((*_TRAIN, "config", "global_batch_size"), _batch(data, place.gpu)),
    ]
    if _lanes(place.gpu) != DEFAULT_NUM_LANES:
        found.append(((*_TRAIN, "config", "num_lanes"), _lanes(place.gpu)))
    if _is_small(data):  # packed they would fill few rows, and not one batch
        found.append(((*_TRAIN, "config", "batching"), {"kind": "grouped"}))
        found.append(((*_TRAIN, "config", "num_epochs"), _epochs(data, place.gpu)))
    if data.image_root is not None:
        found.append((("stages", "preprocess", "config", "image_root"), data.image_root))
    if data.evaluation is not None:
        steps = _epochs(data, place.gpu) * (data.num_rows or 0) // _batch(data, place.gpu)
        asked: dict[str, Any] = {"manifest": data.evaluation}
        if data.image_root is not None:
            asked["image_root"] = data.image_root
        found.append(
            (
                (*_TRAIN, "config", "evaluate"),
                {**asked, "every_steps": max(1, min(100, steps // 5 or 100))},
            )
        )
    if model.is_on_hub:
        found.append((("stages", "models", "config", "models", "vlm"), model.name))
    if model.is_small_vlm:
        found.append(((*_TRAIN, "config", "model", "type"), SMALL_VLM))
    if max(1, (place.gpu or place.cpu).gpus) == 1:  # no sharding on one GPU
        found.append(((*_TRAIN, "config", "strategy"), "single"))
    if place.gpu is None:
        found.append(((*_TRAIN, "config", "device"), "cpu"))
    elif needs_4_bits(model, place.gpu):
        found.append(((*_TRAIN, "config", "quantize"), {"kind": "nf4", "double": True}))
    return found


def _batch(data: Data, room: Room | None) -> int:
    """Return a batch of 32 or a little more, 8 for few rows; the same per lane, and so per GPU."""
    lanes = _lanes(room)
    return lanes * math.ceil((DEFAULT_NUM_LANES if _is_small(data) else _BATCH) / lanes)


def _lanes(room: Room | None) -> int:
    """Return the default if the GPUs of a node divide it, otherwise one lane for each."""
    gpus = max(1, room.gpus) if room is not None else 1
    return gpus if DEFAULT_NUM_LANES % gpus else DEFAULT_NUM_LANES


def _epochs(data: Data, room: Room | None) -> int:
    """Return enough epochs for some steps on few rows; more than a hundred teach nothing new."""
    steps = max(1, data.num_rows or 1) / _batch(data, room)
    return max(1, min(100, math.ceil(_STEPS / steps)))


def _is_small(data: Data) -> bool:
    return data.num_rows is not None and data.num_rows < _STEPS * _BATCH


def _train_resources(model: Model, place: Place) -> dict[str, Any]:
    room = place.gpu or place.cpu
    ranks = max(1, room.gpus)
    cores = max(1, min(_LOADER_CORES, room.cpus // ranks))
    asked: dict[str, Any] = {"nodes": 1, "tasks_per_node": ranks, "cpus_per_task": cores}
    if room.gpus:
        asked["gpus_per_node"] = room.gpus
    if room.gpu_type:
        asked["gpu"] = room.gpu_type
    asked["mem_gb"] = train_mem_gb(model, room)
    return {**asked, "timeout_min": minutes(TRAIN_MIN, room)}


def fitting_changes(stages: Mapping[str, Any], place: Place) -> Iterator[Change]:
    """Yield what must be less, or of another type, in a recipe's resources on this cluster.

    Args:
        stages: Stages in the recipe's text.
        place: Place of the jobs.
    """
    for name, stage in stages.items():
        asked = stage.get("resources", {})
        is_gpu = bool(asked.get("gpus_per_node"))
        room = place.gpu if is_gpu else place.cpu
        if room is None or not place.is_slurm:
            continue
        fitting = {**asked, **_fitting(asked, room)}
        if is_gpu and not _has_type(asked.get("gpu"), place):
            fitting.pop("gpu", None)
            fitting.update({"gpu": room.gpu_type} if room.gpu_type else {})
        if fitting != asked:
            yield ("stages", name, "resources"), fitting


def gpu_stages(stages: Mapping[str, Any]) -> list[str]:
    """Return the stages that request GPUs."""
    return [n for n, stage in stages.items() if stage.get("resources", {}).get("gpus_per_node")]


def _fitting(asked: Mapping[str, Any], room: Room) -> dict[str, Any]:
    """Return the requests with no number above what the room has."""
    found: dict[str, Any] = {}
    ranks = asked.get("tasks_per_node", 1)
    if gpus := asked.get("gpus_per_node"):
        found["gpus_per_node"] = min(gpus, room.gpus)
        if ranks == gpus:
            ranks = found["tasks_per_node"] = found["gpus_per_node"]
    cores = asked.get("cpus_per_task", 1)
    found["cpus_per_task"] = max(1, min(cores, room.cpus // ranks))
    if "nodes" in asked:
        found["nodes"] = min(asked["nodes"], room.num_nodes)
    if "mem_gb" in asked and asked["mem_gb"] > room.mem_gb:
        found["mem_gb"] = math.floor(room.mem_gb)
    if "timeout_min" in asked:
        found["timeout_min"] = minutes(asked["timeout_min"], room)
    return {key: value for key, value in found.items() if value != asked.get(key)}


def _has_type(asked: str | Sequence[str] | None, place: Place) -> bool:
    """Check whether the partition has all requested types, as types or features."""
    wanted = [asked] if isinstance(asked, str) else list(asked or [])
    partition = place.limits.partitions.get((place.gpu and place.gpu.partition) or "")
    kinds = partition.kinds if partition is not None else ()
    many = len(wanted) > 1  # one of several types is requested by the nodes' features
    return all(
        any(w in kind.features or (not many and w in kind.gpus) for kind in kinds) for w in wanted
    )


# Text of a cluster profile, with comments on what was found.


def profile_text(place: Place, *, date: str, python: str) -> str:
    """Return a profile with comments.

    Args:
        place: Place of the jobs.
        date: Date of the query, for the comment.
        python: The Python that `slurm-jobs` runs in, which nodes are given by default.
    """
    lines = _slurm(place, date) if place.is_slurm else _local()
    shared = [
        "",
        "# Python of the compute nodes, with `slurm-jobs[train]` in it; without this line it is",
        f"# {python}, which the nodes must then have, too.",
        "# python: /envs/train/bin/python",
        "",
        "# Lines of shell that every job begins with; one that fails ends the job.",
        "# setup:",
        "#   - module load cuda",
        "",
        "# Each node's own fast disk, where shards are staged. `slurm-jobs probe` measures it.",
        f"node_local_dir: {flow_text(place.node_local_dir)}",
        "",
        "# What an hour costs; then reports show costs, too.",
        "# price: {gpu_hour: 1.80, currency: EUR}",
    ]
    return "\n".join([*lines, *shared]) + "\n"


def profile_options(text: str) -> dict[str, set[str]]:
    """Return which options of `init` for the profile the profile contains, and their values."""
    try:
        values = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):  # a date that is invalid, too
        values = None
    found = values if isinstance(values, dict) else {}
    slurm, of_gpus = (found.get(key) for key in ("slurm", "gpu_slurm"))
    parts = [part for part in (slurm, of_gpus) if isinstance(part, dict)]
    return {f"--{key}": {str(part.get(key)) for part in parts} for key in ("account", "partition")}


def _local() -> Iterator[str]:
    yield "# This machine, without Slurm: jobs run here, with Slurm's meaning of every word."
    yield "scheduler: local"


def _slurm(place: Place, date: str) -> Iterator[str]:
    yield f"# The cluster `{place.name}`, as Slurm described it on {date}; docs/cluster-profile.md."
    yield "#"
    for partition in place.limits.partitions.values():
        limit = partition.max_time_min
        time = "no time limit" if limit is None else f"at most {limit / 60:g} h a job"
        default = ", the default" if partition.is_default else ""
        state = "" if partition.is_up else ", DOWN"
        yield f"#   partition {partition.name}{default}{state}: {time}"
        for kind in partition.kinds:
            yield f"#     {_nodes(kind)}"
    yield "scheduler: slurm"
    yield "# Options of sbatch for every job; a stage's own (`resources: {slurm: ...}`) win."
    options = {"account": place.account, "partition": place.cpu.partition}
    yield f"slurm: {flow_text({key: value for key, value in options.items() if value})}"
    if len(place.accounts) > 1:
        yield f"# Your accounts: {', '.join(place.accounts)}."
    if place.gpu is not None:
        yield "# Over those, for every job that asks for GPUs."
        yield f"gpu_slurm: {flow_text({'partition': place.gpu.partition})}"


def _nodes(kind: NodeKind) -> str:
    gpus = ", ".join(f"{n} x {gpu_type or 'GPU'}" for gpu_type, n in kind.gpus.items())
    what = f"{kind.cpus} cores, {kind.mem_mb / 1024:.0f} GB{f', {gpus}' if gpus else ''}"
    return f"{kind.num_nodes} node{'' if kind.num_nodes == 1 else 's'}: {what}"


# Recipes that ship with slurm-jobs: their names, and the files that each needs.


ALL = "all"
_CLUSTER = re.compile(r"^cluster:.*$", re.MULTILINE)
_HELPERS = {
    "guide": ("guide.py",),
    "guide_start": ("guide_start.py", "recipes.py", "shapes_demo.py"),
    "packing_chats": ("packing_chats.py", "recipes.py", "shapes_demo.py"),
    "recipes": ("recipes.py", "shapes_demo.py"),
    "recipes:models": ("recipes.py",),
    "shapes_demo": ("shapes_demo.py",),
}
"""Files of the modules that recipes import, or of a single function that needs fewer."""


def recipe_names() -> list[str]:
    """Return the names of all recipes, the demo first."""
    names = sorted(path.stem for path in shipped_path("configs").glob("*.yaml"))
    return sorted(names, key=lambda name: name != "demo")


def recipe_text(name: str) -> str:
    """Return the spec of a recipe, as it ships.

    Raises:
        InputError: there is none of that name.
    """
    names = recipe_names()
    if name not in names:
        known = ", ".join([*names, ALL])
        message = f"--recipe {name}: no such recipe{did_you_mean(name, names)} (recipes: {known})"
        raise InputError(message)
    return shipped_path("configs", f"{name}.yaml").read_text(encoding="utf-8")


def stages_of(text: str) -> dict[str, Any]:
    """Return the stages in the text, without defaults."""
    stages: dict[str, Any] = read_yaml(text, "").value["stages"]
    return stages


def helper_files(text: str) -> dict[str, Path]:
    """Return the modules that the stages of a spec run, by the file name next to the spec."""
    runs = [str(stage.get("run", "")) for stage in stages_of(text).values()]
    modules = [run if run in _HELPERS else run.partition(":")[0] for run in runs if ":" in run]
    names = {file for module in modules for file in _HELPERS.get(module, ())}
    return {name: shipped_path("configs", name) for name in sorted(names)}


def everything() -> dict[str, Path]:
    """Return everything that ships (profiles, modules, accelerate configs) by relative path."""
    sources = [
        (shipped_path("configs"), ""),
        (shipped_path("templates", "accelerate"), "accelerate/"),
    ]
    return {
        f"{prefix}{path.relative_to(source)}": path
        for source, prefix in sources
        for path in source.rglob("*")
        if path.suffix in {".yaml", ".py"}
    }


def on_cluster(text: str, profile: str) -> str:
    """Return the spec with another profile."""
    return _CLUSTER.sub(lambda _line: f"cluster: {profile}", text, count=1)


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
    model: str = starter_data.DEFAULT_MODEL
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
    if request.recipe == ALL:
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
    for name, path in everything().items():
        texts[name] = path.read_bytes()
        if path.suffix == ".yaml" and "/" not in name:
            text, changed = _fitted(texts[name].decode(), place, profile)
            texts[name] = text.encode()
            said += [f"{name}: {one}" for one in changed]
    return texts, said


def _recipe(
    recipe: str, spec: str, name: str | None, place: Place, profile: str
) -> tuple[dict[str, bytes], list[str]]:
    text, said = _fitted(recipe_text(recipe), place, profile)
    if name is not None:
        text = edit_text(text, [(("name",), name)])
    modules = {file: path.read_bytes() for file, path in helper_files(text).items()}
    return {**modules, spec: text.encode()}, said


def _fitted(text: str, place: Place, profile: str) -> tuple[str, list[str]]:
    """Return a recipe with this cluster's profile, and resources within what it has."""
    text = on_cluster(text, profile)
    stages = stages_of(text)
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
    model = starter_data.inspect_weights(
        request.model, as_named=_as_named(Path(request.model), request.folder)
    )
    lengths = choose_lengths(rows, starter_data.image_rules(request.model))
    said += lengths.notes
    text = with_lengths(text, lengths)
    if model.is_on_hub:
        text = with_download(text)
        said.append(f"model: {model.name}, which the stage `models` downloads on a node")
    text = edit_text(text, own_changes(name, profile, data, model, place))
    changes = list(fitting_changes(stages_of(text), place))
    said += [_change_text(change) for change in changes]
    text = edit_text(text, changes)
    modules = {file: p.read_bytes() for file, p in helper_files(text).items()}
    return {**modules, **manifest, f"{name}.yaml": text.encode()}, said


def _look_at_data(path: Path, folder: Path, name: str) -> _Seen:
    """Return the data, manifests to write, sizes, and notes on them."""
    if data_files.is_image_folder(path):
        manifest, held_out = image_folder.metadata_files(path)
        if manifest is None:
            found = image_folder.read_image_folder(path)
            num_rows = len(found.train.files)
            data = Data(
                manifest=f"{name}.csv", image_root=_as_named(path, folder), num_rows=num_rows
            )
            texts = {f"{name}.csv": found.train.manifest(path).encode()}
            said = [f"data: {number_of('image', num_rows)} of {path} with their words"]
            if found.evaluation is not None:
                data = replace(data, evaluation=f"{name}-heldout.csv")
                texts[f"{name}-heldout.csv"] = found.evaluation.manifest(path).encode()
                said.append(f"evaluation: {number_of('image', len(found.evaluation.files))}")
            rows, unread = _row_sizes(found.train)
            return data, texts, rows, [*said, *found.notes, *unread]
        data = data_files.inspect_data(manifest, as_named=_as_named(manifest, folder))
        said = [f"data: {manifest}, the list of {path}; other files there are not read"]
        if held_out is not None:
            said.append(f"evaluation: {held_out}")
            data = replace(data, evaluation=_as_named(held_out, folder))
        rows, unread = _listed_sizes(manifest)
        return data, {}, rows, [*said, *unread]
    data = data_files.inspect_data(path, as_named=_as_named(path, folder))
    rows, unread = _listed_sizes(path)
    if data.num_rows is None:
        return data, {}, rows, [f"data: {path}; its rows were not counted", *unread]
    about = "" if data.is_exact else "about "
    return data, {}, rows, [f"data: {path}, {about}{data.num_rows:,} rows", *unread]


def _listed_sizes(manifest: Path) -> tuple[list[RowSize], list[str]]:
    """Return the sizes of the first rows of a manifest, and notes on those not measured."""
    files, manifest = disk_files(), data_files.expanded(manifest).absolute()
    rows = [row for row in files.first_rows(str(manifest), RowOptions()) if not row.problem]
    if not any(row.images for row in rows):
        return [], []
    if not read_spec.can_read_sizes():
        return [], [_NO_PILLOW]
    picked = pick_rows(rows, read_spec.MAX_HEADERS)
    sizes = [
        measure(
            row,
            lambda image: read_spec.size_of(image, files.image_root_of(str(manifest))),
            most=read_spec.MAX_HEADERS,
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
    if not read_spec.can_read_sizes():
        return [], [_NO_PILLOW]
    places = spread(len(rows.files), read_spec.MAX_HEADERS)
    sizes = [read_spec.read_size(rows.files[place]) for place in places]
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


# Place of the jobs of a first spec: the cluster of this login node, or this machine.


LOCAL = "local"
_GPUS_DIR = Path("/proc/driver/nvidia/gpus")
"""Folder in which NVIDIA's driver lists its GPUs."""


def look_at_cluster(
    *, account: str | None = None, partition: str | None = None, is_local: bool = False
) -> Place:
    """Return the cluster of this login node, or this machine.

    Raises:
        SchedulerError: Slurm is installed, but does not answer.
        InputError: the user has no such account, or there is no such partition with GPUs.
    """
    if is_local or shutil.which("sbatch") is None:
        if account or partition:
            why = "--local is this machine alone" if is_local else "there is no sbatch here"
            message = f"--account and --partition are for Slurm, and {why}"
            raise InputError(message)
        cores = len(os.sched_getaffinity(0))
        mem_gb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
        cpu = Room(partition=None, num_nodes=1, cpus=cores, mem_gb=mem_gb)
        cards = len(list(_GPUS_DIR.iterdir())) if _GPUS_DIR.is_dir() else 0
        gpu = replace(cpu, gpus=cards) if cards else None
        return Place(name=LOCAL, is_slurm=False, cpu=cpu, gpu=gpu)
    limits = limits_of(ClusterProfile())
    unknown = limits.unreachable
    if not any(partition.kinds for partition in limits.partitions.values()):
        unknown = unknown or "; ".join(limits.problems) or "sinfo lists no partition with nodes"
    if unknown:
        message = (
            f"Slurm does not say what there is, and nothing was written: {unknown}; type the "
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
    """Raise if the user's value is not among the known ones; without known ones Slurm decides."""
    names = sorted(set(known))
    if given is not None and names and given not in names:
        message = f"{option} {given}: not here, or not yours (you have: {', '.join(names)})"
        raise InputError(message)
