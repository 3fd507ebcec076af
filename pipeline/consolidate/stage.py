"""Stage `consolidate`: each array task writes a range of shards; the last finishes the data set."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import xxhash

from pipeline.consolidate.parts import (
    PIECES_DIR,
    Parts,
    Piece,
    PiecePaths,
    PieceRows,
    gather_parts,
    iter_rows,
    read_pieces,
    remove_other_pieces,
    write_piece,
)
from pipeline.consolidate.write_shards import Deal, make_deal, shards_of_task, write_shards
from pipeline.data.format import (
    REJECTS_NAME,
    DatasetInfo,
    IndexInfo,
    dataset_info_to_json,
    shard_name,
)
from pipeline.data.index import INDEX_TYPES, ColumnsWriter, index_statistics, open_index
from pipeline.preprocess.processor_folders import hash_folder
from pipeline.preprocess.rejects import pixels_of_token, too_long_remedies
from pipeline.stopping import StopGuard
from slurm_jobs.shared.config import build_config
from slurm_jobs.shared.configs.stages import ConsolidateConfig
from slurm_jobs.shared.dataset_folder import INDEX_NAME, INFO_NAME, PROCESSOR_DIR, SHARDS_DIR
from slurm_jobs.shared.errors import StageConfigError, StageError
from slurm_jobs.shared.files import (
    Progress,
    atomic_writer,
    describe_outputs,
    make_private_dir,
    remove_leftovers,
    sync_dir,
    write_bytes_atomic,
    write_json_atomic,
)
from slurm_jobs.shared.manifests.text_rows import text_alone
from slurm_jobs.shared.processors.processor_files import processor_checksums, processor_files
from slurm_jobs.shared.records import TaskContext, resume_command

# Pieces of all array tasks -> the data set: index, processor, rejects, and `dataset.json` last.
#
# The task that writes the last piece does this. If two tasks find all pieces at the same time,
# both do it and write the same bytes. Every file is written in the task's own folder and moved to
# its place, so no task sees unfinished files of another task or of a killed attempt.


SHARD_FILE = re.compile(r"shard-\d+\.tar")
_BLOCK_BYTES = 1 << 20
_LEFTOVER = re.compile(r"\.(.+)\.[0-9a-f]+\.tmp")
"""File name of an unfinished `atomic_writer`, with the name of its target."""


def finish_dataset(
    parts: Parts,
    paths: Sequence[PiecePaths],
    pieces: Sequence[Piece],
    piece_paths: PiecePaths,
    seed: int,
) -> DatasetInfo:
    """Write all but the shards, whose existence the pieces prove.

    Raises:
        StageConfigError: the processor changed or disappeared since `preprocess`.
        StageError: the rows of a piece are damaged, or a list of rejects is missing.
    """
    folder, work_dir = piece_paths.output_dir, piece_paths.work_dir
    shards = tuple(shard for piece in pieces for shard in piece.shards)
    names = {shard.name for shard in shards}
    # Temporary files of its own shards stay, because another task may be writing them. Files
    # without a shard's name stay: folders, or the `.nfs...` of a shard that was replaced while it
    # was read, which NFS refuses to remove.
    for path in (folder / SHARDS_DIR).iterdir():
        temporary = _LEFTOVER.fullmatch(path.name)
        target = path.name if temporary is None else temporary[1]
        if SHARD_FILE.fullmatch(target) and target not in names:
            path.unlink(missing_ok=True)
    _copy_processor(parts, work_dir, folder / PROCESSOR_DIR)
    rejects_xxh3 = _merge_rejects(parts, piece_paths)
    with atomic_writer(work_dir / INDEX_NAME) as stream:
        writer = ColumnsWriter(stream, INDEX_TYPES, sum(piece.num_samples for piece in pieces))
        for path, piece in zip(paths, pieces, strict=True):
            for rows in iter_rows(path, piece):
                writer.append(rows)
        index = IndexInfo(num_bytes=writer.num_bytes, xxh3=writer.finish())
    _move(work_dir / INDEX_NAME, folder)
    inputs: Mapping[str, Any] = {
        **parts.model_inputs,
        **{name: tuple(parts.model_inputs[name]) for name in ("image_mean", "image_std")},
    }
    info = DatasetInfo(
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
        rejects_xxh3=rejects_xxh3,
        processor_sha256=processor_checksums(folder / PROCESSOR_DIR),
    )
    write_json_atomic(work_dir / INFO_NAME, dataset_info_to_json(info))
    _move(work_dir / INFO_NAME, folder)
    _tidy(folder / PIECES_DIR, paths)
    return info


def _move(path: Path, folder: Path) -> None:
    path.replace(folder / path.name)
    sync_dir(folder)


def check_processor(parts: Parts) -> None:
    """Refuse a processor that differs from that of the parts.

    Raises:
        StageConfigError: it differs, or does not exist.
    """
    if not parts.processor_dir.is_dir():
        message = (
            f"{parts.processor_dir}: the processor that the parts were made with no longer "
            f"exists; restore it, or preprocess all slices again with another by `{parts.again} "
            f"--set stages.{parts.parent.stage}.config.processor=FOLDER`"
        )
        raise StageConfigError(message)
    actual, expected = hash_folder(parts.processor_dir), parts.settings["processor_xxh3"]
    if actual != expected:
        message = (
            f"{parts.processor_dir}: xxh3 {actual}, but the parts were made with {expected}; the "
            f"processor changed since preprocess, so preprocess all slices again by "
            f"`{parts.again}`"
        )
        raise StageConfigError(message)


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


def _merge_rejects(parts: Parts, piece_paths: PiecePaths) -> str:
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


def run(config: Mapping[str, Any], context: TaskContext) -> dict[str, Any]:
    """Turn the parts of the preprocess stage into a data set, or write this task's share.

    Raises:
        StageConfigError: no preprocess stage before, too many rejects (their list is kept), no
            sample, the processor changed, or the time limit is too short.
        StageError: a part is missing or damaged.
        StageStoppedError: a stop was requested; the shards will be written again.
    """
    started_s = time.perf_counter()
    guard = StopGuard(context, "samples", "raise resources.timeout_min, or array.num_slices")
    stage = build_config(ConsolidateConfig, config)
    try:
        parent = context.parent_running("preprocess")
    except LookupError as error:
        raise StageConfigError(str(error)) from error
    parts = gather_parts(parent)
    paths = tuple(
        PiecePaths(output_dir=context.output_dir, slice_index=i, num_slices=context.num_slices)
        for i in range(context.num_slices)
    )
    piece_paths = paths[context.slice_index]
    with _work_dir(piece_paths):
        check_processor(parts)
        _check_losses(parts, stage, context, piece_paths)
        _check_pictures(parts, stage, context)
        deal = make_deal(stage, num_samples=parts.num_samples, num_bytes=parts.num_bytes)
        # all that determines each sample's position and bytes
        words = f"{parts.identity} {stage.seed} {deal.num_shards}"
        dealing = xxhash.xxh3_128_hexdigest(words.encode())
        piece = _write_own(parts, deal, stage, context, piece_paths, dealing=dealing, guard=guard)
        pieces = read_pieces(paths, dealing)
        info = None
        if pieces is not None:
            info = finish_dataset(parts, paths, pieces, piece_paths, stage.seed)
    folder = context.output_dir
    numbers: dict[str, Any] = {
        "num_samples": piece.num_samples,
        "num_shards": len(piece.shards),
        "num_bytes": sum(shard.num_bytes for shard in piece.shards),
        "num_tokens": piece.num_tokens,
        "num_images": piece.num_images,
    }
    # this task's files; not files that trainings or users added
    files = [folder / SHARDS_DIR / shard.name for shard in piece.shards]
    if context.num_slices > 1:
        files += [piece_paths.rows, piece_paths.info]
    if info is not None:  # only the finishing task reports these, so that sums are right
        index = open_index(folder / INDEX_NAME, info.index, num_samples=info.num_samples)
        numbers |= {
            "num_rejected": parts.num_rejected,
            "rejects_by_reason": parts.rejects_by_reason,
            "fingerprint": info.fingerprint,
            "statistics": index_statistics(index, info),
        }
        files += [folder / name for name in (INFO_NAME, INDEX_NAME, REJECTS_NAME)]
        files += processor_files(folder / PROCESSOR_DIR)
    return {
        **numbers,
        "outputs": describe_outputs(folder, files),
        "duration_s": round(time.perf_counter() - started_s, 3),
    }


@contextmanager
def _work_dir(piece_paths: PiecePaths) -> Iterator[None]:
    """Provide this task's own folder, empty; it is removed afterwards."""
    shutil.rmtree(piece_paths.work_dir, ignore_errors=True)  # of a killed attempt
    make_private_dir(piece_paths.work_dir)
    try:
        yield
    finally:
        shutil.rmtree(piece_paths.work_dir, ignore_errors=True)
        if piece_paths.num_slices == 1:  # otherwise another task may be about to write there
            with suppress(OSError):  # its piece exists, but the data set could not be finished
                piece_paths.work_dir.parent.rmdir()


def _check_losses(
    parts: Parts, stage: ConsolidateConfig, context: TaskContext, piece_paths: PiecePaths
) -> None:
    """Refuse to continue if too many rows were lost over all slices; keep the list of all rejects.

    Raises:
        StageConfigError: in this case, or if no row became a sample.
    """
    limit, counts = parts.reject_limit, parts.rejects_by_reason
    if stage.max_reject_share is not None:
        limit = replace(limit, max_reject_share=stage.max_reject_share)
    if stage.max_too_long_share is not None:
        limit = replace(limit, max_too_long_share=stage.max_too_long_share)
    origin = parts.parent.origin or parts.parent.stage
    problem = limit.problem(counts)
    if not parts.num_samples:
        problem = limit.nothing_left(
            counts, parts.settings, fixed=parts.again, run=str(context.run_dir), stage=origin
        )
    elif problem:
        setting = f"stages.{context.stage}.config.max_reject_share={limit.needed_share(counts):g}"
        problem = (
            f"{problem}. Fix these rows, then `{parts.again}`. To continue without them, keeping "
            f"all parts: `{resume_command(context.run_dir, '--set', setting)}`"
        )
    elif limit.too_long_problem(counts, [], parts.settings):
        lengths = parts.too_long_lengths()
        command = resume_command(context.run_dir, "--set", "stages")
        remedies = too_long_remedies(
            counts,
            lengths,
            pixels_of_token=pixels_of_token(parts.model_inputs),
            max_tokens=parts.settings["max_tokens"],
        )
        problem = (
            f"{limit.too_long_problem(counts, lengths, parts.settings)}. Keep these rows by "
            f"{remedies} with `{command}.{origin}.config.KEY=VALUE`, or leave them out by "
            f"`{command}.{context.stage}.config.max_too_long_share="
            f"{limit.needed_too_long_share(counts):g}`, which keeps all parts"
        )
    if problem:
        _merge_rejects(parts, piece_paths)
        message = (
            f"{parts.settings['manifest']}: {problem}. All rejects: "
            f"{piece_paths.output_dir / REJECTS_NAME}"
        )
        raise StageConfigError(message)


def _check_pictures(parts: Parts, stage: ConsolidateConfig, context: TaskContext) -> None:
    """Refuse a data set without pictures that is not meant so; the first rows alone may be text.

    Raises:
        StageConfigError: no sample has a picture, and neither config has `text_only`.
    """
    is_meant = parts.text_only if stage.text_only is None else stage.text_only
    if parts.first_text_row is None or is_meant or context.limit is not None:
        return
    setting = f"stages.{context.stage}.config.text_only=true"
    command = resume_command(context.run_dir, "--set", setting)
    rows = f"none of the {parts.num_samples:,} samples has"
    if parts.num_samples == 1:
        rows = "the only sample does not have"
    remedy = f"keep all parts by `{command}`"
    problem = text_alone(rows, parts.first_text_row, remedy=remedy)
    message = f"{parts.settings['manifest']}: {problem}"
    raise StageConfigError(message)


def _write_own(
    parts: Parts,
    deal: Deal,
    stage: ConsolidateConfig,
    context: TaskContext,
    piece_paths: PiecePaths,
    *,
    dealing: str,
    guard: StopGuard,
) -> Piece:
    """Write this task's shards, and the piece that proves them."""
    shards = shards_of_task(deal.num_shards, piece_paths.slice_index, piece_paths.num_slices)
    folder = context.output_dir / SHARDS_DIR
    # While this task is working, the data set is incomplete, and no other task can finish it.
    (context.output_dir / INFO_NAME).unlink(missing_ok=True)
    piece_paths.info.unlink(missing_ok=True)
    remove_other_pieces(piece_paths, dealing)
    make_private_dir(folder)
    for path in (piece_paths.info, piece_paths.rows, *(folder / shard_name(s) for s in shards)):
        remove_leftovers(path.parent, path.name)  # of killed attempts
    progress = Progress(context.task_dir, "samples", len(deal.places(shards)))
    with atomic_writer(piece_paths.work_dir / piece_paths.rows.name) as stream:
        index = PieceRows(stream, len(deal.places(shards)))
        written = write_shards(
            parts,
            deal,
            shards,
            folder,
            index=index,
            progress=progress,
            guard=guard,
            num_threads=stage.num_read_threads,
        )
    (piece_paths.work_dir / piece_paths.rows.name).replace(piece_paths.rows)
    piece = index.finish(dealing, written)
    write_piece(piece_paths, piece)
    return piece
