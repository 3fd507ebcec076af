"""Stage `preprocess`: one array task turns one slice of the manifest into one part."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pipeline.preprocess.chat.chat_templates import prepare_folder
from pipeline.preprocess.chat.tokenizer import load_tokenizer
from pipeline.preprocess.composed_processor import write_composed
from pipeline.preprocess.encode import SampleEncoder
from pipeline.preprocess.held_out_files import open_held_out
from pipeline.preprocess.images.storage import LOSSY_FORMATS, mean_price
from pipeline.preprocess.manifest import folder_of, open_manifests
from pipeline.preprocess.manifests.interface import Manifest, changed
from pipeline.preprocess.manifests.manifest_sequence import ManifestSequence
from pipeline.preprocess.part import PartBuilder, PartManifest, PartPaths, write_part, write_rejects
from pipeline.preprocess.processor_folders import hash_folder, write_with_pixels
from pipeline.preprocess.rejects import (
    Reject,
    RejectLimit,
    about_places,
    count_reasons,
    pixels_of_token,
    too_long_remedies,
)
from pipeline.preprocess.slice_rows import slice_range
from pipeline.preprocess.slice_writer import SliceWriter
from pipeline.stopping import StopGuard
from slurm_jobs.base.errors import StageDataError
from slurm_jobs.base.files import atomic_writer, make_private_dir, remove_leftovers
from slurm_jobs.base.units import number_of
from slurm_jobs.formats.config import build_config
from slurm_jobs.formats.configs.stages import (
    CHOSEN_REASONS,
    DEFAULT_MAX_IMAGE_MB,
    HELD_OUT,
    KNOWN_COLUMNS,
    NOT_BROKEN,
    ManifestEntry,
    PreprocessConfig,
)
from slurm_jobs.formats.manifests.row_notes import note_text
from slurm_jobs.formats.manifests.row_options import RowOptions
from slurm_jobs.formats.manifests.text_rows import text_so_far
from slurm_jobs.formats.records.progress_file import Progress
from slurm_jobs.formats.records.rows_in_progress import RowsInProgress
from slurm_jobs.formats.records.stage_outputs import describe_outputs
from slurm_jobs.formats.records.task_context import TaskContext, resume_command

log = logging.getLogger(__name__)


_DECIDE_PIXELS_AND_TOKENS = ("pillow", "simplejpeg", "tokenizers", "torch", "transformers")
"""Packages whose version affects samples; the build of a version (`+cpu`) does not matter."""


def part_settings(
    stage: PreprocessConfig, manifest: Manifest, processor_dir: Path
) -> dict[str, Any]:
    """Return all that determines the samples, except images' bytes, slices and paths.

    It is stored in each part, and equal in all parts of a data set.
    """
    settings: dict[str, Any] = {
        "manifest": manifest.path.name,
        "manifest_xxh3": manifest.fingerprint,
        "num_rows": manifest.num_rows,
        "processor_xxh3": hash_folder(processor_dir),
        "max_tokens": stage.max_tokens,
        "max_images": stage.max_images,
        "too_long": stage.too_long,
        "image_decoding": stage.image_decoding,
        "image_format": stage.image_format,
        "image_quality": stage.image_quality if stage.image_format in LOSSY_FORMATS else None,
        "prompt": stage.prompt,
        "system_prompt": stage.system_prompt,
        **({"columns": asdict(stage.columns)} if stage.columns != KNOWN_COLUMNS else {}),
        "max_pixels": stage.max_pixels,
        "versions": {name: version(name).partition("+")[0] for name in _DECIDE_PIXELS_AND_TOKENS},
    }
    if stage.image_pixels is not None:  # omitted otherwise: older parts do not have it
        settings["image_pixels"] = {"min": stage.image_pixels.min, "max": stage.image_pixels.max}
    if stage.max_image_mb != DEFAULT_MAX_IMAGE_MB:
        settings["max_image_mb"] = stage.max_image_mb
    if isinstance(manifest, ManifestSequence):
        settings["manifests"] = [
            {
                "name": entry.label,
                "file": each.path.name,
                "xxh3": each.fingerprint,
                "num_rows": num_rows,
                **({"columns": asdict(entry.columns)} if entry.columns != KNOWN_COLUMNS else {}),
            }
            for entry, each, num_rows in zip(
                stage.manifests, manifest.manifests, manifest.sizes, strict=True
            )
        ]
    if stage.held_out is not None:
        settings["held_out"] = {"share": stage.held_out.share}
    return settings


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
    # Indexes that later slices reuse; not next to the data, whose folder may be read-only.
    index_dir = context.output_dir / "indexes"
    manifest = open_manifests(
        stage.manifest,
        limit=context.limit,
        options=RowOptions(
            prompt=stage.prompt, system_prompt=stage.system_prompt, columns=stage.columns
        ),
        index_dir=index_dir,
    )
    opened = manifest.manifests if isinstance(manifest, ManifestSequence) else (manifest,)
    for each, entry in zip(opened, stage.manifests, strict=True):
        if not each.num_rows:
            message = f"{entry.path}: no rows; there is nothing to preprocess"
            raise StageDataError(message)
    roots = [_image_root(stage, entry) for entry in stage.manifests]
    processor_dir = _find_processor(stage, context)
    encoder = SampleEncoder(
        processor_dir,
        image_root=roots[0],
        listed_image_roots=roots if isinstance(manifest, ManifestSequence) else (),
        images_within=None if stage.images_within is None else Path(stage.images_within),
        max_tokens=stage.max_tokens,
        max_images=stage.max_images,
        too_long=stage.too_long,
        max_pixels=stage.max_pixels,
        max_image_mb=stage.max_image_mb,
        index_dir=index_dir,
        image_decoding=stage.image_decoding,
    )
    inputs = {
        **encoder.processor.images.model_inputs(),
        "image_mean": encoder.processor.image_mean,
        "image_std": encoder.processor.image_std,
        "rescale_factor": encoder.processor.rescale_factor,
        "image_token": encoder.processor.images.image_token,
        "image_token_id": encoder.chat.image_token_id,
        "pad_token_id": encoder.chat.pad_token_id,
    }
    mine = slice_range(manifest.num_rows, context.slice_index, context.num_slices)
    paths = PartPaths(output_dir=context.output_dir, slice_index=context.slice_index)
    make_private_dir(paths.tar.parent)
    remove_leftovers(paths.tar.parent, f"{paths.tar.stem}.*")  # of a killed attempt
    writer = SliceWriter(
        encoder=encoder,
        image_format=stage.image_format,
        image_quality=stage.image_quality,
        num_threads=stage.num_threads or len(os.sched_getaffinity(0)),
        in_progress=RowsInProgress(context.task_dir),
    )
    progress = Progress(context.task_dir, "samples", len(mine))
    share = None if stage.held_out is None else stage.held_out.share
    with atomic_writer(paths.tar) as stream, open_held_out(paths, share) as held_out:
        builder = PartBuilder(stream)
        writer.held_out = held_out
        writer.write(manifest.rows(mine), builder, progress, guard)
        # it was opened twice, to count and to read
        num_done, after = len(builder.samples) + len(writer.rejects), manifest.fingerprint_now()
        if after != manifest.fingerprint or num_done != len(mine):
            difference = (
                f"{num_done} of {len(mine)} rows of this slice; xxh3 {manifest.fingerprint} "
                f"before, {after or 'no file'} after"
            )
            raise changed(manifest.path, difference)
        _write_and_check_rejects(
            paths,
            writer.rejects,
            stage,
            context,
            num_rows=manifest.num_rows,
            inputs=inputs,
            has_samples=len(builder.samples) > 0,
        )
        # None unless all samples of the slice are without images, which may be a mistake.
        all_are_text = writer.num_text_samples == len(builder.samples)
        first_text_row = writer.first_text_row if all_are_text else None
        index = builder.finish(
            slice_index=context.slice_index,
            num_slices=context.num_slices,
            rows=mine,
            settings=part_settings(stage, manifest, processor_dir),
            model_inputs=inputs,
            processor_dir=str(processor_dir),
            rejects_by_reason=count_reasons(writer.rejects),
            max_reject_share=stage.max_reject_share,
            max_too_long_share=stage.max_too_long_share,
            text_only=stage.text_only,
            first_text_row=first_text_row,
            manifests=_manifests_of_part(stage, writer),
        )
    write_part(paths, index, builder.samples)
    named = _named(stage)
    if first_text_row is not None and not stage.text_only and context.limit is None:
        # not an error here: `consolidate` judges all slices, may accept it, and loses no part
        problem = text_so_far("no sample of this slice has", first_text_row)
        log.warning("%s: %s", named, problem)
    if writer.ignored:
        counts = ", ".join(f"`{key}` ({count} rows)" for key, count in writer.ignored.most_common())
        log.warning("%s: keys that are not read: %s", named, counts)
    for note, count in writer.notes.most_common():
        log.warning("%s: %s", named, note_text(note, number_of("row", count)))
    samples, seconds = builder.samples, writer.seconds
    files = [paths.tar, paths.samples, paths.index, paths.rejects]
    rejected = dict(index.rejects_by_reason)
    num_held_out = rejected.pop(HELD_OUT, 0)
    if share is not None:
        files += [paths.held_out_rows, paths.held_out_pictures]
    return {
        "num_rows": index.end_row - index.first_row,
        "num_samples": index.num_samples,
        "num_rejected": sum(rejected.values()),
        "rejects_by_reason": rejected,
        **({} if share is None else {"num_held_out": num_held_out}),
        "ignored_keys": dict(writer.ignored.most_common()),
        "row_notes": dict(writer.notes.most_common()),
        "num_text_samples": writer.num_text_samples,
        "num_too_long": sum(rejected.get(reason, 0) for reason in CHOSEN_REASONS),
        "num_truncated": writer.num_truncated,
        "num_tokens": int(samples["num_tokens"].sum()),
        "num_supervised_tokens": int(samples["num_supervised_tokens"].sum()),
        "num_images": int(samples["num_images"].sum()),
        "num_pixels": int(samples["num_pixels"].sum()),
        "num_bytes": index.num_bytes,
        "stored_image": mean_price(writer.prices) if writer.prices else None,
        "decode_s": round(seconds.decode, 3),
        "store_s": round(seconds.store, 3),
        "tokenise_s": round(seconds.tokenise, 3),
        "write_s": round(seconds.write, 3),
        "outputs": describe_outputs(paths.output_dir, files),
        "num_tokens_histogram": token_histogram(samples["num_tokens"].tolist()),
    }


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


def _write_and_check_rejects(
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

    The share is of all rows, and `consolidate` applies it to all slices together. A slice fails
    early if its rejects alone exceed it, even if `consolidate` allows more.

    There are three problems: broken rows, rows that are too long, and, if this is the only slice,
    no sample at all because of rows that are too long. The first that applies is reported.
    """
    write_rejects(paths.rejects, rejects)
    limit = RejectLimit(
        max_reject_share=stage.max_reject_share,
        num_rows=num_rows,
        max_too_long_share=stage.max_too_long_share,
    )
    counts = count_reasons(rejects)
    is_only_slice = context.num_slices == 1
    where = "" if is_only_slice else f"in slice {context.slice_index}, "
    others = "" if is_only_slice else " (or more if other slices lose rows, too)"
    key = f"stages.{context.stage}.config"
    # Parts of two versions of a manifest cannot be combined, so all slices run again.
    options = () if is_only_slice else ("--again", context.stage)
    fixed = resume_command(context.run_dir, *options)
    resumes: list[tuple[str, ...]] = []
    lengths = [reject.num_tokens for reject in rejects if reject.num_tokens is not None]
    limits = {"max_tokens": stage.max_tokens, "max_images": stage.max_images}
    is_empty = is_only_slice and not has_samples
    has_broken_rows = bool(counts.keys() - NOT_BROKEN)
    broken_rows = limit.problem(counts)
    if broken_rows is None and is_empty and has_broken_rows:
        broken_rows = limit.no_sample_text(counts)
    if broken_rows is not None:
        needed, do_without = limit.needed_share(counts), ""
        resumes.append(options)
        if has_samples and needed < 0.5:  # else probably a wrong column or folder, not broken rows
            allow = ("--set", f"{key}.max_reject_share={needed:g}")
            resumes.append(allow)
            command = resume_command(context.run_dir, *allow)
            do_without = f". To continue without them: `{command}`{others}"
        first = next(reject for reject in rejects if reject.reason not in NOT_BROKEN)
        command = resume_command(context.run_dir, "--set", key)
        number = _number_of_manifest(stage, first)
        entry = stage.manifests[number]
        hints = about_places(
            counts,
            first=first.message,
            root=_image_root(stage, entry),
            root_key=f"manifest.{number}.image_root" if entry.image_root else "image_root",
            command=command,
            has_samples=has_samples,
        )
        resumes += [("--set", f"{key}.{hint.setting}") for hint in hints if hint.setting]
        problem = (
            f"{where}{broken_rows}. The first is {first.place}: "
            f"{first.message.removeprefix(f'{first.place}: ')}. Fix these rows, then "
            f"`{fixed}`{do_without}{''.join(f'. {hint.text}' for hint in hints)}"
        )
    elif too_long := limit.too_long_problem(counts, lengths, limits):
        remedies = too_long_remedies(
            counts,
            lengths,
            pixels_of_token=pixels_of_token(inputs),
            max_tokens=stage.max_tokens,
        )
        setting = "KEY=VALUE"
        if lengths:
            setting = f"max_tokens={max(lengths)}"
            resumes.append(("--set", f"{key}.{setting}"))
        problem = (
            f"{where}{too_long}. Keep these rows by {remedies}, or leave them out by "
            f"max_too_long_share={limit.needed_too_long_share(counts):g}{others}: "
            f"`{resume_command(context.run_dir, '--set', f'{key}.{setting}')}`"
        )
    elif is_empty:
        problem = limit.nothing_left(
            counts, limits, fixed=fixed, run=str(context.run_dir), stage=context.stage
        )
    else:
        return
    message = f"{_named(stage)}: {problem}. All rejects: {paths.rejects}"
    raise StageDataError(message, resumes=resumes)


def _named(stage: PreprocessConfig) -> str:
    """Return the manifest as messages begin with it, or those of a list."""
    return ", ".join(entry.path for entry in stage.manifests)


def _number_of_manifest(stage: PreprocessConfig, reject: Reject) -> int:
    """Return the place in the list of the manifest that a reject is from; 0 without a list."""
    labels = [entry.label for entry in stage.manifests]
    return 0 if reject.manifest is None else labels.index(reject.manifest)


def _image_root(stage: PreprocessConfig, entry: ManifestEntry) -> Path:
    """Return the base folder of image paths: from the config, else the manifest's folder."""
    root = entry.image_root or stage.image_root
    return folder_of(Path(entry.path)) if root is None else Path(root)


def _manifests_of_part(stage: PreprocessConfig, writer: SliceWriter) -> list[PartManifest]:
    if isinstance(stage.manifest, str):
        return []
    return [
        PartManifest(
            name=entry.label,
            path=entry.path,
            num_samples=writer.samples_by_manifest[entry.label],
            num_bytes=writer.bytes_by_manifest[entry.label],
            proportion={key: getattr(entry, key) for key in entry.keys},
        )
        for entry in stage.manifests
    ]


def token_histogram(num_tokens: Iterable[int]) -> dict[str, int]:
    """Return the number of samples by length; each entry counts up to a power of two, from 2 on."""
    counts: Counter[int] = Counter()
    for length in num_tokens:
        exponent = max(1, (length - 1).bit_length())  # the least with length <= 2**exponent
        counts[2**exponent] += 1
    return {str(limit): counts[limit] for limit in sorted(counts)}
