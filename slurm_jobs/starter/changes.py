"""Changes to a starter's text that fit it to data, model and cluster. PURE."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from slurm_jobs.common.model_kinds import SMALL_VLM
from slurm_jobs.common.stage_config.preprocess import DEFAULT_MAX_IMAGES, DEFAULT_MAX_TOKENS
from slurm_jobs.common.stage_config.train import DEFAULT_NUM_LANES
from slurm_jobs.spec.yaml_values import Path
from slurm_jobs.starter.choices import (
    TRAIN_MIN,
    minutes,
    needs_4_bits,
    num_slices,
    train_mem_gb,
)
from slurm_jobs.starter.lengths import Lengths
from slurm_jobs.starter.model import Data, Model, Place, Room

Change = tuple[Path, Any]
_TRAIN: Path = ("stages", "train")
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
        found.append(((*_TRAIN, "config", "evaluate"), _evaluate(data, place.gpu)))
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


def _evaluate(data: Data, room: Room | None) -> dict[str, Any]:
    """Evaluate the held-out rows about five times, if the number of steps is known."""
    steps = _epochs(data, room) * (data.num_rows or 0) // _batch(data, room)
    asked: dict[str, Any] = {"manifest": data.evaluation}
    if data.image_root is not None:
        asked["image_root"] = data.image_root
    return {**asked, "every_steps": max(1, min(100, steps // 5 or 100))}


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
