"""Writer of a first spec and a cluster profile, from facts about cluster, data and model."""

from __future__ import annotations

import grp
import math
import os
import re
import shutil
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from slurm_jobs.cluster.limits import ClusterLimits, NodeKind, Partition
from slurm_jobs.cluster.mig import is_slice, slice_gb
from slurm_jobs.commands import read_spec, starter_data
from slurm_jobs.commands import starter_data as data_files
from slurm_jobs.commands.read_spec import disk_files
from slurm_jobs.commands.starter import image_folder
from slurm_jobs.commands.starter.archive_members import archive_note
from slurm_jobs.commands.starter.gpu_choice import gpu_comments, gpu_lines
from slurm_jobs.commands.starter_data import Data, Lengths, Model, Place, Room, choose_lengths
from slurm_jobs.commands.submit import limits_of
from slurm_jobs.shared.configs.stages import DEFAULT_MAX_IMAGES, DEFAULT_MAX_TOKENS
from slurm_jobs.shared.configs.training_parts import DEFAULT_NUM_LANES
from slurm_jobs.shared.errors import FileError, InputError, SchedulerError, did_you_mean
from slurm_jobs.shared.expand import literal_path
from slurm_jobs.shared.files import write_bytes_atomic
from slurm_jobs.shared.manifests.row_sizes import RowSize, measure, pick_rows, spread
from slurm_jobs.shared.manifests.values import RowOptions
from slurm_jobs.shared.processors.model_types import SMALL_VLM
from slurm_jobs.shared.regular_files import read_bytes, read_text
from slurm_jobs.shared.shipped_files import shipped_path, shipped_text
from slurm_jobs.shared.units import number_of
from slurm_jobs.shared.written_values import printable
from slurm_jobs.spec.checks.data.manifests import unreadable
from slurm_jobs.spec.overrides.text_edits import edit_text, inline_text
from slurm_jobs.spec.profile import ClusterProfile
from slurm_jobs.spec.yaml.document import KeyPath
from slurm_jobs.spec.yaml.reader import read_yaml

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
    """Choose where jobs go on a cluster, from the partitions that are open to this user's jobs.

    There is one room for each type of GPU in a partition: the nodes with most of these GPUs, or
    with MIG slices, of which a training uses one per node. Whole cards come first. CPU jobs go to
    the default partition if it has nodes without GPUs, or the largest that has.

    `groups` are the user's, for partitions that require one; `node_local_dir` is Slurm's `TmpFS`,
    which sites set to the nodes' disk. Without `account` Slurm's default is used, and without
    `partition` the partition with most GPUs.
    """
    accounts = tuple(sorted({entry.account for entry in limits.associations}))
    usable = [
        p
        for p in limits.partitions.values()
        if _num_nodes(p)
        and p.is_up
        and (p.allow_groups is None or {*p.allow_groups} & {*groups})
        and (p.allow_accounts is None or not accounts or {*p.allow_accounts} & {*accounts})
    ]
    rooms = []
    for place in usable:
        types = dict.fromkeys(t for kind in place.kinds for t, n in kind.gpus.items() if n)
        for gpu_type in types:
            most = max(kind.gpus.get(gpu_type, 0) for kind in place.kinds)
            most = 1 if is_slice(gpu_type) else most
            full = [kind for kind in place.kinds if kind.gpus.get(gpu_type, 0) >= most]
            rooms.append(_room(place, full, limits, gpu_type=gpu_type, gpus=most))
    rooms.sort(key=lambda room: (is_slice(room.gpu_type), -room.num_nodes * room.gpus))
    cpu = Room(partition=None, num_nodes=1, cpus=1, mem_gb=math.inf)
    if usable:
        with_cpu_nodes = [p for p in usable if any(not kind.gpus for kind in p.kinds)]
        best = min(with_cpu_nodes or usable, key=lambda p: (not p.is_default, -_num_nodes(p)))
        kinds = [kind for kind in best.kinds if not kind.gpus]
        cpu = _room(best, kinds or list(best.kinds), limits)
    return Place(
        name=limits.cluster_name or "cluster",
        is_slurm=True,
        cpu=cpu,
        gpu=next((room for room in rooms if partition in {None, room.partition}), None),
        gpu_rooms=tuple(rooms),
        accounts=accounts,
        account=account,
        node_local_dir=node_local_dir,
        limits=limits,
        notes=limits.problems,
    )


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
    card_gb = slice_gb(room.gpu_type) or _CARD_GB.get(room.gpu_type.lower())
    return card_gb is not None and model.weights_gb / room.gpus > card_gb / 3


def train_mem_gb(model: Model, room: Room) -> int:
    """Return the memory of a node: weights in fp32 for the export, merged copies, and processes.

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
  # model into FOLDER/vlm and add `source: FOLDER` to `config`. The function is in recipes.py next
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
    room = place.gpu or place.cpu
    ranks = max(1, room.gpus)
    folder = "${models.output_dir}/vlm" if model.is_on_hub else model.name
    # The default number of lanes if the GPUs of a node divide it, otherwise one for each.
    lanes = ranks if place.gpu is not None and DEFAULT_NUM_LANES % ranks else DEFAULT_NUM_LANES
    # A batch of 32 or a little more, 8 for few rows; the same per lane, and so per GPU.
    is_small = data.num_rows is not None and data.num_rows < _STEPS * _BATCH
    batch = lanes * math.ceil((DEFAULT_NUM_LANES if is_small else _BATCH) / lanes)
    # Enough epochs for some steps on few rows; more than a hundred teach nothing new.
    epochs = max(1, min(100, math.ceil(_STEPS * batch / max(1, data.num_rows or 1))))
    resources: dict[str, Any] = {
        "nodes": 1,
        "tasks_per_node": ranks,
        "cpus_per_task": max(1, min(_LOADER_CORES, room.cpus // ranks)),
        **({"gpus_per_node": room.gpus} if room.gpus else {}),
        **({"gpu": room.gpu_type} if room.gpu_type else {}),
        "mem_gb": train_mem_gb(model, room),
        "timeout_min": minutes(TRAIN_MIN, room),
    }
    image_root = {} if data.image_root is None else {"image_root": data.image_root}
    train: dict[str, Any] = {"global_batch_size": batch}
    if lanes != DEFAULT_NUM_LANES:
        train["num_lanes"] = lanes
    if is_small:  # packed they would fill few rows, and not one batch
        train |= {"batching": {"kind": "grouped"}, "num_epochs": epochs}
    if data.evaluation is not None:
        steps = epochs * (data.num_rows or 0) // batch
        every_steps = max(1, min(100, steps // 5 or 100))
        train["evaluate"] = {"manifest": data.evaluation, **image_root, "every_steps": every_steps}
    if ranks == 1:  # no sharding on one GPU
        train["strategy"] = "single"
    if place.gpu is None:
        train["device"] = "cpu"
    elif needs_4_bits(model, place.gpu):
        train["quantize"] = {"kind": "nf4", "double": True}
    slices = num_slices(data, place.limits)
    preprocess = {"manifest": data.manifest, "processor": folder, **image_root}
    preprocess_config: KeyPath = ("stages", "preprocess", "config")
    changes: list[Change] = [
        (("name",), name),
        (("cluster",), profile),
        (("stages", "preprocess", "array"), {"num_slices": slices, "max_running": min(64, slices)}),
        *(((*preprocess_config, key), value) for key, value in preprocess.items()),
        ((*_TRAIN, "resources"), resources),
        ((*_TRAIN, "config", "model", "path"), folder),
        *(((*_TRAIN, "config", key), value) for key, value in train.items()),
    ]
    if model.is_on_hub:
        changes.append((("stages", "models", "config", "models", "vlm"), model.name))
    if model.is_small_vlm:
        changes.append(((*_TRAIN, "config", "model", "type"), SMALL_VLM))
    return changes


def fitting_changes(stages: Mapping[str, Any], place: Place) -> Iterator[Change]:
    """Yield what must be less, or of another type, in a recipe's resources on this cluster."""
    for name, stage in stages.items():
        resources = stage.get("resources", {})
        is_gpu = bool(resources.get("gpus_per_node"))
        room = place.gpu if is_gpu else place.cpu
        if room is None or not place.is_slurm:
            continue
        fitting = {**resources, **_fitting(resources, room)}
        wanted = resources.get("gpu") or []
        wanted = [wanted] if isinstance(wanted, str) else wanted
        partition = place.limits.partitions.get(room.partition or "")
        kinds = partition.kinds if partition is not None else ()
        # One of several types is requested by the nodes' features.
        if is_gpu and not all(
            any(w in kind.features or (len(wanted) == 1 and w in kind.gpus) for kind in kinds)
            for w in wanted
        ):
            fitting.pop("gpu", None)
            fitting.update({"gpu": room.gpu_type} if room.gpu_type else {})
        if fitting != resources:
            yield ("stages", name, "resources"), fitting


def _fitting(asked: Mapping[str, Any], room: Room) -> dict[str, Any]:
    """Return the requests with no number above what the room has."""
    fitting: dict[str, Any] = {}
    ranks = asked.get("tasks_per_node", 1)
    if gpus := asked.get("gpus_per_node"):
        fitting["gpus_per_node"] = min(gpus, room.gpus)
        if ranks == gpus:
            ranks = fitting["tasks_per_node"] = fitting["gpus_per_node"]
    cores = asked.get("cpus_per_task", 1)
    fitting["cpus_per_task"] = max(1, min(cores, room.cpus // ranks))
    if "nodes" in asked:
        fitting["nodes"] = min(asked["nodes"], room.num_nodes)
    if "mem_gb" in asked and asked["mem_gb"] > room.mem_gb:
        fitting["mem_gb"] = math.floor(room.mem_gb)
    if "timeout_min" in asked:
        fitting["timeout_min"] = minutes(asked["timeout_min"], room)
    return {key: value for key, value in fitting.items() if value != asked.get(key)}


# Text of a cluster profile, with comments on what was found.


def profile_text(place: Place, *, date: str, python: str) -> str:
    """Return a profile with comments; `python` is that of `slurm-jobs`, the nodes' default."""
    lines = [
        "# This machine, without Slurm: jobs run here, and every key means the same as with Slurm.",
        "scheduler: local",
    ]
    if place.is_slurm:
        head = f"# The cluster `{place.name}`, as Slurm described it on {date}"
        lines = [f"{head}; docs/cluster-profile.md.", "#"]
        for partition in place.limits.partitions.values():
            limit = partition.max_time_min
            time_text = "no time limit" if limit is None else f"at most {limit / 60:g} h a job"
            default = ", the default" if partition.is_default else ""
            state = "" if partition.is_up else ", DOWN"
            lines.append(f"#   partition {partition.name}{default}{state}: {time_text}")
            for kind in partition.kinds:
                gpus = ""
                for name, count in kind.gpus.items():
                    of_card = " (MIG slices)" if is_slice(name) else ""
                    gpus += f", {count} x {name or 'GPU'}{of_card}"
                node = f"{kind.cpus} cores, {kind.mem_mb / 1024:.0f} GB{gpus}"
                plural = "" if kind.num_nodes == 1 else "s"
                lines.append(f"#     {kind.num_nodes} node{plural}: {node}")
        options = {"account": place.account, "partition": place.cpu.partition}
        given = inline_text({key: value for key, value in options.items() if value})
        lines += [
            "scheduler: slurm",
            "# Options of sbatch for every job; a stage's own (`resources: {slurm: ...}`) win.",
            f"slurm: {given}",
        ]
        if len(place.accounts) > 1:
            lines.append(f"# Your accounts: {', '.join(place.accounts)}.")
        if place.gpu is not None:
            lines += gpu_comments(place)
            lines.append(
                "# Options for every job that asks for GPUs; they override those of `slurm`."
            )
            lines.append(f"gpu_slurm: {inline_text({'partition': place.gpu.partition})}")
    lines += [
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
        f"node_local_dir: {inline_text(place.node_local_dir)}",
        "",
        "# What an hour costs; then reports show costs, too.",
        "# price: {gpu_hour: 1.80, currency: EUR}",
    ]
    return "\n".join(lines) + "\n"


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
    return shipped_text("configs", f"{name}.yaml")


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


_Inspected = tuple[Data, dict[str, bytes], list[RowSize], list[str]]
_NO_PILLOW = "image sizes were not read: this Python has no Pillow (slurm-jobs[train] brings it)"
NONE_READ = "no image could be opened"
"""Prefix of the note that no image could be read, which is printed last."""
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
    model: str = starter_data.DEFAULT_MODEL
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


def begin(request: Request, place: Place) -> WrittenSpec:
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
    written, kept = _write(request.folder, texts)
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
    request: Request, path: Path, place: Place, profile: str
) -> tuple[str, dict[str, bytes], list[str]]:
    """Return a spec for a user's data, the manifests to write, and notes."""
    text = shipped_text("templates", "starter", "finetune.yaml")
    name = request.name or "finetune"
    data, manifests, rows, notes = _inspect_data(path, request.folder, name)
    model = starter_data.inspect_weights(
        request.model, as_named=_as_named(Path(request.model), request.folder)
    )
    lengths = choose_lengths(rows, starter_data.image_rules(request.model))
    text = with_lengths(text, lengths)
    notes += lengths.notes
    if model.is_on_hub:
        text = with_download(text)
        notes.append(f"model: {model.name}, which the stage `models` downloads on a node")
        if model.name != starter_data.DEFAULT_MODEL:
            notes.append(f"note: {starter_data.hub_note(model.name)}")
    if place.gpu is None:
        notes.append(f"{_without_gpus('train', place)}, so the spec trains on CPU cores")
    text = edit_text(text, own_changes(name, profile, data, model, place))
    text, changes = _with_fitting_resources(text, place)
    return text, manifests, [*notes, *changes]


def _fitted(text: str, place: Place, profile: str) -> tuple[str, list[str]]:
    """Return a recipe with this cluster's profile, and resources within what it has."""
    text = _CLUSTER.sub(lambda _line: f"cluster: {profile}", text, count=1)
    stages = stages_of(text)
    text, notes = _with_fitting_resources(text, place)
    on_gpus = [n for n, stage in stages.items() if stage.get("resources", {}).get("gpus_per_node")]
    if on_gpus and place.gpu is None:
        notes.append(_without_gpus(", ".join(on_gpus), place))
    return text, notes


def _without_gpus(stages: str, place: Place) -> str:
    none = (
        "you have none here (`sinfo -o '%P %G'`)" if place.is_slurm else "this machine shows none"
    )
    return f"{stages} is meant for GPUs, and {none}"


def _with_fitting_resources(text: str, place: Place) -> tuple[str, list[str]]:
    changes = list(fitting_changes(stages_of(text), place))
    notes = []
    for path, resources in changes:
        resources_text = ", ".join(f"{key} {value}" for key, value in resources.items())
        notes.append(f"{path[1]} asks for what this cluster has: {resources_text}")
    return edit_text(text, changes), notes


def _inspect_data(path: Path, folder: Path, name: str) -> _Inspected:
    """Return the data, manifests to write, sizes, and notes on them."""
    if data_files.is_image_folder(path):
        manifest, held_out = image_folder.metadata_files(path)
        if manifest is None or data_files.captions_win(path, manifest):
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
        rows, unread = _listed_sizes(manifest)
        return data, {}, rows, [*lines, *unread]
    data = data_files.inspect_data(path, as_named=_as_named(path, folder))
    _refuse_unreadable(path, "train on")
    rows, unread = _listed_sizes(path)
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


def _listed_sizes(manifest: Path) -> tuple[list[RowSize], list[str]]:
    """Return the sizes of the first rows of a manifest, and notes on those not measured."""
    files, manifest = disk_files(), data_files.expanded(manifest).absolute()
    rows = [row for row in files.first_rows(str(manifest), RowOptions()) if not row.problem]
    has_images = any(row.images for row in rows)
    if has_images and not read_spec.can_read_sizes():
        return [], [_NO_PILLOW]
    root, most = files.image_root_of(str(manifest)), read_spec.MAX_HEADERS
    picked = pick_rows(rows, most)
    measured: list[RowSize] = []
    unread = []
    for row in picked:
        size = measure(row, lambda image: read_spec.size_of(image, root), most=most)
        if size is None:
            unread.append(row)
        else:
            measured.append(size)
    notes = []
    if unread:
        notes.append(
            f"the images of {len(unread):,} of {len(picked):,} rows could not be measured; the "
            f"first is {unread[0].origin}: {printable(unread[0].images[0].value)}"
        )
    is_known = not has_images or any(row.images for row in measured)
    return measured if is_known else [], notes


def _row_sizes(rows: image_folder.Rows) -> tuple[list[RowSize], list[str]]:
    """Return the sizes of at most 1,000 rows, and notes on unreadable images."""
    if not read_spec.can_read_sizes():
        return [], [_NO_PILLOW]
    measured, unread = [], []
    places = spread(len(rows.files), read_spec.MAX_HEADERS)
    for file, words in ((rows.files[place], rows.words[place]) for place in places):
        size = read_spec.read_size(file)
        if size is None:
            unread.append(file)
        else:
            measured.append(RowSize(images=(size,), num_text_bytes=len(words.encode())))
    if not unread:
        return measured, []
    first = printable(str(unread[0]))
    if not measured and all(file.suffix.lower() in _MEASURED for file in unread):
        return [], [f"{NONE_READ}: {number_of('file', len(unread))} tried, the first is {first}"]
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


def _write(folder: Path, texts: dict[str, bytes]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Write the missing files, after checking all."""
    try:
        present: dict[str, bytes] = {}
        for name in sorted(texts):
            with suppress(FileNotFoundError):
                present[name] = read_bytes(folder / name)
        other = [name for name, content in present.items() if content != texts[name]]
        if other:
            message = (
                f"{folder} has other files of these names: {', '.join(other)}; name another "
                "folder, or another spec with --name, or move them away"
            )
            raise InputError(message)
        new = [name for name in sorted(texts) if name not in present]
        for name in new:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            write_bytes_atomic(folder / name, texts[name])
    except OSError as error:
        message = f"cannot write {error.filename or folder}: {error.strerror}"
        raise FileError(message) from error
    return tuple(folder / name for name in new), tuple(folder / name for name in present)


# Place of the jobs of a first spec: the cluster of this login node, or this machine.


LOCAL = "local"
_GPUS_DIR = Path("/proc/driver/nvidia/gpus")
"""Folder in which NVIDIA's driver lists its GPUs."""


def inspect_cluster(
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
            f"Slurm does not report its nodes, and nothing was written: {unknown}; run the "
            "command again once `sinfo` answers here, or add --local to run the jobs on this "
            "machine"
        )
        raise SchedulerError(message)
    groups = []
    for number in os.getgroups():
        with suppress(KeyError):  # a number without a name
            groups.append(grp.getgrgid(number).gr_name)
    place = choose_place(
        limits,
        groups=groups,
        node_local_dir=limits.tmp_dir or "/tmp",  # noqa: S108 - as the profile's default
        account=account,
        partition=partition,
    )
    partitions = {room.partition or "" for room in place.gpu_rooms}
    for option, value, known in (
        ("--account", account, {*place.accounts}),
        ("--partition", partition, partitions),
    ):
        if value is not None and known and value not in known:  # without known ones Slurm decides
            have = ", ".join(sorted(known))
            message = f"{option} {value}: not here, or not yours (you have: {have})"
            raise InputError(message)
    return place
