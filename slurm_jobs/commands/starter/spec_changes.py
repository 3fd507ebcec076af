"""Changes to a starter's text that fit it to data, model and cluster."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from slurm_jobs.commands.starter.place_choice import (
    TRAIN_MIN,
    minutes,
    needs_4_bits,
    num_slices,
    train_mem_gb,
)
from slurm_jobs.commands.starter.sample_lengths import LengthLimits
from slurm_jobs.commands.starter.starter_facts import Data, JobPlace, Model, PartitionRoom
from slurm_jobs.formats.configs.stages import DEFAULT_MAX_IMAGES, DEFAULT_MAX_TOKENS
from slurm_jobs.formats.configs.training_parts import DEFAULT_NUM_LANES
from slurm_jobs.formats.processors.model_types import SMALL_VLM
from slurm_jobs.spec.yaml.document import KeyPath

Change = tuple[KeyPath, Any]
_TRAIN: KeyPath = ("stages", "train")
_BATCH = 32
_PACK_TOKENS = 4096
"""Length of a row of packed samples in the starter."""
_PACKED_ROWS = "# rows per step, over all GPUs; packed, a row has several samples"
"""Comment of the starter's `global_batch_size`."""
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


def with_lengths(text: str, lengths: LengthLimits) -> str:
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


def without_share(text: str, data: Data) -> str:
    """Remove the comment on a held-out share where a split of the data is evaluated."""
    return text if data.written_evaluation is None else without_share_comment(text)


def without_share_comment(text: str) -> str:
    """Remove the comment on a held-out share."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("      # held_out: "))


def with_few_rows(text: str, data: Data) -> str:
    """Correct the comments on a training whose rows are too few to be packed."""
    if not _is_small(data):
        return text
    text = without_packing(text)
    reason = f"at least {_STEPS} steps, because the rows are few"
    key = "      num_epochs: 1"
    return text.replace(f"{key}\n", f"{key:<39}# {reason}\n", 1)


def without_packing(text: str) -> str:
    """Correct the comments on a training whose rows have one sample each."""
    text = text.replace(_PACKED_ROWS, "# samples per step, over all GPUs", 1)
    return text.replace("   # rows without padding", "   # samples of similar length together", 1)


def _is_small(data: Data) -> bool:
    return data.num_rows is not None and data.num_rows < _STEPS * _BATCH


def own_changes(name: str, profile: str, data: Data, model: Model, place: JobPlace) -> list[Change]:
    """Return the changes for a user's own data, after `with_download` for a model on the hub."""
    room = place.gpu or place.cpu
    ranks = max(1, room.gpus)
    folder = "${models.output_dir}/vlm" if model.is_on_hub else model.name
    # The default number of lanes if the GPUs of a node divide it, otherwise one for each.
    lanes = ranks if place.gpu is not None and DEFAULT_NUM_LANES % ranks else DEFAULT_NUM_LANES
    # A batch of 32 or a little more, 8 for few rows; the same per lane, and so per GPU.
    is_small = _is_small(data)
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
    if data.written_evaluation is not None:
        steps = epochs * (data.num_rows or 0) // batch
        every_steps = max(1, min(100, steps // 5 or 100))
        train["evaluate"] = {
            "manifest": data.written_evaluation,
            **image_root,
            "every_steps": every_steps,
        }
    if ranks == 1:  # no sharding on one GPU
        train["strategy"] = "single"
    if place.gpu is None:
        train["device"] = "cpu"
    elif needs_4_bits(model, place.gpu):
        train["quantize"] = {"kind": "nf4", "double": True}
    slices = num_slices(data, place.limits)
    preprocess: dict[str, Any] = {
        "manifest": data.written_manifest,
        "processor": folder,
        **image_root,
    }
    if data.columns:
        preprocess["columns"] = dict(data.columns)
    if model.chat_template is not None:
        preprocess["chat_template"] = model.chat_template
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


def fitting_changes(stages: Mapping[str, Any], place: JobPlace) -> Iterator[Change]:
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


def _fitting(asked: Mapping[str, Any], room: PartitionRoom) -> dict[str, Any]:
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
