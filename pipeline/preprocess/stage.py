"""The stage `preprocess`: one array task turns one slice of the manifest into one part."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pipeline.preprocess.encode import SampleEncoder
from pipeline.preprocess.manifest import hash_manifest, iter_manifest, slice_range
from pipeline.preprocess.manifest_rows import ManifestRow
from pipeline.preprocess.part import (
    PartBuilder,
    PartIndex,
    PartPaths,
    write_part_index,
    write_rejects,
)
from pipeline.preprocess.processor import hash_folder
from pipeline.preprocess.rejects import CHOSEN_REASONS, Reject, RejectLimit, count_reasons
from pipeline.preprocess.storage import LOSSY_FORMATS, mean_price
from pipeline.preprocess.work import RowResult, RowWorker
from pipeline.stopping import StopGuard
from slurm_jobs.common.config_values import build_config
from slurm_jobs.common.context import TaskContext
from slurm_jobs.common.errors import StageConfigError, StageError
from slurm_jobs.common.files import (
    atomic_writer,
    make_private_dir,
    remove_leftovers,
)
from slurm_jobs.common.outputs import describe_outputs
from slurm_jobs.common.progress import Progress
from slurm_jobs.common.stage_config.preprocess import PreprocessConfig

_DECIDE_PIXELS_AND_TOKENS = ("pillow", "simplejpeg", "torch", "transformers")
"""Packages whose version a sample depends on; which build of a version (`+cpu`) does not matter."""


@dataclass(slots=True)
class _Tally:
    """What was counted while the part was written."""

    rejects: list[Reject]
    num_truncated: int = 0


def run(config: Mapping[str, Any], context: TaskContext) -> dict[str, Any]:
    """Preprocess this task's slice.

    Raises:
        StageConfigError: the manifest or the processor cannot be used, this
            slice alone rejects more rows than the whole manifest may lose (the
            list is kept), or the time limit is too short.
        StageError: the file system failed, or the manifest changed meanwhile.
        StageStoppedError: asked to stop; the slice starts again.
    """
    guard = StopGuard(context, "rows", "raise resources.timeout_min, or array.num_slices")
    stage = build_config(PreprocessConfig, config)
    manifest_xxh3 = hash_manifest(Path(stage.manifest))
    encoder = _make_encoder(stage)
    num_rows = _count_rows(stage, context.limit)
    mine = slice_range(num_rows, context.slice_index, context.num_slices)
    paths = PartPaths(output_dir=context.output_dir, slice_index=context.slice_index)
    _make_folder(paths)
    worker = _make_worker(stage, encoder)
    progress = Progress(context.task_dir, "samples", len(mine))
    tally = _Tally(rejects=[])
    with atomic_writer(paths.tar) as stream:
        builder = PartBuilder(stream)
        rows = itertools.islice(_rows(stage, context.limit), mine.start, mine.stop)
        _write_samples(worker, rows, builder, tally, progress, guard=guard)
        num_found = len(builder.keys) + len(tally.rejects)
        _check_unchanged(stage, manifest_xxh3, num_rows=len(mine), num_found=num_found)
        _keep_rejects(paths, tally.rejects, stage, context, num_rows=num_rows)
        index = builder.finish(
            slice_index=context.slice_index,
            num_slices=context.num_slices,
            rows=mine,
            settings=_settings(stage, manifest_xxh3, num_rows),
            model_inputs=_model_inputs(encoder),
            processor_dir=stage.processor,
            rejects_by_reason=count_reasons(tally.rejects),
            max_reject_share=stage.max_reject_share,
        )
    write_part_index(paths.index, index)
    return _result(paths, index, tally, worker)


def _make_folder(paths: PartPaths) -> None:
    """The folder of the parts, without what a killed attempt at this one left."""
    make_private_dir(paths.tar.parent)
    remove_leftovers(paths.tar.parent, f"{paths.tar.stem}.*")


def _make_encoder(stage: PreprocessConfig) -> SampleEncoder:
    manifest_dir = Path(stage.manifest).parent
    return SampleEncoder(
        Path(stage.processor),
        image_root=manifest_dir if stage.image_root is None else Path(stage.image_root),
        max_tokens=stage.max_tokens,
        max_images=stage.max_images,
        too_long=stage.too_long,
        max_pixels=stage.max_pixels,
        image_decoding=stage.image_decoding,
    )


def _make_worker(stage: PreprocessConfig, encoder: SampleEncoder) -> RowWorker:
    return RowWorker(
        encoder=encoder,
        image_format=stage.image_format,
        image_quality=stage.image_quality,
        num_threads=stage.num_threads or len(os.sched_getaffinity(0)),
    )


def _rows(stage: PreprocessConfig, limit: int | None) -> Iterable[ManifestRow]:
    return iter_manifest(
        Path(stage.manifest), limit, prompt=stage.prompt, system_prompt=stage.system_prompt
    )


def _count_rows(stage: PreprocessConfig, limit: int | None) -> int:
    num_rows = sum(1 for _ in _rows(stage, limit))
    if not num_rows:
        message = f"{stage.manifest}: no rows; there is nothing to preprocess"
        raise StageConfigError(message)
    return num_rows


def _check_unchanged(
    stage: PreprocessConfig, before: str | None, *, num_rows: int, num_found: int
) -> None:
    """Refuse rows of two manifests under one name: it is opened anew to count and to read them.

    Raises:
        StageError: it is not what it was `before`, or has not given all rows of the slice.
    """
    after = hash_manifest(Path(stage.manifest))
    if after != before or num_found != num_rows:
        message = (
            f"{stage.manifest}: changed while its rows were read ({num_found} of {num_rows} rows "
            f"of this slice; xxh3 {before} before, {after or 'no file'} after); nothing was "
            f"written. Leave it alone while the array runs, and preprocess all slices of one "
            f"manifest"
        )
        raise StageError(message)


def _write_samples(
    worker: RowWorker,
    rows: Iterable[ManifestRow],
    builder: PartBuilder,
    tally: _Tally,
    progress: Progress,
    *,
    guard: StopGuard,
) -> None:
    with contextlib.closing(worker.results(rows)) as results:  # a stop must end its threads too
        for num_done, result in enumerate(results, start=1):
            guard.check(num_done - 1, progress.total)
            if result.rejection is not None:
                tally.rejects.append(_reject(result))
            else:
                _add(builder, result, tally, worker)
            progress.update(num_done, detail=f"{len(tally.rejects)} rejected")


def _add(builder: PartBuilder, result: RowResult, tally: _Tally, worker: RowWorker) -> None:
    assert result.tokens is not None
    start = time.perf_counter()
    builder.add(
        result.row.key,
        result.data,
        labels=result.tokens.labels,
        num_images=len(result.row.image_paths),
    )
    worker.seconds.write += time.perf_counter() - start
    tally.num_truncated += result.tokens.truncated


def _reject(result: RowResult) -> Reject:
    assert result.rejection is not None
    return Reject(
        row=result.row.origin.row,
        key=result.row.key,
        source=result.row.source,
        place=str(result.row.origin),
        reason=result.rejection.reason,
        message=str(result.rejection),
    )


def _keep_rejects(
    paths: PartPaths,
    rejects: list[Reject],
    stage: PreprocessConfig,
    context: TaskContext,
    *,
    num_rows: int,
) -> None:
    """Write the list; the slice fails if by itself it rejects more than this stage's share allows.

    The share is one of all rows, and `consolidate` judges all slices together by the same: then the
    outcome does not depend on the number of slices. Where `consolidate` is told a greater share, it
    may: a slice still fails by this stage's, and the fewer the slices, the sooner one does.
    """
    write_rejects(paths.rejects, rejects)
    limit = RejectLimit(max_reject_share=stage.max_reject_share, num_rows=num_rows)
    problem = limit.problem(count_reasons(rejects))
    if problem:
        message = (
            f"{stage.manifest}: in slice {paths.slice_index} alone {problem}; mend these rows, or "
            f"do without them by `slurm-jobs resume {context.run_dir} --set "
            f"stages.{context.stage}.config.max_reject_share=SHARE` (the share of `consolidate` "
            f"is for finished parts). First: {rejects[0].message}. All of this slice: "
            f"{paths.rejects}"
        )
        raise StageConfigError(message)


def _settings(stage: PreprocessConfig, manifest_xxh3: str | None, num_rows: int) -> dict[str, Any]:
    """What the samples depend on, and nothing that depends on slices or places."""
    return {
        "manifest": Path(stage.manifest).name,
        "manifest_xxh3": manifest_xxh3,
        "num_rows": num_rows,
        "processor_xxh3": hash_folder(Path(stage.processor)),
        "max_tokens": stage.max_tokens,
        "max_images": stage.max_images,
        "too_long": stage.too_long,
        "image_decoding": stage.image_decoding,
        "image_format": stage.image_format,
        "image_quality": stage.image_quality if stage.image_format in LOSSY_FORMATS else None,
        "prompt": stage.prompt,
        "system_prompt": stage.system_prompt,
        "max_pixels": stage.max_pixels,
        "versions": {name: version(name).partition("+")[0] for name in _DECIDE_PIXELS_AND_TOKENS},
    }


def _model_inputs(encoder: SampleEncoder) -> dict[str, Any]:
    """The fields of `DatasetInfo` that come from the processor."""
    processor = encoder.processor
    return {
        "image_height": processor.geometry.height,
        "image_width": processor.geometry.width,
        "image_mean": processor.image_mean,
        "image_std": processor.image_std,
        "rescale_factor": processor.rescale_factor,
        "image_token": processor.image_token,
        "image_token_id": encoder.chat.image_token_id,
        "pad_token_id": encoder.chat.pad_token_id,
        "num_image_tokens": processor.num_image_tokens,
    }


def _result(paths: PartPaths, index: PartIndex, tally: _Tally, worker: RowWorker) -> dict[str, Any]:
    by_reason = count_reasons(tally.rejects)
    seconds = worker.seconds
    return {
        "num_rows": index.end_row - index.first_row,
        "num_samples": len(index.keys),
        "num_rejected": len(tally.rejects),
        "rejects_by_reason": by_reason,
        "num_too_long": sum(by_reason.get(reason, 0) for reason in CHOSEN_REASONS),
        "num_truncated": tally.num_truncated,
        "num_tokens": sum(index.sample_num_tokens),
        "num_supervised_tokens": sum(index.sample_num_supervised_tokens),
        "num_images": sum(index.sample_num_images),
        "num_bytes": index.num_bytes,
        "stored_image": mean_price(worker.prices) if worker.prices else None,
        "decode_s": round(seconds.decode, 3),
        "store_s": round(seconds.store, 3),
        "tokenise_s": round(seconds.tokenise, 3),
        "write_s": round(seconds.write, 3),
        "outputs": describe_outputs(paths.output_dir, (paths.tar, paths.index, paths.rejects)),
        "num_tokens_histogram": token_histogram(index.sample_num_tokens),
    }


def token_histogram(num_tokens: Iterable[int]) -> dict[str, int]:
    """Samples by length: each entry counts those of at most so many tokens (powers of two)."""
    counts = Counter(max(1, count - 1).bit_length() for count in num_tokens)
    return {str(2**bits): counts[bits] for bits in sorted(counts)}
