"""Pieces of all array tasks -> the data set: index, processor, rejects, and `dataset.json` last.

The task that writes the last piece does this. If two tasks find all pieces at the same time,
both do it and write the same bytes. Every file is written in the task's own folder and moved to
its place, so no task sees unfinished files of another task or of a killed attempt.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import xxhash

from pipeline.consolidate.parts import Parts
from pipeline.consolidate.pieces import PIECES_DIR, Piece, PiecePaths, iter_rows
from pipeline.data.columns import ColumnsWriter
from pipeline.data.index import INDEX_TYPES
from pipeline.data.info import REJECTS_NAME, DatasetInfo, IndexInfo, ShardInfo, dataset_info_to_json
from pipeline.preprocess.processors import hash_folder
from slurm_jobs.common.dataset_names import INDEX_NAME, INFO_NAME, PROCESSOR_DIR, SHARDS_DIR
from slurm_jobs.common.errors import StageConfigError, StageError
from slurm_jobs.common.files import (
    atomic_writer,
    make_private_dir,
    sync_dir,
    write_bytes_atomic,
    write_json_atomic,
)
from slurm_jobs.common.processors.files import processor_checksums, processor_files

SHARD_FILE = re.compile(r"shard-\d+\.tar")
_BLOCK_BYTES = 1 << 20
_LEFT = re.compile(r"\.(.+)\.[0-9a-f]+\.tmp")
"""File name of an unfinished `atomic_writer`, with the name of its target."""


def finish_dataset(
    parts: Parts, paths: Sequence[PiecePaths], pieces: Sequence[Piece], own: PiecePaths, seed: int
) -> DatasetInfo:
    """Write all but the shards, whose existence the pieces prove.

    Raises:
        StageConfigError: the processor changed or disappeared since `preprocess`.
        StageError: the rows of a piece are damaged, or a list of rejects is missing.
    """
    folder = own.output_dir
    shards = tuple(shard for piece in pieces for shard in piece.shards)
    _remove_other_shards(folder / SHARDS_DIR, {shard.name for shard in shards})
    _copy_processor(parts, own.workplace, folder / PROCESSOR_DIR)
    _, rejects_xxh3 = merge_rejects(parts, own)
    index = _write_index(paths, pieces, own.workplace / INDEX_NAME)
    _move(own.workplace / INDEX_NAME, folder)
    info = replace(
        _describe(parts, pieces, shards, seed=seed, index=index),
        rejects_xxh3=rejects_xxh3,
        processor_sha256=processor_checksums(folder / PROCESSOR_DIR),
    )
    write_json_atomic(own.workplace / INFO_NAME, dataset_info_to_json(info))
    _move(own.workplace / INFO_NAME, folder)
    _tidy(folder / PIECES_DIR, paths)
    return info


def _move(path: Path, folder: Path) -> None:
    path.replace(folder / path.name)
    sync_dir(folder)


def _remove_other_shards(folder: Path, names: set[str]) -> None:
    """Remove shards of other deals, and their remains from killed attempts.

    The task that writes a current shard removes the shard's remains itself; it may be writing.
    Files without a shard's name are kept: folders, or the `.nfs...` of a shard that was
    replaced while it was read, which NFS refuses to remove.
    """
    for path in folder.iterdir():
        left = _LEFT.fullmatch(path.name)
        meant = path.name if left is None else left[1]
        if SHARD_FILE.fullmatch(meant) and meant not in names:
            path.unlink(missing_ok=True)


def check_processor(parts: Parts) -> None:
    """Refuse another processor than the one the parts were made with.

    Raises:
        StageConfigError: it is another, or does not exist.
    """
    if not parts.processor_dir.is_dir():
        message = (
            f"{parts.processor_dir}: the processor that the parts were made with no longer "
            f"exists; restore it, or preprocess all slices again with another by `{parts.again} "
            f"--set stages.{parts.parent.stage}.config.processor=FOLDER`"
        )
        raise StageConfigError(message)
    found, expected = hash_folder(parts.processor_dir), parts.settings["processor_xxh3"]
    if found != expected:
        message = (
            f"{parts.processor_dir}: xxh3 {found}, but the parts were made with {expected}; the "
            f"processor changed since preprocess, so preprocess all slices again by "
            f"`{parts.again}`"
        )
        raise StageConfigError(message)


def _copy_processor(parts: Parts, workplace: Path, folder: Path) -> None:
    check_processor(parts)
    make_private_dir(folder)
    files = processor_files(parts.processor_dir)
    for path in files:
        write_bytes_atomic(workplace / path.name, path.read_bytes())
        _move(workplace / path.name, folder)
    names = {path.name for path in files}
    left = [path for path in folder.iterdir() if _LEFT.fullmatch(path.name)]
    for path in [*processor_files(folder), *left]:  # of an earlier data set, or a killed attempt
        if path.name not in names:
            path.unlink(missing_ok=True)


def merge_rejects(parts: Parts, own: PiecePaths) -> tuple[Path, str]:
    """Write the rejects of all parts as one list, and return its path and its xxh3-64.

    Raises:
        StageError: the list of a part is missing.
    """
    merged, digest = own.workplace / REJECTS_NAME, xxhash.xxh3_64()
    with atomic_writer(merged) as stream:
        for part in parts.paths:
            try:
                with part.rejects.open("rb") as source:
                    while block := source.read(_BLOCK_BYTES):
                        digest.update(block)
                        stream.write(block)
            except FileNotFoundError as error:
                message = f"{part.rejects}: missing; preprocess slice {part.slice_index} again"
                raise StageError(message) from error
    _move(merged, own.output_dir)
    return own.output_dir / REJECTS_NAME, digest.hexdigest()


def _write_index(paths: Sequence[PiecePaths], pieces: Sequence[Piece], path: Path) -> IndexInfo:
    with atomic_writer(path) as stream:
        writer = ColumnsWriter(stream, INDEX_TYPES, sum(piece.num_samples for piece in pieces))
        for place, piece in zip(paths, pieces, strict=True):
            for rows in iter_rows(place, piece):
                writer.append(rows)
        return IndexInfo(num_bytes=writer.num_bytes, xxh3=writer.finish())


def _describe(
    parts: Parts,
    pieces: Sequence[Piece],
    shards: tuple[ShardInfo, ...],
    *,
    seed: int,
    index: IndexInfo,
) -> DatasetInfo:
    inputs: Mapping[str, Any] = {
        **parts.model_inputs,
        **{name: tuple(parts.model_inputs[name]) for name in ("image_mean", "image_std")},
    }
    return DatasetInfo(
        **inputs,
        num_samples=parts.num_samples,
        num_shards=len(shards),
        num_tokens=sum(piece.num_tokens for piece in pieces),
        num_images=sum(piece.num_images for piece in pieces),
        seed=seed,
        image_format=parts.settings["image_format"],
        preprocess=parts.settings,
        shards=shards,
        index=index,
    )


def _tidy(folder: Path, paths: Sequence[PiecePaths]) -> None:
    """Remove the pieces of other deals; all pieces, if one task has made everything.

    The pieces of several tasks are kept, so that each task can be repeated alone.
    """
    kept = {file.name for path in paths for file in (path.rows, path.info)}
    if len(paths) == 1:
        kept = set()
    for file in folder.glob("piece-*"):
        if file.name not in kept:
            file.unlink(missing_ok=True)
    workplaces = {path.workplace.name for path in paths}
    for place in folder.glob("work-*"):
        if place.name not in workplaces:  # of a task that was killed when there were more tasks
            shutil.rmtree(place, ignore_errors=True)
