"""Completion of a data set from the pieces of all tasks; `dataset.json` is written last.

The task that writes the last piece does this. If two tasks find all pieces at the same time,
both do it and write the same bytes. Every file is written in the task's own folder and moved to
its place, so no task sees unfinished files of another task or of a killed attempt.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xxhash

from pipeline.consolidate.join_held_out import join_held_out
from pipeline.consolidate.mixture import Mixture
from pipeline.consolidate.parts import Parts
from pipeline.consolidate.pieces import PIECES_DIR, Piece, PiecePaths, iter_rows
from pipeline.data.disk_format.columns import ColumnsWriter
from pipeline.data.disk_format.dataset_info import (
    REJECTS_NAME,
    DatasetInfo,
    IndexInfo,
    ManifestInfo,
    dataset_info_to_json,
)
from pipeline.data.disk_format.index import INDEX_TYPES
from pipeline.preprocess.processor_folders import hash_folder
from slurm_jobs.base.errors import StageDataError, StageError
from slurm_jobs.base.files import (
    atomic_writer,
    make_private_dir,
    sync_dir,
    write_bytes_atomic,
    write_json_atomic,
)
from slurm_jobs.formats.dataset_folder import (
    INDEX_NAME,
    INFO_NAME,
    PROCESSOR_DIR,
    SHARD_FILE,
    SHARDS_DIR,
)
from slurm_jobs.formats.processors.processor_files import processor_checksums, processor_files

_BLOCK_BYTES = 1 << 20
_LEFTOVER = re.compile(r"\.(.+)\.[0-9a-f]+\.tmp")
"""File name of an unfinished `atomic_writer`, with the name of its target."""


def finish_dataset(
    parts: Parts,
    mixture: Mixture,
    paths: Sequence[PiecePaths],
    pieces: Sequence[Piece],
    piece_paths: PiecePaths,
) -> DatasetInfo:
    """Write all but the shards, whose existence the pieces prove.

    Raises:
        StageConfigError: the processor changed or disappeared since `preprocess`.
        StageError: the rows of a piece or held-out rows are damaged, or a list of a part is
            missing.
    """
    folder, work_dir = piece_paths.output_dir, piece_paths.work_dir
    shards = tuple(shard for piece in pieces for shard in piece.shards)
    names = {shard.name for shard in shards}
    # Temporary files of its own shards stay, because another task may be writing them. Files
    # without a shard's name stay: folders, or the `.nfs...` of a shard that was replaced while it
    # was read, which NFS refuses to remove.
    for file in (folder / SHARDS_DIR).iterdir():
        temporary = _LEFTOVER.fullmatch(file.name)
        target = file.name if temporary is None else temporary[1]
        if SHARD_FILE.fullmatch(target) and target not in names:
            file.unlink(missing_ok=True)
    _copy_processor(parts, work_dir, folder / PROCESSOR_DIR)
    rejects_xxh3 = merge_rejects(parts, piece_paths)
    tokens_by_manifest = np.zeros(len(mixture.manifests), dtype=np.int64)
    held_out = join_held_out(parts, piece_paths, mixture.seed)
    with atomic_writer(work_dir / INDEX_NAME) as stream:
        writer = ColumnsWriter(stream, INDEX_TYPES, sum(piece.num_samples for piece in pieces))
        for path, piece in zip(paths, pieces, strict=True):
            for rows in iter_rows(path, piece):
                writer.append(rows)
                if mixture.is_of_list:
                    places = mixture.manifest_of(rows["key"])
                    np.add.at(tokens_by_manifest, places, rows["num_tokens"])
        index = IndexInfo(num_bytes=writer.num_bytes, xxh3=writer.finish())
    _move(work_dir / INDEX_NAME, folder)
    inputs: Mapping[str, Any] = {
        **parts.model_inputs,
        **{name: tuple(parts.model_inputs[name]) for name in ("image_mean", "image_std")},
    }
    info = DatasetInfo(
        **inputs,
        num_samples=mixture.num_samples,
        num_shards=len(shards),
        num_tokens=sum(piece.num_tokens for piece in pieces),
        num_images=sum(piece.num_images for piece in pieces),
        seed=mixture.seed,
        image_format=parts.settings["image_format"],
        preprocess=parts.settings,
        shards=shards,
        index=index,
        rejects_xxh3=rejects_xxh3,
        processor_sha256=processor_checksums(folder / PROCESSOR_DIR),
        manifests=_manifest_infos(mixture, tokens_by_manifest.tolist()),
        held_out=held_out,
    )
    write_json_atomic(work_dir / INFO_NAME, dataset_info_to_json(info))
    _move(work_dir / INFO_NAME, folder)
    _tidy(folder / PIECES_DIR, paths)
    return info


def _manifest_infos(
    mixture: Mixture, tokens_by_manifest: Sequence[int]
) -> tuple[ManifestInfo, ...] | None:
    """Return the facts about the manifests of a list; None without a list."""
    if not mixture.is_of_list:
        return None
    entries = zip(mixture.manifests, mixture.counts, tokens_by_manifest, strict=True)
    return tuple(
        ManifestInfo(
            name=manifest.name,
            path=manifest.path,
            num_rows=manifest.num_rows,
            num_rejected=manifest.num_rows - manifest.num_samples,
            num_samples=num_samples,
            num_tokens=num_tokens,
        )
        for manifest, num_samples, num_tokens in entries
    )


def _move(path: Path, folder: Path) -> None:
    path.replace(folder / path.name)
    sync_dir(folder)


def check_processor(parts: Parts) -> None:
    """Refuse a processor that differs from that of the parts.

    Raises:
        StageDataError: it differs, or does not exist.
    """
    if not parts.processor_dir.is_dir():
        setting = f"stages.{parts.parent.stage}.config.processor=FOLDER"
        message = (
            f"{parts.processor_dir}: the processor that the parts were made with no longer "
            f"exists; restore it, or preprocess all slices again with another by `{parts.again} "
            f"--set {setting}`"
        )
        again = (*parts.again_options, "--set", setting)
        raise StageDataError(message, resumes=[again])
    actual, expected = hash_folder(parts.processor_dir), parts.settings["processor_xxh3"]
    if actual != expected:
        message = (
            f"{parts.processor_dir}: xxh3 {actual}, but the parts were made with {expected}; the "
            f"processor changed since preprocess, so preprocess all slices again by "
            f"`{parts.again}`"
        )
        raise StageDataError(message, resumes=[parts.again_options])


def _copy_processor(parts: Parts, work_dir: Path, folder: Path) -> None:
    check_processor(parts)
    make_private_dir(folder)
    files = processor_files(parts.processor_dir)
    for path in files:
        write_bytes_atomic(work_dir / path.name, path.read_bytes())
        _move(work_dir / path.name, folder)
    names = {path.name for path in files}
    leftovers = [path for path in folder.iterdir() if _LEFTOVER.fullmatch(path.name)]
    for path in [*processor_files(folder), *leftovers]:
        if path.name not in names:  # of an earlier data set, or a killed attempt
            path.unlink(missing_ok=True)


def merge_rejects(parts: Parts, piece_paths: PiecePaths) -> str:
    """Write the rejects of all parts as one list, and return its xxh3-64."""
    merged, digest = piece_paths.work_dir / REJECTS_NAME, xxhash.xxh3_64()
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
    _move(merged, piece_paths.output_dir)
    return digest.hexdigest()


def _tidy(folder: Path, paths: Sequence[PiecePaths]) -> None:
    """Remove the pieces of other deals; all pieces, if one task has made everything.

    The pieces of several tasks are kept, so that each task can be repeated alone.
    """
    needed_names = {
        file.name for path in paths for file in (path.rows, path.info) if len(paths) > 1
    }
    for file in folder.glob("piece-*"):
        if file.name not in needed_names:
            file.unlink(missing_ok=True)
    work_dirs = {path.work_dir.name for path in paths}
    for place in folder.glob("work-*"):
        if place.name not in work_dirs:  # of a task that was killed when there were more tasks
            shutil.rmtree(place, ignore_errors=True)
