"""Stage `preprocess`: one array task turns one slice of the manifest into one part."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.preprocess.encode import SampleEncoder
from pipeline.preprocess.manifest import folder_of, open_manifest, slice_range
from pipeline.preprocess.manifests.model import Manifest, changed
from pipeline.preprocess.part import (
    PartBuilder,
    PartIndex,
    PartPaths,
    write_part,
    write_rejects,
)
from pipeline.preprocess.processors.composed import write_composed
from pipeline.preprocess.processors.folder import write_with_pixels
from pipeline.preprocess.processors.templates import prepare_folder
from pipeline.preprocess.rejects import (
    CHOSEN_REASONS,
    Reject,
    RejectLimit,
    about_places,
    count_reasons,
    pixels_of_token,
    too_long_remedies,
)
from pipeline.preprocess.settings import model_inputs, part_settings
from pipeline.preprocess.storage import mean_price
from pipeline.preprocess.tokenizer import load_tokenizer
from pipeline.preprocess.work import RowResult, RowWorker
from pipeline.stopping import StopGuard
from slurm_jobs.common.config_values import build_config
from slurm_jobs.common.context import TaskContext, resume_command
from slurm_jobs.common.errors import StageConfigError
from slurm_jobs.common.files import (
    atomic_writer,
    make_private_dir,
    remove_leftovers,
)
from slurm_jobs.common.manifests.rows import ManifestRow
from slurm_jobs.common.manifests.values import RowOptions
from slurm_jobs.common.outputs import describe_outputs
from slurm_jobs.common.progress import Progress
from slurm_jobs.common.rows_in_progress import RowsInProgress
from slurm_jobs.common.stage_config.preprocess import PreprocessConfig

log = logging.getLogger(__name__)

_MAX_IGNORED = 100
"""Limit of names of keys that are counted; rows may have any number."""


@dataclass(slots=True)
class _Tally:
    """Counts while the part is written."""

    rejects: list[Reject]
    num_truncated: int = 0
    ignored: Counter[str] = field(default_factory=Counter)
    """Number of rows by key that is neither read nor known to be metadata."""

    def count_ignored(self, row: ManifestRow) -> None:
        """Count the keys of a row that are not read."""
        for key in row.ignored:
            if key in self.ignored or len(self.ignored) < _MAX_IGNORED:
                self.ignored[key] += 1


def run(config: Mapping[str, Any], context: TaskContext) -> dict[str, Any]:
    """Preprocess this task's slice.

    Raises:
        StageConfigError: the manifest or the processor cannot be used, this slice alone rejects
            more rows than the whole manifest may lose (the list is kept), or the time limit is
            too short.
        StageError: the file system failed, or the manifest or an archive changed meanwhile.
        StageStoppedError: a stop was requested; the slice starts again.
    """
    guard = StopGuard(context, "rows", "raise resources.timeout_min, or array.num_slices")
    stage = build_config(PreprocessConfig, config)
    manifest = _open_rows(stage, context)
    processor_dir = _find_processor(stage, context)
    encoder = _make_encoder(stage, context, processor_dir)
    mine = slice_range(manifest.num_rows, context.slice_index, context.num_slices)
    paths = PartPaths(output_dir=context.output_dir, slice_index=context.slice_index)
    _make_folder(paths)
    worker = _make_worker(stage, encoder, context)
    progress = Progress(context.task_dir, "samples", len(mine))
    tally = _Tally(rejects=[])
    with atomic_writer(paths.tar) as stream:
        builder = PartBuilder(stream)
        _write_samples(worker, manifest.rows(mine), builder, tally, progress, guard=guard)
        _check_unchanged(manifest, len(mine), len(builder.samples) + len(tally.rejects))
        _keep_rejects(
            paths,
            tally.rejects,
            stage,
            context,
            num_rows=manifest.num_rows,
            inputs=model_inputs(encoder),
            has_samples=len(builder.samples) > 0,
        )
        index = builder.finish(
            slice_index=context.slice_index,
            num_slices=context.num_slices,
            rows=mine,
            settings=part_settings(stage, manifest, processor_dir),
            model_inputs=model_inputs(encoder),
            processor_dir=str(processor_dir),
            rejects_by_reason=count_reasons(tally.rejects),
            max_reject_share=stage.max_reject_share,
            max_too_long_share=stage.max_too_long_share,
        )
    write_part(paths, index, builder.samples)
    if tally.ignored:
        counts = ", ".join(f"`{key}` ({count} rows)" for key, count in tally.ignored.most_common())
        log.warning("%s: keys that are not read: %s", stage.manifest, counts)
    return _result(paths, index, builder.samples, tally, worker)


def _make_folder(paths: PartPaths) -> None:
    """Create the folder of the parts, and remove files of a killed attempt at this one."""
    make_private_dir(paths.tar.parent)
    remove_leftovers(paths.tar.parent, f"{paths.tar.stem}.*")


def _index_dir(context: TaskContext) -> Path:
    """Return the folder for indexes of manifest and archives that later slices reuse.

    It is not next to the data, whose folder may be read-only.
    """
    return context.output_dir / "indexes"


def _find_processor(stage: PreprocessConfig, context: TaskContext) -> Path:
    """Return the processor's folder; one written here is next to the parts, for `consolidate`."""
    root = context.output_dir / "processors"
    if not isinstance(stage.processor, str):
        tokenizer = load_tokenizer(Path(stage.processor.text))
        return write_composed(stage.processor, tokenizer, root)
    folder = prepare_folder(Path(stage.processor), root, stage.chat_template)
    if stage.image_pixels is not None:
        return write_with_pixels(folder, stage.image_pixels, root)
    return folder


def _make_encoder(
    stage: PreprocessConfig, context: TaskContext, processor_dir: Path
) -> SampleEncoder:
    return SampleEncoder(
        processor_dir,
        image_root=_image_root(stage),
        images_within=None if stage.images_within is None else Path(stage.images_within),
        max_tokens=stage.max_tokens,
        max_images=stage.max_images,
        too_long=stage.too_long,
        max_pixels=stage.max_pixels,
        index_dir=_index_dir(context),
        image_decoding=stage.image_decoding,
    )


def _make_worker(
    stage: PreprocessConfig, encoder: SampleEncoder, context: TaskContext
) -> RowWorker:
    return RowWorker(
        encoder=encoder,
        image_format=stage.image_format,
        image_quality=stage.image_quality,
        num_threads=stage.num_threads or len(os.sched_getaffinity(0)),
        in_progress=RowsInProgress(context.task_dir),
    )


def _open_rows(stage: PreprocessConfig, context: TaskContext) -> Manifest:
    options = RowOptions(
        prompt=stage.prompt, system_prompt=stage.system_prompt, columns=stage.columns
    )
    manifest = open_manifest(
        Path(stage.manifest), limit=context.limit, options=options, index_dir=_index_dir(context)
    )
    if not manifest.num_rows:
        message = f"{stage.manifest}: no rows; there is nothing to preprocess"
        raise StageConfigError(message)
    return manifest


def _check_unchanged(manifest: Manifest, num_rows: int, num_found: int) -> None:
    """Refuse rows of two manifests under one name: it is opened twice, to count and to read.

    Raises:
        StageError: it has changed, or has not given all rows of the slice.
    """
    after = manifest.fingerprint_now()
    if after != manifest.fingerprint or num_found != num_rows:
        found = (
            f"{num_found} of {num_rows} rows of this slice; xxh3 {manifest.fingerprint} before, "
            f"{after or 'no file'} after"
        )
        raise changed(manifest.path, found)


def _write_samples(
    worker: RowWorker,
    rows: Iterable[ManifestRow],
    builder: PartBuilder,
    tally: _Tally,
    progress: Progress,
    *,
    guard: StopGuard,
) -> None:
    with contextlib.closing(worker.results(rows)) as results:  # a stop must end its threads, too
        for num_done, result in enumerate(results, start=1):
            guard.check(num_done - 1, progress.total)
            tally.count_ignored(result.row)
            if result.reject is not None:
                tally.rejects.append(result.reject)
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
        num_images=result.num_images,
        num_pixels=result.num_pixels,
    )
    worker.seconds.write += time.perf_counter() - start
    tally.num_truncated += result.tokens.truncated


def _keep_rejects(
    paths: PartPaths,
    rejects: list[Reject],
    stage: PreprocessConfig,
    context: TaskContext,
    *,
    num_rows: int,
    inputs: Mapping[str, Any],
    has_samples: bool,
) -> None:
    """Write the list, and fail if the slice alone rejects more than this stage's share allows.

    The share is of all rows, and `consolidate` applies it to all slices together, so the
    outcome does not depend on the number of slices. `consolidate` may have a greater share; a
    slice still fails by this stage's share, and sooner with fewer slices.
    """
    write_rejects(paths.rejects, rejects)
    limit = RejectLimit(
        max_reject_share=stage.max_reject_share,
        num_rows=num_rows,
        max_too_long_share=stage.max_too_long_share,
    )
    counts = count_reasons(rejects)
    where = f"in slice {context.slice_index}, " if context.num_slices > 1 else ""
    others = " (or more if other slices lose rows, too)" if where else ""
    key = f"stages.{context.stage}.config"
    # Parts of two versions of a manifest cannot be combined, so all slices run again.
    options = ("--again", context.stage) if where else ()
    fixed = resume_command(context.run_dir, *options)
    problem = limit.problem(counts)
    is_empty = not has_samples and not where
    if problem is None and is_empty and not CHOSEN_REASONS.keys() >= counts.keys():
        problem = limit.no_sample_text(counts)
    if problem:
        needed = limit.needed_share(counts)
        allow = resume_command(context.run_dir, "--set", f"{key}.max_reject_share={needed:g}")
        do_without = f". To continue without them: `{allow}`{others}"
        # probably a wrong column or folder rather than broken rows
        if not has_samples or needed >= 0.5:
            do_without = ""
        message = (
            f"{stage.manifest}: {where}{problem}. {_first_broken(rejects)}. Fix these rows, then "
            f"`{fixed}`{do_without}"
            f"{_about_places(counts, stage, context, has_samples=has_samples)}. All rejects: "
            f"{paths.rejects}"
        )
        raise StageConfigError(message)
    lengths = [reject.num_tokens for reject in rejects if reject.num_tokens is not None]
    limits = {"max_tokens": stage.max_tokens, "max_images": stage.max_images}
    problem = limit.too_long_problem(counts, lengths, limits)
    if problem:
        remedies = too_long_remedies(
            counts,
            lengths,
            pixels_of_token=pixels_of_token(inputs),
            max_tokens=stage.max_tokens,
        )
        message = (
            f"{stage.manifest}: {where}{problem}. Keep these rows by "
            f"{remedies}, or leave them out by "
            f"max_too_long_share={limit.needed_too_long_share(counts):g}{others}: "
            f"`{resume_command(context.run_dir, '--set', f'{key}.KEY=VALUE')}`. All rejects: "
            f"{paths.rejects}"
        )
        raise StageConfigError(message)
    if is_empty:
        problem = limit.nothing_left(
            counts, limits, fixed=fixed, run=str(context.run_dir), stage=context.stage
        )
        message = f"{stage.manifest}: {problem}. All rejects: {paths.rejects}"
        raise StageConfigError(message)


def _first_broken(rejects: Sequence[Reject]) -> str:
    first = next(reject for reject in rejects if reject.reason not in CHOSEN_REASONS)
    return f"The first is {first.place}: {first.message.removeprefix(f'{first.place}: ')}"


def _about_places(
    counts: Mapping[str, int],
    stage: PreprocessConfig,
    context: TaskContext,
    *,
    has_samples: bool,
) -> str:
    """Return hints about keys for images that were not found or are in other folders."""
    command = resume_command(context.run_dir, "--set", f"stages.{context.stage}.config")
    return about_places(counts, root=_image_root(stage), command=command, has_samples=has_samples)


def _image_root(stage: PreprocessConfig) -> Path:
    """Return the base folder of image paths: from the config, else the manifest's folder."""
    root = stage.image_root
    return folder_of(Path(stage.manifest)) if root is None else Path(root)


def _result(
    paths: PartPaths, index: PartIndex, samples: np.ndarray, tally: _Tally, worker: RowWorker
) -> dict[str, Any]:
    by_reason = count_reasons(tally.rejects)
    seconds = worker.seconds
    return {
        "num_rows": index.end_row - index.first_row,
        "num_samples": index.num_samples,
        "num_rejected": len(tally.rejects),
        "rejects_by_reason": by_reason,
        "ignored_keys": dict(tally.ignored.most_common()),
        "num_too_long": sum(by_reason.get(reason, 0) for reason in CHOSEN_REASONS),
        "num_truncated": tally.num_truncated,
        "num_tokens": int(samples["num_tokens"].sum()),
        "num_supervised_tokens": int(samples["num_supervised_tokens"].sum()),
        "num_images": int(samples["num_images"].sum()),
        "num_pixels": int(samples["num_pixels"].sum()),
        "num_bytes": index.num_bytes,
        "stored_image": mean_price(worker.prices) if worker.prices else None,
        "decode_s": round(seconds.decode, 3),
        "store_s": round(seconds.store, 3),
        "tokenise_s": round(seconds.tokenise, 3),
        "write_s": round(seconds.write, 3),
        "outputs": describe_outputs(paths.output_dir, _files(paths)),
        "num_tokens_histogram": token_histogram(samples["num_tokens"].tolist()),
    }


def _files(paths: PartPaths) -> tuple[Path, ...]:
    return (paths.tar, paths.samples, paths.index, paths.rejects)


def token_histogram(num_tokens: Iterable[int]) -> dict[str, int]:
    """Return the number of samples by length; each entry counts up to a power of two."""
    counts = Counter(max(1, count - 1).bit_length() for count in num_tokens)
    return {str(2**bits): counts[bits] for bits in sorted(counts)}
