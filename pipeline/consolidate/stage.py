"""The stage's function: gather the parts, deal the samples, write shards, index and proof."""

from __future__ import annotations

import io
import itertools
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from pipeline.consolidate.deal import choose_num_shards, shard_bounds, shuffle
from pipeline.consolidate.parts import PartReader, Parts, gather_parts
from pipeline.data.index import DatasetIndex, write_index
from pipeline.data.info import (
    INDEX_NAME,
    INFO_NAME,
    PROCESSOR_DIR,
    REJECTS_NAME,
    SHARDS_DIR,
    DatasetInfo,
    ShardInfo,
    dataset_info_to_json,
    shard_name,
)
from pipeline.data.tar import END_OF_ARCHIVE
from pipeline.preprocess.processors import hash_folder, processor_files
from pipeline.stopping import StopGuard
from slurm_jobs.common.config_values import build_config
from slurm_jobs.common.context import TaskContext
from slurm_jobs.common.errors import StageConfigError, StageError
from slurm_jobs.common.files import (
    atomic_writer,
    make_private_dir,
    remove_leftovers,
    write_bytes_atomic,
    write_json_atomic,
)
from slurm_jobs.common.outputs import describe_outputs
from slurm_jobs.common.progress import Progress
from slurm_jobs.common.stage_config.consolidate import ConsolidateConfig


def run(config: Mapping[str, Any], context: TaskContext) -> dict[str, Any]:
    """Turn the parts of the preprocess stage before this one into a data set.

    Raises:
        StageConfigError: no preprocess stage before, too many rejects (their
            list is kept), no sample, the processor changed, or the time limit
            is too short.
        StageError: a part is missing or damaged.
        StageStoppedError: asked to stop; the shards are written anew.
    """
    started_s = time.perf_counter()
    guard = StopGuard(context, "samples", "raise resources.timeout_min")
    stage = build_config(ConsolidateConfig, config)
    parts = _gather(context)
    info = _write_dataset(parts, stage, context, guard)
    return {
        "num_samples": info.num_samples,
        "num_shards": info.num_shards,
        "num_bytes": info.num_bytes,
        "num_tokens": info.num_tokens,
        "num_images": info.num_images,
        "num_rejected": parts.num_rejected,
        "rejects_by_reason": parts.rejects_by_reason,
        "fingerprint": info.fingerprint,
        "outputs": describe_outputs(
            context.output_dir, (p for p in context.output_dir.rglob("[!.]*") if p.is_file())
        ),
        "duration_s": round(time.perf_counter() - started_s, 3),
    }


def _gather(context: TaskContext) -> Parts:
    try:
        parent = context.parent_running("preprocess")
    except LookupError as error:
        raise StageConfigError(str(error)) from error
    return gather_parts(parent)


def _write_dataset(
    parts: Parts, stage: ConsolidateConfig, context: TaskContext, guard: StopGuard
) -> DatasetInfo:
    """Write all files of the data set; `dataset.json`, which proves the others, comes last."""
    folder = context.output_dir
    (folder / INFO_NAME).unlink(missing_ok=True)  # an older data set is not whole while it changes
    make_private_dir(folder / SHARDS_DIR)
    for place in (folder, folder / SHARDS_DIR):
        remove_leftovers(place)
    _check_rejects(parts, stage, context)
    order = shuffle(len(parts.samples), stage.seed)
    num_shards = choose_num_shards(
        stage, num_samples=len(order), num_bytes=int(parts.samples.num_bytes.sum())
    )
    bounds = shard_bounds(len(order), num_shards)
    progress = Progress(context.task_dir, "samples", len(order))
    shards = _write_shards(parts, order, bounds, folder / SHARDS_DIR, progress, guard=guard)
    _copy_processor(parts, folder / PROCESSOR_DIR)
    _merge_rejects(parts, folder / REJECTS_NAME)
    index_xxh3 = _write_index(parts, order, bounds, folder / INDEX_NAME)
    info = _describe(parts, shards, seed=stage.seed, index_xxh3=index_xxh3)
    write_json_atomic(folder / INFO_NAME, dataset_info_to_json(info))
    return info


def _check_rejects(parts: Parts, stage: ConsolidateConfig, context: TaskContext) -> None:
    """Refuse to go on if too many rows were lost over all slices.

    Raises:
        StageConfigError: they were, or no row became a sample; the list of all is kept.
    """
    limit = parts.reject_limit
    if stage.max_reject_share is not None:
        limit = replace(limit, max_reject_share=stage.max_reject_share)
    problem = limit.problem(parts.rejects_by_reason)
    if problem:
        problem += (
            f"; mend these rows, or do without them by `slurm-jobs resume {context.run_dir} --set "
            f"stages.{context.stage}.config.max_reject_share=SHARE`, which keeps all parts"
        )
    elif not len(parts.samples):
        problem = "no row became a sample"
    if problem:
        rejects = context.output_dir / REJECTS_NAME
        _merge_rejects(parts, rejects)
        message = f"{parts.settings['manifest']}: {problem}. All rejects: {rejects}"
        raise StageConfigError(message)


def _write_shards(
    parts: Parts,
    order: np.ndarray,
    bounds: np.ndarray,
    folder: Path,
    progress: Progress,
    *,
    guard: StopGuard,
) -> list[ShardInfo]:
    with PartReader(parts) as reader:
        shards = [
            _write_shard(
                reader,
                order[start:stop],
                folder / shard_name(shard),
                progress,
                guard=guard,
                num_before=int(start),
            )
            for shard, (start, stop) in enumerate(itertools.pairwise(bounds))
        ]
    names = {shard.name for shard in shards}
    for path in folder.glob("shard-*.tar"):  # of an attempt that was dealt otherwise
        if path.name not in names:
            path.unlink()
    return shards


def _write_shard(
    reader: PartReader,
    numbers: np.ndarray,
    path: Path,
    progress: Progress,
    *,
    guard: StopGuard,
    num_before: int,
) -> ShardInfo:
    digest, num_bytes = xxhash.xxh3_64(), 0
    with atomic_writer(path) as stream:
        for num_done, number in enumerate(numbers, start=num_before + 1):
            guard.check(num_done - 1, progress.total)
            data = reader.read(int(number))
            stream.write(data)
            digest.update(data)
            num_bytes += len(data)
            progress.update(num_done)
        stream.write(END_OF_ARCHIVE)
        digest.update(END_OF_ARCHIVE)
    return ShardInfo(
        name=path.name,
        num_bytes=num_bytes + len(END_OF_ARCHIVE),
        xxh3=digest.hexdigest(),
        num_samples=len(numbers),
    )


def make_index(parts: Parts, order: np.ndarray, bounds: np.ndarray) -> DatasetIndex:
    """The index of the data set: samples at their places, offsets counted within each shard."""
    samples = parts.samples
    num_bytes = samples.num_bytes[order]
    ends = np.cumsum(num_bytes)
    starts = ends - num_bytes
    num_in_shard = np.diff(bounds)
    shard_starts = starts[bounds[:-1]]
    return DatasetIndex(
        key=samples.key[order],
        shard=np.repeat(np.arange(len(num_in_shard), dtype=np.int32), num_in_shard),
        offset=starts - np.repeat(shard_starts, num_in_shard),
        num_bytes=num_bytes,
        num_tokens=samples.num_tokens[order],
        num_supervised_tokens=samples.num_supervised_tokens[order],
        num_images=samples.num_images[order],
        xxh3=samples.xxh3[order],
    )


def _write_index(parts: Parts, order: np.ndarray, bounds: np.ndarray, path: Path) -> str:
    """Write the index; returns its xxh3-64 in hexadecimal."""
    stream = io.BytesIO()
    write_index(stream, make_index(parts, order, bounds))
    write_bytes_atomic(path, stream.getvalue())
    return xxhash.xxh3_64_hexdigest(stream.getvalue())


def _copy_processor(parts: Parts, folder: Path) -> None:
    found, expected = hash_folder(parts.processor_dir), parts.settings["processor_xxh3"]
    if found != expected:
        message = (
            f"{parts.processor_dir}: xxh3 {found}, but the parts were made with {expected}; the "
            f"processor changed since preprocess, so preprocess all slices again"
        )
        raise StageConfigError(message)
    make_private_dir(folder)
    files = processor_files(parts.processor_dir)
    for path in files:
        write_bytes_atomic(folder / path.name, path.read_bytes())
    names = {path.name for path in files}
    for path in folder.iterdir():  # of an earlier data set, or of an attempt that was killed
        if path.name not in names:
            path.unlink()


def _merge_rejects(parts: Parts, path: Path) -> None:
    with atomic_writer(path) as stream:
        for part in parts.paths:
            try:
                with part.rejects.open("rb") as source:
                    shutil.copyfileobj(source, stream)
            except FileNotFoundError as error:
                message = f"{part.rejects}: missing; preprocess slice {part.slice_index} again"
                raise StageError(message) from error


def _describe(
    parts: Parts, shards: Sequence[ShardInfo], *, seed: int, index_xxh3: str
) -> DatasetInfo:
    inputs = dict(parts.model_inputs)
    for name in ("image_mean", "image_std"):
        inputs[name] = tuple(inputs[name])
    return DatasetInfo(
        **inputs,
        num_samples=len(parts.samples),
        num_shards=len(shards),
        num_tokens=int(parts.samples.num_tokens.sum()),
        num_images=int(parts.samples.num_images.sum()),
        seed=seed,
        image_format=parts.settings["image_format"],
        preprocess=parts.settings,
        shards=tuple(shards),
        index_xxh3=index_xxh3,
    )
