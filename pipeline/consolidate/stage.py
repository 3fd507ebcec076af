"""Stage `consolidate`: each array task writes a range of shards; the last finishes the data set."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from typing import Any

import xxhash

from pipeline.consolidate.dealing import Deal, make_deal, shards_of_task
from pipeline.consolidate.finish import check_processor, finish_dataset, merge_rejects
from pipeline.consolidate.mixture import Mixture, make_mixture
from pipeline.consolidate.parts import Parts, gather_parts
from pipeline.consolidate.pieces import (
    Piece,
    PiecePaths,
    PieceRows,
    read_pieces,
    remove_other_pieces,
    write_piece,
)
from pipeline.consolidate.write_shards import write_shards
from pipeline.data.disk_format.dataset_info import (
    REJECTS_NAME,
)
from pipeline.data.disk_format.index import open_index
from pipeline.data.disk_format.index_statistics import index_statistics
from pipeline.preprocess.rejects import pixels_of_token, too_long_remedies
from pipeline.stopping import StopGuard
from slurm_jobs.base.errors import StageConfigError, StageDataError
from slurm_jobs.base.files import atomic_writer, make_private_dir, remove_leftovers
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.stages import (
    CHOSEN_REASONS,
    HELD_OUT,
    PARTLY_HELD_OUT,
    ConsolidateConfig,
)
from slurm_jobs.formats.dataset_folder import (
    HELD_OUT_DIR,
    HELD_OUT_MANIFEST,
    HELD_OUT_PICTURES,
    INDEX_NAME,
    INFO_NAME,
    PROCESSOR_DIR,
    SHARDS_DIR,
    shard_name,
)
from slurm_jobs.formats.manifests.text_rows import text_alone
from slurm_jobs.formats.processors.processor_files import processor_files
from slurm_jobs.formats.records import TaskContext
from slurm_jobs.formats.records.progress_file import Progress
from slurm_jobs.formats.records.stage_outputs import describe_outputs
from slurm_jobs.formats.records.task_context import resume_command


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
        _check_held_out(parts, context)
        mixture = make_mixture(parts, stage, limit=context.limit)
        deal = make_deal(stage, num_samples=mixture.num_samples, num_bytes=mixture.num_bytes)
        # all that determines each sample's position and bytes
        words = f"{parts.identity} {stage.seed} {deal.num_shards}"
        if mixture.is_of_list:
            words += f" {mixture.counts}"
        dealing = xxhash.xxh3_128_hexdigest(words.encode())
        piece = _write_own(
            parts,
            deal,
            stage,
            context,
            piece_paths,
            mixture=mixture,
            dealing=dealing,
            guard=guard,
        )
        pieces = read_pieces(paths, dealing)
        info = None
        if pieces is not None:
            info = finish_dataset(parts, mixture, paths, pieces, piece_paths)
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
        rejected = dict(parts.rejects_by_reason)
        rejected.pop(HELD_OUT, None)
        numbers |= {
            "num_rejected": sum(rejected.values()),
            "rejects_by_reason": rejected,
            "fingerprint": info.fingerprint,
            "statistics": index_statistics(index, info),
        }
        if info.manifests is not None:
            numbers["manifests"] = [asdict(manifest) for manifest in info.manifests]
        files += [folder / name for name in (INFO_NAME, INDEX_NAME, REJECTS_NAME)]
        files += processor_files(folder / PROCESSOR_DIR)
        if info.held_out is not None:
            numbers["num_held_out"] = info.held_out.num_rows
            names = (HELD_OUT_MANIFEST, HELD_OUT_PICTURES)
            files += [folder / HELD_OUT_DIR / name for name in names]
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
        StageDataError: in this case, or if no row became a sample.
    """
    limit, counts = parts.reject_limit, parts.rejects_by_reason
    if stage.max_reject_share is not None:
        limit = replace(limit, max_reject_share=stage.max_reject_share)
    if stage.max_too_long_share is not None:
        limit = replace(limit, max_too_long_share=stage.max_too_long_share)
    origin = parts.parent.origin or parts.parent.stage
    problem = limit.problem(counts)
    resumes: list[tuple[str, ...]] = []
    if not parts.num_samples:
        if not CHOSEN_REASONS.keys() & counts.keys():
            resumes.append(parts.again_options)
        problem = limit.nothing_left(
            counts, parts.settings, fixed=parts.again, run=str(context.run_dir), stage=origin
        )
    elif problem:
        setting = f"stages.{context.stage}.config.max_reject_share={limit.needed_share(counts):g}"
        resumes += [parts.again_options, ("--set", setting)]
        problem = (
            f"{problem}. Fix these rows, then `{parts.again}`. To continue without them, keeping "
            f"all parts: `{resume_command(context.run_dir, '--set', setting)}`"
        )
    elif limit.too_long_problem(counts, [], parts.settings):
        lengths = parts.too_long_lengths()
        command = resume_command(context.run_dir, "--set", "stages")
        share = f"max_too_long_share={limit.needed_too_long_share(counts):g}"
        resumes.append(("--set", f"stages.{context.stage}.config.{share}"))
        remedies = too_long_remedies(
            counts,
            lengths,
            pixels_of_token=pixels_of_token(parts.model_inputs),
            max_tokens=parts.settings["max_tokens"],
        )
        problem = (
            f"{limit.too_long_problem(counts, lengths, parts.settings)}. Keep these rows by "
            f"{remedies} with `{command}.{origin}.config.KEY=VALUE`, or leave them out by "
            f"`{command}.{context.stage}.config.{share}`, which keeps all parts"
        )
    if problem:
        merge_rejects(parts, piece_paths)
        message = (
            f"{parts.settings['manifest']}: {problem}. All rejects: "
            f"{piece_paths.output_dir / REJECTS_NAME}"
        )
        raise StageDataError(message, resumes=resumes)


def _check_pictures(parts: Parts, stage: ConsolidateConfig, context: TaskContext) -> None:
    """Refuse a data set without pictures that is not meant so; the first rows alone may be text.

    Raises:
        StageDataError: no sample has a picture, and neither config has `text_only`.
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
    raise StageDataError(message, resumes=[("--set", setting)])


def _check_held_out(parts: Parts, context: TaskContext) -> None:
    """Refuse a share that holds out no row; the first rows alone may have none.

    Raises:
        StageDataError: it does.
    """
    if parts.num_held_out != 0 or context.limit is not None:
        return
    origin = parts.parent.origin or parts.parent.stage
    setting = f"stages.{origin}.config.held_out.share=NUMBER"
    num_partly = parts.rejects_by_reason.get(PARTLY_HELD_OUT, 0)
    partly = f" ({num_partly:,} have pictures of which some are held out)" if num_partly else ""
    message = (
        f"{parts.settings['manifest']}: held_out.share is {parts.settings['held_out']['share']:g}, "
        f"and none of the {parts.reject_limit.num_rows:,} rows is held out{partly}, so nothing "
        "could be evaluated; raise it, which preprocesses all rows again, by "
        f"`{resume_command(parts.parent.run_dir, '--set', setting)}`"
    )
    raise StageDataError(message, resumes=[("--set", setting)])


def _write_own(
    parts: Parts,
    deal: Deal,
    stage: ConsolidateConfig,
    context: TaskContext,
    piece_paths: PiecePaths,
    *,
    mixture: Mixture,
    dealing: str,
    guard: StopGuard,
) -> Piece:
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
            mixture,
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
