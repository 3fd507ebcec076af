"""The stage: each array task writes its run of shards; the last one finishes the data set."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import xxhash

from pipeline.consolidate.deal import Deal, make_deal, shards_of_task
from pipeline.consolidate.finish import check_processor, finish_dataset, merge_rejects
from pipeline.consolidate.parts import Parts, gather_parts
from pipeline.consolidate.pieces import (
    Piece,
    PiecePaths,
    PieceRows,
    read_pieces,
    remove_other_pieces,
    write_piece,
)
from pipeline.consolidate.shards import write_shards
from pipeline.data.index import open_index
from pipeline.data.info import REJECTS_NAME, DatasetInfo, shard_name
from pipeline.data.statistics import index_statistics
from pipeline.preprocess.rejects import RejectLimit, pixels_of_token, too_long_remedies
from pipeline.stopping import StopGuard
from slurm_jobs.common.config_values import build_config
from slurm_jobs.common.context import TaskContext, resume_command
from slurm_jobs.common.dataset_names import INDEX_NAME, INFO_NAME, PROCESSOR_DIR, SHARDS_DIR
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.files import atomic_writer, make_private_dir, remove_leftovers
from slurm_jobs.common.outputs import describe_outputs
from slurm_jobs.common.processors.files import processor_files
from slurm_jobs.common.progress import Progress
from slurm_jobs.common.stage_config.consolidate import ConsolidateConfig


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
    parts = _gather(context)
    paths = tuple(
        PiecePaths(output_dir=context.output_dir, slice_index=i, num_slices=context.num_slices)
        for i in range(context.num_slices)
    )
    own = paths[context.slice_index]
    with _workplace(own):
        _check(parts, stage, context, own)
        deal = make_deal(stage, num_samples=parts.num_samples, num_bytes=parts.num_bytes)
        dealing = dealing_of(parts, stage, deal)
        piece = _write_own(parts, deal, stage, context, own, dealing=dealing, guard=guard)
        pieces = read_pieces(paths, dealing)
        info = None if pieces is None else finish_dataset(parts, paths, pieces, own, stage.seed)
    return {
        **_own_numbers(piece),
        **_numbers_of_all(parts, info, context.output_dir),
        "outputs": describe_outputs(context.output_dir, _outputs(own, piece, info)),
        "duration_s": round(time.perf_counter() - started_s, 3),
    }


def dealing_of(parts: Parts, stage: ConsolidateConfig, deal: Deal) -> str:
    """Return xxh3-128 of everything that determines each sample's position and bytes."""
    words = f"{parts.identity} {stage.seed} {deal.num_shards}"
    return xxhash.xxh3_128_hexdigest(words.encode())


def _gather(context: TaskContext) -> Parts:
    try:
        parent = context.parent_running("preprocess")
    except LookupError as error:
        raise StageConfigError(str(error)) from error
    return gather_parts(parent)


@contextmanager
def _workplace(own: PiecePaths) -> Iterator[None]:
    """Provide this task's own folder, empty; it is removed afterwards."""
    shutil.rmtree(own.workplace, ignore_errors=True)  # of a killed attempt
    make_private_dir(own.workplace)
    try:
        yield
    finally:
        shutil.rmtree(own.workplace, ignore_errors=True)
        if own.num_slices == 1:  # otherwise another task may be about to write there
            with suppress(OSError):  # its piece exists, but the data set could not be finished
                own.workplace.parent.rmdir()


def _check(parts: Parts, stage: ConsolidateConfig, context: TaskContext, own: PiecePaths) -> None:
    """Refuse to continue if the processor changed, or too many rows were lost over all slices.

    Raises:
        StageConfigError: in these cases, or if no row became a sample; the list of all rejects
            is kept.
    """
    check_processor(parts)
    limit = parts.reject_limit
    if stage.max_reject_share is not None:
        limit = replace(limit, max_reject_share=stage.max_reject_share)
    if stage.max_too_long_share is not None:
        limit = replace(limit, max_too_long_share=stage.max_too_long_share)
    problem = _too_few_left(parts, limit, context)
    if problem:
        rejects, _ = merge_rejects(parts, own)
        message = f"{parts.settings['manifest']}: {problem}. All rejects: {rejects}"
        raise StageConfigError(message)


def _too_few_left(parts: Parts, limit: RejectLimit, context: TaskContext) -> str | None:
    origin, run = parts.parent.origin or parts.parent.stage, context.run_dir
    problem = limit.problem(parts.rejects_by_reason)
    if problem and parts.num_samples:
        needed = limit.needed_share(parts.rejects_by_reason)
        setting = f"stages.{context.stage}.config.max_reject_share={needed:g}"
        return (
            f"{problem}. Fix these rows, then `{parts.again}`. To continue without them, keeping "
            f"all parts: `{resume_command(run, '--set', setting)}`"
        )
    if not parts.num_samples:
        return limit.nothing_left(
            parts.rejects_by_reason,
            parts.settings,
            fixed=parts.again,
            run=str(run),
            stage=origin,
        )
    if limit.too_long_problem(parts.rejects_by_reason, [], parts.settings) is None:
        return None
    return _too_many_long(parts, limit, context)


def _too_many_long(parts: Parts, limit: RejectLimit, context: TaskContext) -> str:
    """Return the message if too many rows are too long."""
    lengths, counts = parts.too_long_lengths(), parts.rejects_by_reason
    remedies = too_long_remedies(
        counts,
        lengths,
        pixels_of_token=pixels_of_token(parts.model_inputs),
        max_tokens=parts.settings["max_tokens"],
    )
    command = resume_command(context.run_dir, "--set", "stages")
    origin = parts.parent.origin or parts.parent.stage
    return (
        f"{limit.too_long_problem(counts, lengths, parts.settings)}. Keep these rows by {remedies} "
        f"with `{command}.{origin}.config.KEY=VALUE`, or leave them out by `{command}."
        f"{context.stage}.config.max_too_long_share={limit.needed_too_long_share(counts):g}`, "
        "which keeps all parts"
    )


def _write_own(
    parts: Parts,
    deal: Deal,
    stage: ConsolidateConfig,
    context: TaskContext,
    own: PiecePaths,
    *,
    dealing: str,
    guard: StopGuard,
) -> Piece:
    """Write this task's shards, and the piece that proves them."""
    shards = shards_of_task(deal.num_shards, own.slice_index, own.num_slices)
    _make_room(shards, context.output_dir, own, dealing)
    progress = Progress(context.task_dir, "samples", len(deal.places(shards)))
    with atomic_writer(own.workplace / own.rows.name) as stream:
        index = PieceRows(stream, len(deal.places(shards)))
        written = write_shards(
            parts,
            deal,
            shards,
            context.output_dir / SHARDS_DIR,
            index=index,
            progress=progress,
            guard=guard,
            num_threads=stage.num_read_threads,
        )
    (own.workplace / own.rows.name).replace(own.rows)
    piece = index.finish(dealing, written)
    write_piece(own, piece)
    return piece


def _make_room(shards: range, output_dir: Path, own: PiecePaths, dealing: str) -> None:
    """Remove the proofs of shards that will be written, and remains of killed attempts.

    While one task is working, the data set is incomplete, and no other task can finish it.
    """
    (output_dir / INFO_NAME).unlink(missing_ok=True)
    own.info.unlink(missing_ok=True)
    remove_other_pieces(own, dealing)
    for path in (own.info, own.rows):
        remove_leftovers(path.parent, path.name)
    folder = output_dir / SHARDS_DIR
    make_private_dir(folder)
    for shard in shards:
        remove_leftovers(folder, shard_name(shard))


def _own_numbers(piece: Piece) -> dict[str, Any]:
    return {
        "num_samples": piece.num_samples,
        "num_shards": len(piece.shards),
        "num_bytes": sum(shard.num_bytes for shard in piece.shards),
        "num_tokens": piece.num_tokens,
        "num_images": piece.num_images,
    }


def _numbers_of_all(parts: Parts, info: DatasetInfo | None, folder: Path) -> dict[str, Any]:
    """Return results that only the finishing task reports, so that sums over tasks are right."""
    if info is None:
        return {}
    index = open_index(folder / INDEX_NAME, info.index, num_samples=info.num_samples)
    return {
        "num_rejected": parts.num_rejected,
        "rejects_by_reason": parts.rejects_by_reason,
        "fingerprint": info.fingerprint,
        "statistics": index_statistics(index, info),
    }


def _outputs(own: PiecePaths, piece: Piece, info: DatasetInfo | None) -> list[Path]:
    """Return the files of this task; not files that trainings or users added."""
    folder = own.output_dir
    files = [folder / SHARDS_DIR / shard.name for shard in piece.shards]
    if own.num_slices > 1:
        files += [own.rows, own.info]
    if info is not None:
        files += [folder / name for name in (INFO_NAME, INDEX_NAME, REJECTS_NAME)]
        files += processor_files(folder / PROCESSOR_DIR)
    return files
